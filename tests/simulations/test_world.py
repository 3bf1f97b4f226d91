"""The traffic of a simulation, against one vehicle at a time and one second at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.navigation.congestion import StepDelay, VolumeDelay
from mapveil.synthetic import SEA_BOX
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.fleet import Fleet, synthetic_fleet
from simulations.traffic.synthetic_roads import synthetic_roads
from simulations.traffic.world import make_world, split_by_window

GRAPH = synthetic_roads(spacing_m=1000)
REGION = mv.Region.from_bbox(*SEA_BOX)
GRID = mv.Grid(REGION, rows=5, columns=4)

times = st.floats(0, 5000)


@given(st.lists(st.tuples(times, st.floats(0, 3000)), max_size=8), st.floats(10, 900))
def test_pieces_lie_in_their_windows_and_add_up(spans: list[tuple[float, float]], window_s: float) -> None:
    begin = np.array([first for first, _ in spans])
    end = begin + np.array([length for _, length in spans])
    stays = split_by_window(begin, end, window_s)
    assert (stays.seconds >= 0).all()
    assert (stays.seconds <= window_s * (1 + 1e-12)).all()
    assert np.bincount(stays.which, stays.seconds, len(spans)) == pytest.approx(end - begin, abs=1e-9)
    for each in range(len(spans)):
        windows = stays.window[stays.which == each]
        assert windows.tolist() == list(range(int(begin[each] // window_s), int(end[each] // window_s) + 1))


def slow_world(fleet: Fleet, model, window_s: float):
    """Window by window: everybody's way in it, with the delays of the window before."""
    cell = GRID.locate(GRAPH.lon, GRAPH.lat)
    ways = [
        GRAPH.route(int(a), int(b)).tolist() for a, b in zip(fleet.origin, fleet.destination, strict=True)
    ]
    clock = fleet.departure.tolist()
    users: list[np.ndarray] = [np.zeros(GRID.size) for _ in range(200)]
    window = 0
    while any(len(way) > 1 for way in ways):
        before = users[window - 1] if window else np.zeros(GRID.size)
        delays = model.delay(before[cell[GRAPH.head]], GRAPH.seconds)
        for vehicle, way in enumerate(ways):
            while len(way) > 1 and clock[vehicle] < (window + 1) * window_s:
                road = int(GRAPH.road_between(way[0], way[1]))
                end = clock[vehicle] + GRAPH.seconds[road] + delays[road]
                for each in range(200):
                    spent = min(end, (each + 1) * window_s) - max(clock[vehicle], each * window_s)
                    users[each][cell[way[1]]] += max(spent, 0.0) / window_s
                clock[vehicle] = end
                way.pop(0)
        window += 1
    return np.array(users), float(np.sum(np.array(clock) - fleet.departure))


@pytest.mark.parametrize("model", [StepDelay(1e9, 1), StepDelay(0.5, 9), VolumeDelay(0.7)])
def test_users_are_those_of_one_vehicle_at_a_time(model) -> None:
    fleet = synthetic_fleet(GRAPH, 60, period_s=900)
    world = make_world(GRAPH, fleet, GRID, GRAPH.seconds, model, window_s=200)
    users, seconds = slow_world(fleet, model, 200)
    assert world.users == pytest.approx(users[: world.windows])
    assert not users[world.windows :].any()
    free = float(GRAPH.durations(GRAPH.routes(fleet.origin, fleet.destination)).sum())
    assert world.slowdown == pytest.approx(seconds / free)
    assert (world.slowdown > 1.02) == (model != StepDelay(1e9, 1))
    # Vehicle-seconds are neither lost nor made.
    assert world.users.sum() * 200 == pytest.approx(seconds)


def test_ways_that_are_known_are_not_sought_again() -> None:
    fleet = synthetic_fleet(GRAPH, 60)
    routes = GRAPH.routes(fleet.origin, fleet.destination)
    made = [
        make_world(GRAPH, fleet, GRID, GRAPH.seconds, VolumeDelay(2), routes=given)
        for given in (None, routes)
    ]
    assert np.array_equal(made[0].users, made[1].users)


def test_the_users_of_a_window_are_felt_in_the_next() -> None:
    world = make_world(GRAPH, synthetic_fleet(GRAPH, 200), GRID, GRAPH.seconds, VolumeDelay(2))
    assert not world.delays_in(0).any()
    assert np.array_equal(world.delays_in(1), world.delays(world.users[0]))
    assert np.array_equal(world.delays_in(world.windows), world.delays(world.users[-1]))
    assert not world.delays_in(world.windows + 1).any()


def test_a_delay_is_that_of_the_cell_where_the_road_ends() -> None:
    fleet = synthetic_fleet(GRAPH, 10)
    world = make_world(GRAPH, fleet, GRID, GRAPH.seconds, StepDelay(threshold=5, seconds=9))
    users = np.zeros(GRID.size)
    users[7] = 6
    assert np.array_equal(world.delays(users) > 0, world.cell[GRAPH.head] == 7)
    assert set(world.delays(users).tolist()) == {0.0, 9.0}


def test_junctions_in_no_site_of_a_polygon_count_for_the_nearest() -> None:
    region = mv.Region.from_polygon(
        {"type": "Polygon", "coordinates": [[[-40.08, 40.0], [-39.92, 40.0], [-40.0, 40.12], [-40.08, 40.0]]]}
    )
    graph = GRAPH.within(region).largest_component()
    grid = mv.Grid(region, rows=5, columns=5)
    world = make_world(graph, synthetic_fleet(graph, 20), grid, graph.seconds, StepDelay())
    located = grid.locate(graph.lon, graph.lat)
    assert (located < 0).any(), "a case without such junctions would show nothing"
    assert (world.cell[located >= 0] == located[located >= 0]).all()
    assert (world.cell >= 0).all()


def test_roads_beyond_the_region_are_refused() -> None:
    small = mv.Grid(mv.Region.from_bbox(-40.05, 40.02, -39.98, 40.08), rows=2, columns=2)
    with pytest.raises(InputError, match="junctions lie outside"):
        make_world(GRAPH, synthetic_fleet(GRAPH, 10), small, GRAPH.seconds, StepDelay())


@pytest.mark.parametrize("window", [0, -1, np.nan, np.inf])
def test_a_window_needs_a_length(window: float) -> None:
    fleet = Fleet(np.array([0]), np.array([5]), np.array([0.0]))
    with pytest.raises(ParameterError, match="window_s"):
        make_world(GRAPH, fleet, GRID, GRAPH.seconds, StepDelay(), window_s=window)
