"""The server's half: the map of a window, its promise, and that it sees reports only."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.privacy.claim import Assumes, ContributionBound, Norm
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness
from simulations.traffic.traffic_server import TrafficServer, update_guarantee

REGION = mv.Region.from_bbox(-40.08, 40.0, -39.92, 40.12)
DOMAIN = Domain(mv.Grid(REGION, rows=4, columns=4))
MECHANISM = GeneralizedRandomizedResponse(epsilon=4)
RANDOMIZER = MECHANISM.on(DOMAIN)


def server_of(**more) -> TrafficServer:
    return TrafficServer(MECHANISM, RANDOMIZER, 3, **more)


def reports_of(cells: np.ndarray, seed: int = 1) -> Reports:
    return RANDOMIZER.randomize(cells, Randomness(seed))


def test_the_map_of_a_window_finds_where_people_are() -> None:
    server = server_of()
    truth = np.zeros(16)
    truth[[2, 9]] = 6000, 2000
    cells = np.repeat(np.arange(16), truth.astype(int))
    server.receive(4, reports_of(cells))
    made = server.map(4, active=16_000)
    assert made is not None
    assert made.values.sum() == pytest.approx(16_000, rel=0.02)
    assert made.values == pytest.approx(2 * truth, abs=600)


def test_windows_are_apart_and_batches_add_up() -> None:
    server, whole = server_of(), server_of()
    first, second = reports_of(np.full(300, 3), 1), reports_of(np.full(200, 3), 2)
    server.receive(0, first)
    server.receive(0, second)
    server.receive(1, second)
    whole.receive(0, Reports(np.concatenate([first.values, second.values])))
    assert (server.reports(0), server.reports(1), server.reports(2)) == (500, 200, 0)
    together, at_once = server.map(0), whole.map(0)
    assert together is not None
    assert at_once is not None
    assert np.array_equal(together.values, at_once.values)
    assert server.map(2) is None


def test_the_promise_is_lambda_epsilon_and_every_map_carries_it() -> None:
    server = server_of(window_s=120)
    server.receive(0, reports_of(np.zeros(50, dtype=int)))
    made = server.map(0, active=70)
    assert made is not None
    promise = made.guarantee
    assert promise.epsilon == 12
    assert promise.model == "local"
    assert [share.epsilon for share in promise.shares] == [Fraction(4)] * 3
    assert promise.shares[0].purpose == "location 1 of a trip"
    assert {Assumes.TIMING_PUBLIC(), Assumes.ONE_TRIP()} <= set(promise.assumptions)
    assert made.notes == ("from 50 randomized locations in 120 s, scaled to 70 active users",)
    assert made.parameters["window"] == 0


def test_a_probe_promises_one_epsilon_and_hides_no_asking() -> None:
    promise = update_guarantee(replace(MECHANISM, epsilon=Fraction(1, 3)), 1, timed=False)
    assert promise.epsilon == Fraction(1, 3)
    assert promise.bound == ContributionBound(Norm.REPORTS, Fraction(1))
    assert Assumes.TRIPS_PUBLIC() in promise.assumptions
    assert Assumes.TIMING_PUBLIC() not in promise.assumptions


def test_seeded_reports_are_marked() -> None:
    server = server_of(seeded=True)
    server.receive(0, reports_of(np.zeros(5, dtype=int)))
    made = server.map(0)
    assert made is not None
    assert made.guarantee.seeded


def test_foreign_reports_are_refused_and_change_nothing() -> None:
    server = server_of()
    server.receive(0, reports_of(np.zeros(5, dtype=int)))
    with pytest.raises(InputError):
        server.receive(0, Reports(np.array([16])))
    with pytest.raises(InputError):
        server.receive(0, Reports(np.zeros((3, 2), dtype=np.uint8)))
    assert server.reports(0) == 5
