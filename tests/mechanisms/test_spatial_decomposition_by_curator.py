from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.spatial_decomposition import SpatialDecomposition
from mapveil_client.errors import ParameterError
from mapveil_client.morton import interleave

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
MUCH = 10**11


def some_sums(tiling: Tiling, users: int = 2000, seed: int = 0) -> UserSums:
    generator = np.random.default_rng(seed)
    weights = generator.pareto(0.7, tiling.size) + 1e-6
    return UserSums(generator.multinomial(users, weights / weights.sum()).astype(np.int64) * UNIT, tiling)


def test_budgets_are_geometric_with_the_most_for_the_leaves() -> None:
    shares = SpatialDecomposition(epsilon=2).release(some_sums(mv.Quadtree(REGION, depth=5)), rng=1)
    spent = np.array([float(share.epsilon) for share in shares.guarantee.shares])
    root = 2 * (2 ** (1 / 3) - 1) / (2 ** (6 / 3) - 1)
    np.testing.assert_allclose(spent, root * 2 ** (np.arange(6) / 3), rtol=1e-9)
    assert sum(share.epsilon for share in shares.guarantee.shares) <= 2


@pytest.mark.parametrize("tiling", [mv.Quadtree(REGION, depth=6), mv.Grid(REGION, rows=300, columns=300)])
def test_without_noise_the_sums_come_back(tiling: Tiling) -> None:
    sums = some_sums(tiling)
    values = SpatialDecomposition(epsilon=MUCH).release(sums, rng=1).values
    np.testing.assert_allclose(values, sums.sums / UNIT, atol=1e-6)


def test_a_lower_tree_is_even_below_its_leaves() -> None:
    tiling = mv.Quadtree(REGION, depth=5)
    sums = some_sums(tiling)
    heat = SpatialDecomposition(epsilon=MUCH, deepest=3).release(sums, rng=1)
    expected = np.repeat(sums.sums.reshape(-1, 16).mean(axis=1) / UNIT, 16)
    np.testing.assert_allclose(heat.values, expected, atol=1e-6)
    assert len(heat.measurements) == 4


def test_the_depth_is_at_most_ten_by_default() -> None:
    tiling = mv.Grid(REGION, rows=1, columns=2048)
    sums = UserSums(np.zeros(2048, dtype=np.int64), tiling)
    assert len(SpatialDecomposition(epsilon=1).release(sums, rng=1).measurements) == 11


def test_the_estimate_is_least_squares_of_what_was_measured_then_pruned() -> None:
    tiling = mv.Grid(REGION, rows=5, columns=7)
    lattice = tiling.lattice()
    heat = SpatialDecomposition(epsilon=1, prune_below=20).release(some_sums(tiling, 100), rng=7)
    sites = interleave(lattice.row, lattice.col)
    members = np.bincount(sites, minlength=64)
    rows, targets = [], []
    for level, made in enumerate(heat.measurements):
        below = np.where(np.arange(64) // 4 ** (3 - level) == np.arange(4**level)[:, None], members, 0)
        held = below[below.any(axis=1)]  # nodes where nobody can be are not measured
        rows.extend(held * float(made.epsilon))
        targets.extend(made.noisy * float(made.epsilon))
    solved = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0]

    def spread(level: int, node: int) -> np.ndarray:
        width = 4 ** (3 - level)
        leaves = slice(node * width, (node + 1) * width)
        total = (solved[leaves] * members[leaves]).sum()
        if level == 3 or total < 20:
            return np.full(width, total / max(members[leaves].sum(), 1)) * (members[leaves] > 0)
        return np.concatenate([spread(level + 1, 4 * node + digit) for digit in range(4)])

    slow = np.maximum(spread(0, 0), 0)
    np.testing.assert_allclose(heat.values, slow[sites], atol=1e-8)
    assert len(np.unique(heat.values)) < 35, "the threshold should prune something here"


def test_pruning_is_a_stated_multiple_of_the_noise_by_default() -> None:
    sums = some_sums(mv.Quadtree(REGION, depth=6))
    by_default = SpatialDecomposition(epsilon=0.5).release(sums, rng=2).values
    stated = SpatialDecomposition(epsilon=0.5, prune_below=64).release(sums, rng=2).values
    never = SpatialDecomposition(epsilon=0.5, prune_below=0).release(sums, rng=2).values
    np.testing.assert_array_equal(by_default, stated)
    assert np.unique(by_default).size < np.unique(never).size


@pytest.mark.parametrize(
    "wrong", [{"deepest": -1}, {"growth": 0}, {"prune_below": -1}, {"prune_below": float("nan")}]
)
def test_senseless_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        SpatialDecomposition(epsilon=1, **wrong)  # type: ignore[arg-type]
