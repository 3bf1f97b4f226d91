"""One report of a trip: nearer to the truth than two reports, and within the claim."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.trip_reports import TripReports
from mapveil.analysis.trips import Trips
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil_client.epsilon import power
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from tests.mechanisms.test_flow_blocks import REGION, ZONES, hub_trips, l1


@pytest.mark.parametrize("epsilon", [1, 2])
def test_is_nearer_than_reports_of_pairs_or_of_both_ends(epsilon: int) -> None:
    trips = hub_trips(6000)
    found = {
        estimator: np.mean(
            [
                l1(mv.flows(trips, ZONES, epsilon=epsilon, estimator=estimator, rng=seed), trips)
                for seed in (1, 2)
            ]
        )
        for estimator in ("mixed", "pair", "joint")
    }
    assert found["mixed"] < found["pair"] < found["joint"]


def test_one_report_has_the_whole_epsilon() -> None:
    """By the whole law of a report of every trip: which of the three it is about tells nothing."""
    zones = Domain(mv.Quadtree(REGION, depth=1))
    mechanism = TripReports(
        mechanism=HadamardResponse(epsilon=1), ends=GeneralizedRandomizedResponse(epsilon=1)
    )
    channel = mechanism.on(zones)
    trips = np.eye(16).reshape(16, 4, 4)
    laws = np.array([channel.forward(trip)[:, 0] for trip in trips])
    np.testing.assert_allclose(laws.sum(axis=1), 1)
    assert np.exp(0.98) < (laws.max(axis=0) / laws.min(axis=0)).max() <= np.exp(1) * (1 + 1e-12)
    for each in channel.randomizers:
        assert power(Fraction(9, 10)) < each.worst_ratio() <= power(Fraction(1))
    promise = mechanism.guarantee()
    assert [share.epsilon for share in promise.shares] == [1]
    assert promise.bound is not None
    assert promise.bound.value == 1


def test_reports_follow_the_law_and_a_product_with_it_has_its_adjoint() -> None:
    zones = Domain(mv.Quadtree(REGION, depth=1))
    channel = TripReports(mechanism=GeneralizedRandomizedResponse(epsilon=2), share=0.3).on(zones)
    runs, trip = 200_000, np.zeros((4, 4))
    trip[1, 2] = 1.0
    reports = channel.randomize(np.full(runs, 1), np.full(runs, 2), Randomness(4))
    law = channel.forward(trip)[:, 0]
    seen = np.bincount(reports.values, minlength=channel.symbols)
    degrees = channel.symbols - 1
    assert abs(((seen - runs * law) ** 2 / (runs * law)).sum() - degrees) < 6.5 * np.sqrt(2 * degrees)
    assert [each.reports / runs for each in channel.tallies(reports)] == pytest.approx(
        [0.3, 0.35, 0.35], abs=0.01
    )
    generator = np.random.default_rng(1)
    joint, ratio = generator.random((4, 4)), generator.random((channel.symbols, 1))
    assert (channel.forward(joint) * ratio).sum() == pytest.approx((joint * channel.backward(ratio)).sum())


@pytest.mark.parametrize("estimator", ["pair", "mixed"])
def test_flows_between_cells_in_any_order_come_out_as_themselves(estimator: str) -> None:
    places = np.random.default_rng(3).uniform([-8.69, 41.11], [-8.53, 41.21], (9, 2))
    tiling = mv.Places(places[:, 0], places[:, 1], REGION)
    start, end = np.r_[np.full(9000, 2), np.arange(900) % 9], np.r_[np.full(9000, 7), np.arange(900) % 9]
    trips = Trips(np.arange(9900), *places[start].T, *places[end].T)
    flows = mv.flows(trips, tiling, epsilon=2, estimator=estimator, rng=1)
    assert (flows.origin[0], flows.destination[0]) == (2, 7)
    assert flows.trips[0] == pytest.approx(9000, rel=0.1)
    assert flows.deviation is not None
    # sqrt(9900) 2 e / (e^2 - 1) = 85 for an ideal response; Hadamard matrices have a few more rows. At
    # epsilon 2 a mixed design lets half of the clients report a pair.
    fewer = 1 if estimator == "pair" else 2**0.5
    assert 70 < flows.deviation[0] / fewer < 140
    assert flows.all_trips == pytest.approx(9900)


@pytest.mark.parametrize("users", [1, 2, 5])
def test_a_handful_of_reports_is_a_map_too(users: int) -> None:
    for seed in range(5):
        flows = mv.flows(hub_trips(users), ZONES, epsilon=1, rng=seed)
        assert flows.all_trips == pytest.approx(users)
        assert np.isfinite(flows.trips).all()
        assert flows.deviation is None or np.isfinite(flows.deviation).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ParameterError, match="unit user"):
        mv.flows(hub_trips(9), ZONES, epsilon=1, estimator="pair", unit="trip", account=None)
    with pytest.raises(ParameterError, match="grr or hr"):
        mv.flows(hub_trips(9), ZONES, epsilon=1, estimator="pair", method="olh", account=None)
    with pytest.raises(ParameterError, match="at most 64"):
        mv.flows(hub_trips(9), mv.Quadtree(REGION, depth=4), epsilon=1, estimator="pair", account=None)
    with pytest.raises(ParameterError, match="share must be from"):
        TripReports(mechanism=HadamardResponse(epsilon=1), share=0.0)
    with pytest.raises(ParameterError, match="same epsilon"):
        TripReports(mechanism=HadamardResponse(epsilon=1), ends=HadamardResponse(epsilon=2))
