"""Clients draw windows uniformly, and different ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from mapveil_client.errors import ParameterError
from mapveil_client.local.window_choice import draw_windows
from mapveil_client.randomness.random import Randomness


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_every_choice_is_equally_likely(most: int) -> None:
    drawn = draw_windows(5, most, Randomness(7), clients=30_000)
    choices = list(combinations(range(5), most))
    counts = np.array([(drawn == choice).all(axis=1).sum() for choice in choices])
    assert counts.sum() == 30_000
    expected = 30_000 / len(choices)
    # Five deviations of one count.
    assert np.abs(counts - expected).max() <= 5 * np.sqrt(expected)


def test_more_windows_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(ParameterError, match="most must be a whole number from 1 to 3"):
        draw_windows(3, 4, Randomness(1))
