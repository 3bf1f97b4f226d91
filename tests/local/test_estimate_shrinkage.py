"""Shrinkage over balanced trees, with known noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.local.estimators.covariance import DenseCovariance, IndependentCovariance
from mapveil.local.estimators.estimate_shrinkage import shrink_estimates
from mapveil.local.estimators.estimators import estimate_distribution
from mapveil.local.estimators.split_trees import site_tree
from mapveil.local.randomizers.disk_area import DiskArea
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@settings(max_examples=40)
@given(st.integers(1, 70), st.floats(0, 1.5), st.integers(0, 10**6))
def test_a_tree_halves_every_box_along_its_longer_side(sites: int, angle: float, seed: int) -> None:
    plane = np.random.default_rng(seed).normal(size=(2, sites)) * [[3], [1]]
    tree = site_tree(plane, angle)
    assert sorted(tree.order.tolist()) == list(range(sites))
    turned = [
        np.cos(angle) * plane[0] + np.sin(angle) * plane[1],
        np.cos(angle) * plane[1] - np.sin(angle) * plane[0],
    ]
    assert (tree.levels[-1].size == 1).all()
    for above, below in zip(tree.levels[:-1], tree.levels[1:], strict=True):
        assert below.size.sum() == sites
        for first, size in zip(above.first, above.size, strict=True):
            cut = size // 2
            if size == 1:
                assert first in below.first
                continue
            assert {int(first), int(first + cut)} <= set(below.first.tolist())

            def members(level, start: int) -> np.ndarray:
                held = int(level.size[np.searchsorted(level.first, start)])
                return np.sort(tree.order[start : start + held])

            box = np.concatenate([members(below, int(first)), members(below, int(first + cut))])
            extent = [np.ptp(axis[box]) for axis in turned]
            axis = turned[int(extent[1] > extent[0])]
            left, right = axis[box[:cut]], axis[box[cut:]]
            assert left.size == cut
            assert left.max() <= right.min()


def test_sums_of_a_dense_matrix_are_sums_of_its_entries() -> None:
    generator = np.random.default_rng(0)
    half = generator.normal(size=(9, 9))
    covariance, order = DenseCovariance(half @ half.T), generator.permutation(9)
    first, size = np.array([0, 2, 8, 0]), np.array([9, 3, 1, 4])
    wanted = [
        covariance.matrix[np.ix_(order[a : a + n], order[a : a + n])].sum()
        for a, n in zip(first, size, strict=True)
    ]
    np.testing.assert_allclose(covariance.of_sums(order, first, size), wanted)


def test_estimates_without_noise_are_kept() -> None:
    generator = np.random.default_rng(1)
    p = generator.dirichlet(np.full(200, 0.3))
    made = shrink_estimates(p, IndependentCovariance(np.full(200, 1e-30)), 1, generator.normal(size=(2, 200)))
    np.testing.assert_allclose(made, p, atol=1e-9)


def test_estimates_of_nothing_but_noise_become_even() -> None:
    generator = np.random.default_rng(2)
    noisy = 1 / 256 + generator.normal(0, 1.0, 256)
    made = shrink_estimates(
        noisy, IndependentCovariance(np.full(256, 1.0)), 1, generator.normal(size=(2, 256))
    )
    assert made.min() >= 0
    assert made.sum() == pytest.approx(1)
    assert np.abs(made - 1 / 256).sum() < 0.6


@pytest.mark.parametrize(
    "mechanism",
    [HadamardResponse, SubsetSelection, StaircaseResponse, HierarchicalHashing, DiskArea],
    ids=lambda m: m.name,
)
def test_it_beats_the_projection_and_the_even_map_on_clustered_users(mechanism) -> None:
    domain = Domain(mv.Quadtree(REGION, depth=4))
    x, y = domain.plane
    p = np.exp(-np.hypot(x - x[40], y - y[40]) / 900) + 0.5 * np.exp(-np.hypot(x - x[200], y - y[200]) / 500)
    p /= p.sum()
    cells = np.random.default_rng(0).choice(domain.size, 40_000, p=p)
    truth = np.bincount(cells, minlength=domain.size) / cells.size
    randomizer = mechanism(epsilon=1).on(domain)
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(5)))
    far = {
        name: np.abs(estimate_distribution(randomizer, tally, name).distribution - truth).sum()
        for name in ("multiscale", "simplex")
    }
    assert far["multiscale"] < 0.85 * far["simplex"]
    assert far["multiscale"] < np.abs(1 / domain.size - truth).sum()
