"""How good flows are, against whole matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis.quality import flow_quality
from mapveil.maps.flow_map import FlowMap
from mapveil.privacy.claim import Adversary, TrustModel
from mapveil_client.errors import ParameterError
from tests.maps.matrix_flows import matrix_flows

GRID = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=3)
PROMISE = mv.Guarantee(model=TrustModel.LOCAL, epsilon=None, adversary=Adversary.REPORTS)


def trips_of(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    pair = generator.choice(36, size=count, p=generator.dirichlet(np.full(36, 0.4)))
    return pair // 6, pair % 6


@given(seed=st.integers(0, 1000), count=st.integers(1, 60), least=st.sampled_from([0.0, 1.0, 3.0]))
@settings(max_examples=30, deadline=None)
def test_distances_are_those_of_matrices(seed: int, count: int, least: float) -> None:
    ends = trips_of(seed, count)
    estimate = np.random.default_rng(seed + 1).gamma(0.3, 4.0, (6, 6))
    flows = matrix_flows(estimate, GRID, PROMISE, least=least)
    truth = np.zeros((6, 6))
    np.add.at(truth, ends, 1 / count)
    listed = flows.matrix().toarray()
    rest = 36 - flows.size
    spread = np.where(listed > 0, listed, flows.unlisted / rest if rest else 0.0) / flows.all_trips
    found = flow_quality(*ends, flows)
    assert found.l1 == pytest.approx(np.abs(truth - spread).sum(), abs=1e-9)
    assert found.origins_l1 == pytest.approx(np.abs((truth - spread).sum(axis=1)).sum(), abs=1e-9)
    assert found.destinations_l1 == pytest.approx(np.abs((truth - spread).sum(axis=0)).sum(), abs=1e-9)
    assert 0 <= found.missed <= 1


def test_the_truth_is_perfect() -> None:
    ends = trips_of(0, 500)
    truth = np.zeros((6, 6))
    np.add.at(truth, ends, 1)
    found = flow_quality(*ends, matrix_flows(truth * 7, GRID, PROMISE))
    np.testing.assert_allclose(found, 0, atol=1e-9)


def test_lengths_tell_far_trips_from_near_ones() -> None:
    stay, go = np.eye(6), np.fliplr(np.eye(6))
    ends = (np.arange(6), np.arange(6))
    found = flow_quality(*ends, matrix_flows(go, GRID, PROMISE))
    lengths = matrix_flows(go, GRID, PROMISE).lengths_m()
    assert found.length_m == pytest.approx(lengths.mean(), rel=0.01)
    assert found.missed == 1
    assert found.l1 == pytest.approx(2)
    assert flow_quality(*ends, matrix_flows(stay, GRID, PROMISE)).length_m == 0


def test_nothing_listed_is_the_even_guess() -> None:
    none = FlowMap(np.zeros(0, int), np.zeros(0, int), np.zeros(0), GRID, PROMISE, "by hand", unlisted=9.0)
    found = flow_quality(np.array([0]), np.array([1]), none)
    assert found.l1 == pytest.approx(2 * 35 / 36)
    assert np.isnan(found.length_m)


def test_what_is_refused() -> None:
    flows = matrix_flows(np.ones((6, 6)), GRID, PROMISE)
    empty = matrix_flows(np.zeros((6, 6)), GRID, PROMISE)
    one, none = np.array([0]), np.zeros(0, int)
    for origins, destinations, estimate in ((none, none, flows), (one, one, empty), (one, one + 6, flows)):
        with pytest.raises(ParameterError, match=r"must be|expected"):
            flow_quality(origins, destinations, estimate)
