"""Some of the trips of a table of positions."""

from __future__ import annotations

import numpy as np

from mapveil.analysis.trips import Trajectories
from simulations.traffic.positions import select_trips, trip_of_positions

THREE = Trajectories(
    np.array([0, 0, 1]),
    np.array([0, 2, 4, 7]),
    np.array([1.0, 1.1, 3.0, 3.1, 2.0, 2.1, 2.2]),
    np.linspace(48, 50, 7),
    np.arange(7.0),
)


def test_some_trips_are_chosen_by_number_or_mask() -> None:
    assert trip_of_positions(THREE).tolist() == [0, 0, 1, 1, 2, 2, 2]
    for choice in (np.array([0, 2]), np.array([True, False, True])):
        part = select_trips(THREE, choice)
        assert part.count == 2
        assert part.lon.tolist() == [1.0, 1.1, 2.0, 2.1, 2.2]
        assert part.start.tolist() == [0, 2, 5]
    assert select_trips(THREE, np.zeros(0, dtype=int)).lon.size == 0
