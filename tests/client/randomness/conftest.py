"""What the tests of the samplers share: a table read back as a law, and a stream of prescribed words."""

from __future__ import annotations

import numpy as np
import pytest


def _units(table):
    units = {}
    for value, slots in zip(*np.unique(table.values[: table.first_escape], return_counts=True), strict=True):
        units[int(value)] = int(slots) << 80
    before = 0
    for outcome, bound in zip(table.outcomes, table.cumulated, strict=True):
        units[int(outcome)] = units.get(int(outcome), 0) + bound - before
        before = bound
    return units


class Words:
    """Stands for a ``Randomness`` whose words are prescribed."""

    def __init__(self, *words):
        self.given = list(words)

    def words(self, count, dtype):
        words = np.array(self.given.pop(0), dtype=dtype)
        assert words.shape == (count,)
        return words


@pytest.fixture(scope="session")
def units_of():
    """What a table gives each outcome, exactly, in units of 2^-96."""
    return _units


@pytest.fixture(scope="session")
def prescribed():
    """Makes a stream of prescribed words."""
    return Words
