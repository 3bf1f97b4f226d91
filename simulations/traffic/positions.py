"""Positions of trips: the trip of each, and some of the trips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mapveil.analysis.trips import Trajectories
from mapveil_client.arrays import IntArray


def trip_of_positions(trajectories: Trajectories) -> IntArray:
    """The trip of each position, shape (positions,)."""
    return np.repeat(np.arange(trajectories.count), np.diff(trajectories.start))


def select_trips(trajectories: Trajectories, trips: npt.NDArray[Any]) -> Trajectories:
    """Some of the trips, by number or by mask."""
    chosen = np.arange(trajectories.count)[trips]
    length = np.diff(trajectories.start)[chosen]
    start = np.concatenate([[0], np.cumsum(length)])
    at = np.repeat(trajectories.start[chosen] - start[:-1], length) + np.arange(int(start[-1]))
    return replace(
        trajectories,
        users=trajectories.users[chosen],
        start=start,
        lon=trajectories.lon[at],
        lat=trajectories.lat[at],
        seconds=trajectories.seconds[at],
    )
