"""Roads made of trajectories."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.trips import Trajectories
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.trajectory_roads import roads_from_trajectories

GRID = mv.Grid(mv.Region.from_bbox(0.0, 0.0, 0.05, 0.02), rows=2, columns=5)


def trips_of(*trips: list[tuple[int, float]]) -> Trajectories:
    """Trips by cells and seconds."""
    places = GRID.centres()
    cell = np.array([each for trip in trips for each, _ in trip])
    seconds = np.array([when for trip in trips for _, when in trip], dtype=float)
    start = np.concatenate([[0], np.cumsum([len(trip) for trip in trips])])
    return Trajectories(
        np.arange(len(trips)), start, places.lon[cell], places.lat[cell], seconds, "/somewhere/taxis.csv"
    )


def around(seconds: float) -> list[tuple[int, float]]:
    return [(0, 0), (1, seconds), (6, 2 * seconds), (5, 3 * seconds), (0, 4 * seconds)]


def test_a_road_is_a_step_and_takes_the_median_of_its_times() -> None:
    graph = roads_from_trajectories(trips_of(around(40), around(30), around(80)), GRID)
    assert (graph.nodes, graph.roads) == (4, 4)
    assert graph.seconds.tolist() == [40.0] * 4
    assert graph.length_m == pytest.approx([1113.2, 1113.2, 1105.7, 1105.7][:4], rel=0.01)
    assert graph.source == "roads of taxis.csv", "a path is nobody's business"


def test_standing_in_a_cell_counts_from_when_it_was_entered() -> None:
    trip = [(0, 0), (0, 10), (1, 35), (1, 50), (0, 85)]
    graph = roads_from_trajectories(trips_of(trip), GRID)
    assert sorted(graph.seconds.tolist()) == [35.0, 50.0]


def test_no_step_is_made_from_trip_to_trip() -> None:
    graph = roads_from_trajectories(trips_of([*around(30)], [(4, 121), (9, 151), (4, 181)]), GRID)
    west = graph.lon < 0.02
    assert west.all(), "the second trip is a part of its own, the smaller one"


def test_slow_and_impossible_steps_and_rare_roads_are_left_out() -> None:
    slow = [(0, 0), (1, 30), (6, 80), (1, 110), (0, 140)]
    assert roads_from_trajectories(trips_of(slow), GRID).roads == 4
    assert roads_from_trajectories(trips_of(slow), GRID, longest_step_s=40).roads == 2
    fast = [(0, 0), (1, 30), (0, 60), (4, 62), (0, 92)]
    graph = roads_from_trajectories(trips_of(fast), GRID)
    assert graph.roads == 2, "4.4 km in 2 s is a mistake of the positioning, and 30 s too fast as well"
    twice = roads_from_trajectories(
        trips_of(around(30), [(0, 0), (1, 30), (0, 60)], around(30)), GRID, least_trips=2
    )
    assert twice.roads == 4


def test_one_trip_back_and_forth_is_one_trip() -> None:
    shuttle = [(0, 0), (1, 30), (0, 60), (1, 90), (0, 120)]
    with pytest.raises(InputError, match="no road was taken by 2 or more"):
        roads_from_trajectories(trips_of(shuttle), GRID, least_trips=2)


@pytest.mark.parametrize("settings", [{"least_trips": 0}, {"longest_step_s": 0}, {"longest_step_s": np.nan}])
def test_senseless_settings_are_refused(settings: dict) -> None:
    with pytest.raises(ParameterError, match="must be"):
        roads_from_trajectories(trips_of(around(30)), GRID, **settings)


def test_trips_elsewhere_make_no_roads() -> None:
    away = trips_of(around(30))
    far = Trajectories(away.users, away.start, away.lon + 9, away.lat, away.seconds)
    with pytest.raises(InputError, match="larger cells"):
        roads_from_trajectories(far, GRID)
