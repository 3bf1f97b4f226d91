"""The trips that devices report: which, and what becomes of those outside."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.trips import Trips, cells_of_trips
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

GRID = mv.Grid(mv.Region.from_bbox(0.0, 0.0, 4.0, 1.0), rows=1, columns=4)
DOMAIN = Domain(GRID)


def trips(users: list[int], origins: list[float], destinations: list[float]) -> Trips:
    half = np.full(len(users), 0.5)
    return Trips(np.array(users), np.array(origins), half, np.array(destinations), half)


def test_every_trip_or_one_of_each_user() -> None:
    some = trips([0, 0, 0, 1], [0.5, 1.5, 2.5, 3.5], [3.5, 2.5, 1.5, 0.5])
    origins, destinations = cells_of_trips(some, DOMAIN, "drop", Randomness(0), one_each=False)
    assert (origins.tolist(), destinations.tolist()) == ([0, 1, 2, 3], [3, 2, 1, 0])
    taken = np.zeros(4)
    for seed in range(900):
        origins, destinations = cells_of_trips(some, DOMAIN, "drop", Randomness(seed), one_each=True)
        assert origins.size == 2
        assert (origins + destinations == 3).all()
        taken[origins] += 1
    assert taken[3] == 900
    # Each of three with a third: 6.5 deviations either way; a weight of 0.45 would be seven off.
    assert np.abs(taken[:3] - 300).max() < 6.5 * np.sqrt(900 * 2 / 9)


def test_ends_outside() -> None:
    some = trips([0, 1, 2], [0.5, 0.5, 9.0], [1.5, -7.0, 2.5])
    silent = cells_of_trips(some, DOMAIN, "drop", Randomness(0), one_each=False)
    assert [part.tolist() for part in silent] == [[0], [1]]
    nearest = cells_of_trips(some, DOMAIN, "nearest", Randomness(0), one_each=False)
    assert [part.tolist() for part in nearest] == [[0, 0, 3], [1, 0, 2]]
    with pytest.raises(InputError, match="outside") as refused:
        cells_of_trips(some, DOMAIN, "refuse", Randomness(0), one_each=False)
    assert "-7" not in str(refused.value)


def test_no_trip_inside_is_a_valid_input() -> None:
    for one_each in (True, False):
        found = cells_of_trips(trips([0], [9.0], [0.5]), DOMAIN, "drop", Randomness(0), one_each=one_each)
        assert [part.size for part in found] == [0, 0]
