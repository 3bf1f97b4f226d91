"""Reports of pairs: nearer to the truth than two reports where the rule says so, and within the claim."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.pair_reports import PairReports, pair_is_better
from mapveil.analysis.trips import Trips
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil_client.epsilon import power
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from tests.mechanisms.test_flow_blocks import REGION, ZONES, hub_trips, l1


@pytest.mark.parametrize("epsilon", [1, 2])
def test_is_nearer_than_reports_of_the_ends_where_the_rule_takes_it(epsilon: int) -> None:
    trips = hub_trips(6000)
    found = {
        estimator: np.mean(
            [
                l1(mv.flows(trips, ZONES, epsilon=epsilon, estimator=estimator, rng=seed), trips)
                for seed in (1, 2)
            ]
        )
        for estimator in ("pair", "joint")
    }
    assert pair_is_better(ZONES.size)
    assert found["pair"] < found["joint"]


def test_one_report_has_the_whole_epsilon() -> None:
    mechanism = PairReports(mechanism=HadamardResponse(epsilon=1))
    randomizer = mechanism.on(Domain(ZONES))
    assert randomizer.size == ZONES.size**2
    assert power(Fraction(9, 10)) < randomizer.worst_ratio() <= power(Fraction(1))
    promise = mechanism.guarantee()
    assert [share.epsilon for share in promise.shares] == [1]
    assert promise.bound is not None
    assert promise.bound.value == 1


def test_flows_between_cells_in_any_order_come_out_as_themselves() -> None:
    places = np.random.default_rng(3).uniform([-8.69, 41.11], [-8.53, 41.21], (9, 2))
    tiling = mv.Places(places[:, 0], places[:, 1], REGION)
    start, end = np.r_[np.full(9000, 2), np.arange(900) % 9], np.r_[np.full(9000, 7), np.arange(900) % 9]
    trips = Trips(np.arange(9900), *places[start].T, *places[end].T)
    flows = mv.flows(trips, tiling, epsilon=2, estimator="pair", rng=1)
    assert (flows.origin[0], flows.destination[0]) == (2, 7)
    assert flows.trips[0] == pytest.approx(9000, rel=0.1)
    assert flows.deviation is not None
    # sqrt(9900) 2 e / (e^2 - 1) = 85 for an ideal response; Hadamard matrices have a few more rows.
    assert 70 < flows.deviation[0] < 140
    assert flows.all_trips == pytest.approx(9900)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ParameterError, match="unit user"):
        mv.flows(hub_trips(9), ZONES, epsilon=1, estimator="pair", unit="trip", account=None)
    with pytest.raises(ParameterError, match="grr or hr"):
        mv.flows(hub_trips(9), ZONES, epsilon=1, estimator="pair", method="olh", account=None)
    with pytest.raises(ParameterError, match="at most 64"):
        mv.flows(hub_trips(9), mv.Quadtree(REGION, depth=4), epsilon=1, estimator="pair", account=None)
