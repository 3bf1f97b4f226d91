"""One report of a trip: nearer to the truth than two reports, and within the claim."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.trip_reports import TripReports
from mapveil.analysis.trips import Trips
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil_client.epsilon import power
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import Reports
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
    assert flows.unbiased is not None
    assert abs(flows.unbiased[0] - 9000) < 6 * flows.deviation[0]
    assert flows.all_trips == pytest.approx(9900)


@pytest.mark.parametrize("share", [0.4, 1.0])
@pytest.mark.parametrize("kind", [GeneralizedRandomizedResponse, HadamardResponse])
def test_unbiased_estimates_stray_as_much_as_is_said(kind: type[LocalMechanism], share: float) -> None:
    """Estimates of the same trips, reported anew in each of many runs."""
    runs, users = 4000, 500
    channel = TripReports(mechanism=kind(epsilon=2), share=share).on(Domain(mv.Quadtree(REGION, depth=1)))
    joint = np.random.default_rng(3).dirichlet(np.full(16, 0.4))
    pair = np.random.default_rng(4).choice(16, users, p=joint)
    true = np.bincount(pair, minlength=16)
    values = channel.randomize(*np.divmod(np.tile(pair, runs), 4), Randomness(7)).values.reshape(runs, users)
    scores = np.empty((runs, 16))
    for run in range(runs):
        tally = channel.tallies(Reports(values[run]))[0]
        said = channel.deviation(true.reshape(4, 4) / users, users, tally.reports).ravel()
        scores[run] = (users * channel.randomizers[0].invert(tally) - true) / said
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=5 / np.sqrt(runs))
    # A sample variance of so many runs is within 15 % (six of its deviations).
    np.testing.assert_allclose(scores.var(axis=0), 1, atol=0.15)


@pytest.mark.parametrize(
    ("estimator", "users", "draws"), [(None, 2000, 60), ("pair", 2000, 60), ("joint", 20_000, 40)]
)
def test_as_many_flows_are_falsely_told_from_zero_as_is_said(
    estimator: Literal["pair", "joint"] | None, users: int, draws: int
) -> None:
    """Of 256 pairs 16 have trips: nearly all others' hypotheses hold, and the rate is nearly its bound of 5 %."""
    centres, cells = ZONES.centres(), np.arange(16)
    there = (5 * cells + 3) % 16
    start = np.resize(cells, users)
    end = there[start]
    trips = Trips(
        np.arange(users), centres.lon[start], centres.lat[start], centres.lon[end], centres.lat[end]
    )
    rates, told = [], 0
    for seed in range(draws):
        flows = mv.flows(trips, ZONES, epsilon=4, estimator=estimator, rng=seed, account=None)
        kept = flows.told_from_zero()
        assert kept is not None
        assert f"{kept.sum()} of {flows.size} listed flows are told from zero" in flows.notes[-1]
        false = kept & (flows.destination != there[flows.origin])
        rates.append(false.sum() / max(kept.sum(), 1))
        told += int((kept & ~false).sum())
    assert told > 0.95 * 16 * draws
    # Means of so many draws have a standard error of at most 0.8 %; four times the rate is 19 %.
    assert 0.015 < np.mean(rates) < 0.075


@pytest.mark.parametrize("kind", [GeneralizedRandomizedResponse, HadamardResponse])
def test_margins_weigh_both_kinds_of_reports_by_their_precision(kind: type[LocalMechanism]) -> None:
    channel = TripReports(mechanism=kind(epsilon=1), share=0.4).on(Domain(mv.Quadtree(REGION, depth=1)))
    tallies = [Tally(np.zeros(1, dtype=np.int64), reports) for reports in (400, 200, 300)]

    def exact(randomizer: SymbolRandomizer, sums: np.ndarray, reports: int) -> np.ndarray:
        """Reciprocal variances of sums of estimates, of users that are everywhere."""
        matrix, one = randomizer.transition_matrix(), np.eye(randomizer.symbols, dtype=np.int64)
        inverse = sums @ np.array([randomizer.invert(Tally(each, 1)) for each in one]).T
        variance = (inverse**2 @ matrix.T - (inverse @ matrix.T) ** 2).mean(axis=1)
        return reports / variance

    pair, origin, destination = channel.randomizers
    of_pairs = np.array(
        [
            exact(pair, np.kron(np.eye(4), np.ones(4)), 400).mean(),
            exact(pair, np.kron(np.ones(4), np.eye(4)), 400).mean(),
        ]
    )
    of_ends = np.array([exact(origin, np.eye(4), 200).mean(), exact(destination, np.eye(4), 300).mean()])
    weights = channel.margin_precision(tallies)
    found, wanted = weights[:, 0] / weights.sum(axis=1), of_pairs / (of_pairs + of_ends)
    np.testing.assert_allclose(found, wanted, atol=0.05)
    assert wanted.max() < 0.4  # with a pair's own variance as the weight it would be more than a half


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
