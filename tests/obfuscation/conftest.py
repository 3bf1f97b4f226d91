"""A table of measurements made up for the tests of privatizers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mapveil.geo.measurements import Measurements


def _made_up(rows: int, users: int = 5, seed: int = 1, further: int = 2) -> Measurements:
    # Users around their own places, signal falling with distance from a mast, and features of every scale.
    rng = np.random.default_rng(seed)
    who = rng.integers(users, size=rows)
    home = rng.normal(size=(users, 2)) * 0.01
    place = [35.5, 24.0] + home[who] + rng.normal(size=(rows, 2)) * 0.004
    signal = -60 - 2000 * np.hypot(*(place - [35.5, 24.0]).T) + rng.normal(size=rows) * 4
    others = rng.normal(size=(rows, further)) * 10.0 ** np.arange(further) + who[:, None]
    return Measurements(
        np.column_stack([place, np.clip(signal, -120, -20), others]),
        ("lat", "lon", "rss_dbm", *(f"x{at}" for at in range(further))),
        who,
        tuple(f"user{at}" for at in range(users)),
        np.arange(rows) * 1_000_000,
        np.arange(rows),
    )


@pytest.fixture(scope="session")
def made_up() -> Callable[..., Measurements]:
    """Makes a table of so many rows."""
    return _made_up
