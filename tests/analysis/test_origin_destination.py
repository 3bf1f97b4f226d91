"""Flows of trips whose ends are randomized: the promise, the estimate, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis.origin_destination import FLOW_ESTIMATORS, OriginDestination, PairReports
from mapveil.analysis.quality import flow_quality
from mapveil.analysis.trips import Trips, cells_of_trips
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
GRID = mv.Grid(REGION, rows=3, columns=4)
DOMAIN = Domain(GRID)
GRR = GeneralizedRandomizedResponse(epsilon=4)


def commuters(count: int, seed: int = 0, users: int | None = None) -> Trips:
    """Trips from every cell mostly to one other."""
    generator = np.random.default_rng(seed)
    target = np.random.default_rng(9).permutation(12)
    start = generator.choice(12, count, p=np.arange(1, 13) / 78)
    end = np.where(generator.random(count) < 0.8, target[start], generator.integers(0, 12, count))
    centres = GRID.centres()
    people = np.arange(count) if users is None else np.arange(count) % users
    return Trips(people, centres.lon[start], centres.lat[start], centres.lon[end], centres.lat[end])


@pytest.mark.parametrize(
    "kind", [GeneralizedRandomizedResponse, StaircaseResponse, HadamardResponse, SubsetSelection]
)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2), Fraction(5)])
def test_a_pair_of_reports_keeps_the_whole_epsilon(kind, epsilon: Fraction) -> None:
    estimator = "lasso" if kind is SubsetSelection else "joint"
    randomizer = OriginDestination(mechanism=kind(epsilon=epsilon), estimator=estimator).on(DOMAIN)
    # Both ends are independent given the trip, so that the worst ratio of a pair is the square of one's.
    worst = 2 * math.log(float(randomizer.worst_ratio()))
    assert worst <= float(epsilon) + 1e-12
    assert worst > float(epsilon) * 0.98


def test_the_law_of_pairs_is_that_of_both_ends() -> None:
    asked = OriginDestination(mechanism=GeneralizedRandomizedResponse(epsilon=2))
    randomizer, runs = asked.on(DOMAIN), 200_000
    made = asked.randomize(randomizer, np.full(runs, 3), np.full(runs, 7), Randomness(1))
    law = randomizer.transition_matrix()
    expected = runs * np.outer(law[3], law[7])
    seen = np.zeros((12, 12))
    np.add.at(seen, (made.origin.values, made.destination.values), 1)
    statistic = float(((seen - expected) ** 2 / expected).sum())
    assert abs(statistic - 143) < 6.5 * math.sqrt(2 * 143)
    # With the whole epsilon for each end instead of half of it, it would not pass.
    wrong = GRR.on(DOMAIN).transition_matrix()
    other = runs * np.outer(wrong[3], wrong[7])
    assert float(((seen - other) ** 2 / other).sum()) > 10_000


@pytest.mark.parametrize("estimator", FLOW_ESTIMATORS)
def test_a_release_is_a_whole_map_of_flows(estimator: str) -> None:
    told: list[str] = []
    asked = OriginDestination(mechanism=GRR, estimator=estimator)
    flows = asked.release(commuters(3000), GRID, rng=1, progress=lambda step, done: told.append(step))
    assert flows.all_trips == pytest.approx(3000)
    assert (flows.trips >= 0).all()
    assert flows.guarantee.epsilon == 4
    assert flows.guarantee.seeded
    assert [share.epsilon for share in flows.guarantee.shares] == [2, 2]
    assert "place" not in flows.parameters
    assert flows.parameters["flow_estimator"] == estimator
    assert flows.deviation is not None
    assert any("listed flows are told from zero" in note for note in flows.notes)
    assert {"ask the devices", "error bars"} <= set(told)


def test_the_joint_estimate_keeps_the_pairs_and_the_others_cannot() -> None:
    trips = commuters(40_000, 2)
    ends = cells_of_trips(trips, DOMAIN, "drop", Randomness(0), one_each=False)
    l1 = {
        estimator: flow_quality(
            *ends, OriginDestination(mechanism=GRR, estimator=estimator).release(trips, GRID, rng=2)
        ).l1
        for estimator in FLOW_ESTIMATORS
    }
    assert l1["joint"] < 0.3
    assert l1["lasso"] > 1
    assert l1["independent"] > 1


def test_public_candidates_help_the_lasso() -> None:
    trips = commuters(40_000, 3)
    ends = cells_of_trips(trips, DOMAIN, "drop", Randomness(0), one_each=False)
    target = np.random.default_rng(9).permutation(12)
    candidates = (np.arange(12), target)
    asked = OriginDestination(mechanism=GRR, estimator="lasso")
    free, told = (asked.release(trips, GRID, candidates=given, rng=3) for given in (None, candidates))
    assert flow_quality(*ends, told).l1 < flow_quality(*ends, free).l1 / 2
    assert set(zip(told.origin.tolist(), told.destination.tolist(), strict=True)) <= set(
        zip(*(part.tolist() for part in candidates), strict=True)
    )


def test_a_user_reports_one_trip_however_many_they_have() -> None:
    trips = commuters(3000, users=500)
    by_user = OriginDestination(mechanism=GRR).release(trips, GRID, rng=4)
    by_trip = OriginDestination(mechanism=GRR, unit="trip").release(trips, GRID, rng=4)
    assert by_user.all_trips == pytest.approx(500)
    assert by_trip.all_trips == pytest.approx(3000)
    assert (by_user.guarantee.unit, by_trip.guarantee.unit) == ("user", "trip")
    assert Assumes.COMPOSES() in by_trip.guarantee.assumptions
    assert by_trip.guarantee.simulated


@given(most=st.integers(1, 150), least=st.floats(0, 30))
@settings(max_examples=10, deadline=None)
def test_what_is_not_listed_is_counted_as_unlisted(most: int, least: float) -> None:
    trips = commuters(600)
    whole = OriginDestination(mechanism=GRR, most=144).release(trips, GRID, rng=5)
    part = OriginDestination(mechanism=GRR, most=most, least=least).release(trips, GRID, rng=5)
    assert part.size == min(most, int((whole.trips >= max(least, 1e-9)).sum()))
    np.testing.assert_allclose(part.trips, whole.trips[: part.size])
    assert part.all_trips == pytest.approx(whole.all_trips)


def test_a_seed_repeats_and_without_one_runs_differ() -> None:
    trips = commuters(500)
    asked = OriginDestination(mechanism=GRR)
    one, two = (asked.release(trips, GRID, rng=6) for _ in range(2))
    np.testing.assert_array_equal(one.trips, two.trips)
    free = [asked.release(trips, GRID, account=None) for _ in range(2)]
    assert not free[0].guarantee.seeded
    assert free[0].trips.tolist() != free[1].trips.tolist()


def test_scattered_places_keep_their_numbers() -> None:
    # Codes and sites are in different orders: one busy pair must come out as itself.
    place = np.random.default_rng(3).uniform([-8.69, 41.11], [-8.53, 41.21], (9, 2))
    tiling = mv.Places(place[:, 0], place[:, 1], REGION)
    lon, lat = place.T
    start, end = np.r_[np.full(9000, 2), np.arange(1000) % 9], np.r_[np.full(9000, 7), np.arange(1000) % 9]
    trips = Trips(np.arange(10_000), lon[start], lat[start], lon[end], lat[end])
    for kind in (StaircaseResponse, HadamardResponse, GeneralizedRandomizedResponse):
        flows = OriginDestination(mechanism=kind(epsilon=6)).release(trips, tiling, rng=7)
        assert (flows.origin[0], flows.destination[0]) == (2, 7)
        assert flows.trips[0] == pytest.approx(9000, rel=0.1)


def test_ends_outside_are_told_apart_by_option() -> None:
    trips = commuters(300)
    away = Trips(
        trips.users, trips.origin_lon, trips.origin_lat + 5, trips.destination_lon, trips.destination_lat
    )
    for estimator in FLOW_ESTIMATORS:
        none = OriginDestination(mechanism=GRR, estimator=estimator).release(away, GRID, account=None)
        assert (none.size, none.all_trips, none.notes[0]) == (0, 0, "0 users reported one trip each")
    with pytest.raises(InputError, match="outside"):
        OriginDestination(mechanism=GeneralizedRandomizedResponse(epsilon=4, outside="refuse")).release(
            away, GRID, account=None
        )
    nearest = GeneralizedRandomizedResponse(epsilon=4, outside="nearest")
    flows = OriginDestination(mechanism=nearest).release(away, GRID, rng=8)
    assert flows.all_trips == pytest.approx(300)
    # The northern row is nearest to all of them.
    assert flows.trips[GRID.centres().lat[flows.origin] > 41.18].sum() > 200
    assert Assumes.PARTICIPATION_PUBLIC() not in flows.guarantee.assumptions


@pytest.mark.parametrize(
    "changed",
    [
        {"estimator": "best"},
        {"unit": "household"},
        {"steps": -1},
        {"penalty": 0.0},
        {"penalty": 1.5},
        {"most": 0},
        {"least": -1.0},
        {"least": float("nan")},
    ],
)
def test_parameters_out_of_range_are_refused(changed: dict) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(changed))} must be .*"):
        OriginDestination(mechanism=GRR, **changed)


@pytest.mark.parametrize("epsilon", [0, -1, "nan", "inf"])
def test_no_epsilon_is_refused(epsilon: object) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        OriginDestination(mechanism=GeneralizedRandomizedResponse(epsilon=epsilon))


def test_domains_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="two or more"):
        OriginDestination(mechanism=GRR).release(commuters(10), mv.Grid(REGION, rows=1, columns=1))
    large = mv.Grid(REGION, rows=70, columns=70)
    for estimator in FLOW_ESTIMATORS:
        with pytest.raises(ParameterError, match="at most 4096"):
            OriginDestination(mechanism=GRR, estimator=estimator).release(commuters(10), large)
    with pytest.raises(ParameterError, match="also take sets of sites"):
        OriginDestination(mechanism=SubsetSelection(epsilon=4)).release(commuters(10), GRID)


def test_reports_that_do_not_fit_are_refused() -> None:
    asked = OriginDestination(mechanism=GRR)
    randomizer = asked.on(DOMAIN)
    ten, nine = (Reports(np.zeros(count, dtype=np.int64)) for count in (10, 9))
    with pytest.raises(InputError, match="one of each"):
        asked.estimate(randomizer, PairReports(ten, nine), Randomness(0))
    foreign = Reports(np.full(10, 99))
    with pytest.raises(InputError, match="must be a symbol from 0 to 11"):
        asked.estimate(randomizer, PairReports(ten, foreign), Randomness(0))
    for candidates in (np.ones((3, 3), bool), np.zeros((12, 12), bool)):
        with pytest.raises(ParameterError, match="candidates"):
            asked.estimate(randomizer, PairReports(ten, ten), Randomness(0), candidates=candidates)


def test_no_message_or_repr_tells_a_place() -> None:
    trips = commuters(5)
    assert "41." not in repr(trips)
    with pytest.raises(InputError) as refused:
        OriginDestination(mechanism=GRR).release(trips, GRID, candidates=(np.array([50]), np.array([0])))
    assert "50" not in str(refused.value)
