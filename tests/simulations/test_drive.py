"""Driving: against one vehicle at a time, and the budget of every trip whatever happens on the way."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil.navigation.congestion import VolumeDelay
from mapveil.synthetic import SEA_BOX
from mapveil_client.errors import BudgetExceeded, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from simulations.traffic.drive import Drives, ExactTraffic, NoTraffic, PrivateTraffic, drive
from simulations.traffic.fleet import Fleet, synthetic_fleet
from simulations.traffic.location_updates import LocationUpdates, UpdateRule
from simulations.traffic.quality import route_quality
from simulations.traffic.synthetic_roads import synthetic_roads
from simulations.traffic.traffic_server import TrafficServer
from simulations.traffic.world import World, make_world

GRAPH = synthetic_roads(spacing_m=700)
GRID = mv.Quadtree(mv.Region.from_bbox(*SEA_BOX), depth=3)


@pytest.fixture(scope="module")
def rush() -> tuple[World, Fleet]:
    fleet = synthetic_fleet(GRAPH, 500, period_s=1500, seed=4)
    return make_world(GRAPH, fleet, GRID, GRAPH.seconds, VolumeDelay(7), window_s=200), fleet


def private(
    world: World,
    fleet: Fleet,
    most: int,
    *,
    epsilon: object = 2,
    queries: int | None = None,
    reporting="late",
    estimator: str = "norm-clip",
) -> PrivateTraffic:
    mechanism = SubsetSelection(epsilon=epsilon, estimator=estimator)
    randomizer = mechanism.on(Domain(world.tiling))
    sent = 1 if reporting == "probe" else most
    server = TrafficServer(mechanism, randomizer, sent, window_s=world.window_s, seeded=True)
    phones = LocationUpdates(randomizer, sent, fleet.size)
    return PrivateTraffic(server, phones, Randomness(3), reporting=reporting, queries=queries)


def drive_alone(world: World, fleet: Fleet, vehicle: int, rule: UpdateRule | None):
    """One vehicle under an exact map, step by step."""
    graph, goal = world.graph, int(fleet.destination[vehicle])
    way = graph.route(int(fleet.origin[vehicle]), goal, world.predicted).tolist()
    expected, clock, late, asked = world.predicted, float(fleet.departure[vehicle]), 0.0, 0
    passed = [way.pop(0)]
    while passed[-1] != goal:
        window = int(clock // world.window_s)
        if rule is not None and late > rule.theta_s and asked < rule.most:
            asked, late = asked + 1, 0.0
            if window > 0:
                expected = world.predicted + world.delays_in(window)
                way = graph.route(passed[-1], goal, expected).tolist()[1:]
        real = world.delays_in(window)
        road = int(graph.road_between(passed[-1], way[0]))
        took = float(world.predicted[road] + real[road])
        clock, late = clock + took, late + took - float(expected[road])
        passed.append(way.pop(0))
    return passed, clock - float(fleet.departure[vehicle]), asked


@pytest.mark.parametrize("rule", [None, UpdateRule(40.0, 2), UpdateRule(5.0, 9)])
def test_all_vehicles_at_once_are_each_vehicle_alone(rush, rule: UpdateRule | None) -> None:
    world, fleet = rush
    traffic: NoTraffic = NoTraffic() if rule is None else ExactTraffic()
    made = drive(world, fleet, traffic, rule or UpdateRule(1.0, 1))
    for vehicle in range(0, fleet.size, 7):
        nodes, seconds, asked = drive_alone(world, fleet, vehicle, rule)
        assert made.routes.nodes(vehicle).tolist() == nodes
        assert made.seconds[vehicle] == pytest.approx(seconds)
        assert made.asked[vehicle] == asked
    assert rule is None or made.asked.sum() > 100, "a world where nobody asks would show nothing"


def arrived(fleet: Fleet, drives: Drives) -> bool:
    first, last = drives.routes.start[:-1], drives.routes.start[1:] - 1
    roads = GRAPH.road_between(drives.routes.node[:-1], drives.routes.node[1:])
    inner = np.ones(roads.size, dtype=bool)
    inner[drives.routes.start[1:-1] - 1] = False
    return bool(
        (drives.routes.node[first] == fleet.origin).all()
        and (drives.routes.node[last] == fleet.destination).all()
        and (roads[inner] >= 0).all()
    )


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("theta", [1.0, 60.0])
def test_no_trip_sends_more_than_lambda_locations_also_after_rerouting(rush, most: int, theta: float) -> None:
    world, fleet = rush
    traffic = private(world, fleet, most, epsilon="0.7")
    made = drive(world, fleet, traffic, UpdateRule(theta, most))
    assert arrived(fleet, made)
    assert made.updates.max() <= most
    assert np.array_equal(made.updates, made.asked)
    assert np.array_equal(made.updates, traffic.updates.sent), "what is told is what was sent"
    assert traffic.updates.spent <= most * Fraction(7, 10)
    # The server has as many reports as were sent, and every map promises the whole of lambda epsilon.
    assert sum(traffic.server.reports(window) for window in range(99)) == made.updates.sum()
    assert all(each.guarantee.epsilon == most * Fraction(7, 10) for each in traffic.maps.values())
    if most == 5 and theta == 1.0:
        rerouted = drive(world, fleet, NoTraffic(), UpdateRule(1.0, 1)).routes.node
        assert made.updates.max() == most
        assert made.routes.node.tolist() != rerouted.tolist()


def test_devices_that_ask_for_more_than_their_budget_are_refused(rush) -> None:
    world, fleet = rush
    traffic = private(world, fleet, most=1)
    with pytest.raises(BudgetExceeded, match="its 1 location updates of epsilon 2 each"):
        drive(world, fleet, traffic, UpdateRule(1.0, 3))


def test_every_trip_probes_once_at_most_whenever_it_asks(rush) -> None:
    world, fleet = rush
    traffic = private(world, fleet, 4, reporting="probe")
    made = drive(world, fleet, traffic, UpdateRule(5.0, 4), seed=9)
    assert made.updates.max() == 1
    assert made.updates.mean() > 0.8, "a moment after the last junction but one is not reported at"
    assert made.asked.max() == 4
    assert traffic.updates.spent == 2
    # Probes come whenever many drive, not only where somebody is late.
    assert all(traffic.server.reports(window) > 0 for window in range(10))


@pytest.mark.parametrize("reporting", ["late", "probe"])
def test_when_a_probe_is_sent_has_nothing_to_do_with_the_traffic(rush, reporting: str) -> None:
    world, fleet = rush
    moments = []
    for capacity in (7, 1e9):
        other = replace(world, congestion=VolumeDelay(capacity))
        made = drive(other, fleet, private(other, fleet, 3, reporting=reporting), UpdateRule(30.0, 3))
        moments.append(made.updates)
    if reporting == "probe":
        # A way that is longer in time passes its moment all the sooner: nobody who probed stops doing so.
        assert (moments[0] >= moments[1]).all()
        assert moments[1].mean() > 0.8
    else:
        assert moments[1].sum() == 0
        assert moments[0].sum() > 100


def test_fetching_all_blocks_privately_changes_no_route(rush) -> None:
    world, fleet = rush
    few = Fleet(fleet.origin[:60], fleet.destination[:60], fleet.departure[:60])
    rule = UpdateRule(5.0, 2)
    openly = drive(world, few, private(world, few, 2), rule)
    fetched = drive(world, few, private(world, few, 2, queries=4), rule)  # 64 cells in blocks of 16
    assert openly.asked.sum() > 20
    assert fetched.routes.node.tolist() == openly.routes.node.tolist()
    assert fetched.seconds == pytest.approx(openly.seconds, rel=1e-6)


def test_a_large_epsilon_comes_near_the_exact_map_and_a_tiny_one_to_none() -> None:
    graph, rule = synthetic_roads(spacing_m=1000), UpdateRule(10.0, 3)
    fleet = synthetic_fleet(graph, 10_000, period_s=3600, seed=4)
    world = make_world(graph, fleet, GRID, graph.seconds, VolumeDelay(75), window_s=300)
    exact = drive(world, fleet, ExactTraffic(), rule)
    none = route_quality(exact, drive(world, fleet, NoTraffic(), rule), 1.0)
    assert none.minutes_longer > 1
    for epsilon, least, most in ((8, 0, 0.8), ("0.01", 0.9, 1.1)):
        traffic = private(world, fleet, 3, epsilon=epsilon, reporting="probe", estimator="multiscale")
        made = route_quality(exact, drive(world, fleet, traffic, rule), 1.0)
        assert least <= made.minutes_longer / none.minutes_longer <= most
        assert least <= made.time_deviation_min / none.time_deviation_min <= most


@settings(max_examples=10)
@given(st.integers(0, 2**20), st.floats(0.5, 200), st.integers(1, 4))
def test_any_rush_hour_keeps_its_budgets(seed: int, theta: float, most: int) -> None:
    graph = synthetic_roads(spacing_m=2000)
    fleet = synthetic_fleet(graph, 40, period_s=300, seed=seed)
    world = make_world(graph, fleet, GRID, graph.seconds, VolumeDelay(1), window_s=300)
    traffic = private(world, fleet, most)
    made = drive(world, fleet, traffic, UpdateRule(theta, most))
    assert made.updates.max() <= most
    assert traffic.updates.spent <= 2 * most
    assert (made.routes.node[made.routes.start[1:] - 1] == fleet.destination).all()


def test_progress_is_told_to_its_end_and_a_third_way_of_reporting_refused(rush) -> None:
    world, fleet = rush
    told: list[float] = []
    drive(world, fleet, NoTraffic(), UpdateRule(1.0, 1), progress=told.append)
    assert told[-1] == 1
    assert told == sorted(told)
    with pytest.raises(ParameterError, match="late or probe"):
        private(world, fleet, 1, reporting="never")
