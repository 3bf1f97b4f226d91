"""A live series of a city in four weeks, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mapveil as mv
from mapveil.mechanisms.live_series import LiveSeries

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=3)
WEEKS = mv.Windows(every="1w", start="2026-01-05", until="2026-02-02")
NAMES = WEEKS.names


def visits(users: np.ndarray, week: int, seed: int = 0, without: int | None = None) -> mv.Points:
    """A row of each user in a week."""
    rng = np.random.default_rng(seed)
    lon, lat = rng.uniform(-74.03, -73.90, users.size), rng.uniform(40.69, 40.83, users.size)
    day = np.datetime64("2026-01-05") + 7 * week + rng.integers(0, 7, users.size)
    left = users != without
    return mv.Points.from_arrays(users[left], lon[left], lat[left], time=day[left])


def started(path: Path, **given: object) -> LiveSeries:
    """A series that has started, of a user's first two windows by default."""
    given = {"name": "city", "windows": WEEKS, "epsilon": 2, "windows_per_user": 2, **given}
    return LiveSeries.start(path, tiling=TILING, **given)
