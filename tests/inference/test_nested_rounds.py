from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from mapveil.inference.nested_rounds import Leaves, Round, shrink_rounds
from mapveil.inference.shrinkage import pool

COARSE, DOWN = 4, 2
SIDE = COARSE << DOWN


class Division(NamedTuple):
    """Leaves, the block of each, and their sides, sites."""

    leaves: Leaves
    block: np.ndarray
    side: np.ndarray

    def shrunk(self, blocks, block_variance, sums, variance, members) -> np.ndarray:
        """Two rounds: the blocks, then the leaves."""
        factor = members.shape[0] // blocks.shape[0]
        return shrink_rounds(
            [
                Round(blocks.ravel(), block_variance, np.full(blocks.size, factor), self.block),
                Round(sums, variance, self.side, np.arange(sums.size)),
            ],
            self.leaves,
            members,
        )


def divide_blocks(depths: np.ndarray, members: np.ndarray) -> Division:
    """Every block in quarters ``depths`` times."""
    side, factor = members.shape[0], members.shape[0] // depths.shape[0]
    length = (factor >> depths).repeat(factor, axis=0).repeat(factor, axis=1)
    row, col = np.indices(members.shape)
    inside = members > 0
    anchor = (row // length * length) * side + col // length * length  # a leaf is known by its first site
    anchors, leaf = np.unique(anchor[inside], return_inverse=True)
    of_site = np.full(members.shape, -1)
    of_site[inside] = leaf
    held = np.bincount(leaf, members[inside], anchors.size).astype(np.int64)
    block = anchors // side // factor * depths.shape[0] + anchors % side // factor
    return Division(Leaves(of_site, held), block, factor >> depths.ravel()[block])


def a_map(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.gamma(0.3, 40, (SIDE, SIDE))
    members = (rng.random((SIDE, SIDE)) < 0.8).astype(np.int64)
    return truth * members, members, rng.integers(0, DOWN + 1, (COARSE, COARSE))


@pytest.mark.parametrize("seed", range(3))
def test_fully_divided_and_nearly_exact_rounds_give_the_truth_back(seed: int) -> None:
    truth, members, _ = a_map(seed)
    division = divide_blocks(np.full((COARSE, COARSE), DOWN), members)
    found = division.shrunk(pool(truth, DOWN), 1e-12, truth[members > 0], 1e-12, members)
    np.testing.assert_allclose(found, truth, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_the_result_keeps_the_best_estimate_of_the_total(seed: int) -> None:
    truth, members, depths = a_map(seed)
    division = divide_blocks(depths, members)
    inside = members > 0
    sums = np.bincount(division.leaves.of_site[inside], weights=truth[inside])
    rng = np.random.default_rng(seed)
    blocks = pool(truth, DOWN) + rng.laplace(size=(COARSE, COARSE))
    sums = sums + rng.laplace(scale=0.5, size=sums.size)
    found = division.shrunk(blocks, 2.0, sums, 0.5, members)
    best = 0.0
    for block in range(COARSE * COARSE):  # the inverse-variance mean, block by block
        parts = sums[division.block == block]
        weights = np.array([1 / 2.0, 1 / (0.5 * len(parts))])
        best += weights @ [blocks.flat[block], parts.sum()] / weights.sum()
    assert found.sum() == pytest.approx(best, rel=1e-9)
    assert (found >= 0).all()
    assert (found[members == 0] == 0).all()


def test_shrinking_both_rounds_is_nearer_the_truth_than_the_leaves_alone() -> None:
    side, down = 64, 3
    rng = np.random.default_rng(3)
    row, col = np.indices((side, side))
    density = np.exp(-((row - 20) ** 2 + (col - 40) ** 2) / 18) + 0.002
    truth = rng.multinomial(1500, (density / density.sum()).ravel()).reshape(side, side).astype(float)
    depths = np.clip(np.rint(np.log2(np.maximum(pool(truth, down), 1)) / 2), 0, down).astype(np.int64)
    division = divide_blocks(depths, np.ones((side, side), dtype=np.int64))
    blocks = pool(truth, down) + rng.laplace(scale=2, size=depths.shape)
    sums = np.bincount(division.leaves.of_site.ravel(), weights=truth.ravel())
    sums += rng.laplace(scale=2, size=sums.size)
    found = division.shrunk(blocks, 8.0, sums, 8.0, np.ones((side, side)))
    plain = np.maximum(sums / division.leaves.members, 0)[division.leaves.of_site]
    assert np.abs(found - truth).sum() < 0.75 * np.abs(plain - truth).sum()
