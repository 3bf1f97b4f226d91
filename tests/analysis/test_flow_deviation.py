"""Error bars of flows, against what unbiased estimates of simulated reports really do."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.pair_channel import flow_deviation
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil_client.local.domain import Domain

GRID = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=3)
RUNS, TRIPS = 4000, 500


def unbiased_estimates(matrix: np.ndarray, joint: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Estimates of many collections of the same trips, reported anew each time, trips."""
    trips = generator.multinomial(TRIPS, joint.ravel())
    law = np.kron(matrix, matrix)
    counts = sum(
        generator.multinomial(many, law[pair], size=RUNS) for pair, many in enumerate(trips) if many
    ).reshape(RUNS, matrix.shape[1], -1)
    inverse = np.linalg.pinv(matrix.T)
    return np.einsum("xy,ryz,wz->rxw", inverse, counts, inverse), trips.reshape(joint.shape)


@pytest.mark.parametrize(
    "mechanism",
    [GeneralizedRandomizedResponse(epsilon=2), StaircaseResponse(epsilon=2), HadamardResponse(epsilon=2)],
    ids=lambda mechanism: mechanism.name,
)
def test_estimates_stray_as_much_as_is_said(mechanism) -> None:
    generator = np.random.default_rng(0)
    joint = generator.dirichlet(np.full(36, 0.3)).reshape(6, 6)
    randomizer = mechanism.on(Domain(GRID))
    made, trips = unbiased_estimates(randomizer.transition_matrix(), joint, generator)
    said = flow_deviation(randomizer, trips / TRIPS, TRIPS)
    np.testing.assert_allclose(made.mean(axis=0), trips, atol=7 * said.max() / np.sqrt(RUNS))
    # A sample variance of so many runs is within 15 % (six of its deviations); of 30 % wrong it would not be.
    ratio = made.var(axis=0) / said**2
    assert ratio.max() < 1.15
    assert ratio.min() > 0.85


def test_flows_keep_their_order() -> None:
    # Scattered places: codes and sites are in different orders, and a deviation must be its own pair's.
    place = np.random.default_rng(1).uniform([-8.69, 41.11], [-8.53, 41.21], (7, 2))
    tiling = mv.Places(place[:, 0], place[:, 1], GRID.region)
    randomizer = StaircaseResponse(epsilon=1).on(Domain(tiling))
    matrix = randomizer.transition_matrix()
    joint = np.random.default_rng(2).dirichlet(np.full(49, 0.2)).reshape(7, 7)
    inverse = np.linalg.inv(matrix.T)
    pairs = matrix.T @ joint @ matrix
    wanted = np.sqrt(900 * ((inverse**2) @ pairs @ (inverse**2).T - joint))
    np.testing.assert_allclose(flow_deviation(randomizer, joint, 900), wanted, rtol=1e-6)


def test_four_times_the_reports_are_half_as_certain_in_trips() -> None:
    randomizer = GeneralizedRandomizedResponse(epsilon=1).on(Domain(GRID))
    joint = np.full((6, 6), 1 / 36)
    np.testing.assert_allclose(
        flow_deviation(randomizer, joint, 400), 2 * flow_deviation(randomizer, joint, 100), rtol=1e-12
    )


def test_there_is_none_where_no_estimate_is_unbiased() -> None:
    joint = np.full((6, 6), 1 / 36)
    sets = SubsetSelection(epsilon=1).on(Domain(GRID))
    assert flow_deviation(sets, joint, 100) is None
    grid = mv.Quadtree(GRID.region, depth=2)
    coarse = StaircaseResponse(epsilon=1, thresholds="2,0").on(Domain(grid))
    assert flow_deviation(coarse, np.full((16, 16), 1 / 256), 100) is None
