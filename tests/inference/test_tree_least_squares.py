from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.inference.tree_least_squares import tree_least_squares


def sums_of_leaves(levels: int) -> list[np.ndarray]:
    """The matrix of each level: which leaves each node sums."""
    leaves = 4 ** (levels - 1)
    return [np.repeat(np.eye(4**level), leaves // 4**level, axis=1) for level in range(levels)]


def solve_slowly(
    noisy: list[np.ndarray], variances: list[float], empty: np.ndarray
) -> tuple[np.ndarray, ...]:
    matrices = sums_of_leaves(len(noisy))
    measured = [level for level, variance in enumerate(variances) if np.isfinite(variance)]
    weight = np.concatenate([np.full(4**level, variances[level] ** -0.5) for level in measured])
    matrix = np.concatenate([matrices[level] for level in measured])[:, ~empty]
    found = np.linalg.lstsq(
        matrix * weight[:, None], np.concatenate([noisy[level] for level in measured]) * weight, rcond=None
    )[0]
    leaves = np.zeros(empty.size)
    leaves[~empty] = found
    return tuple(matrix @ leaves for matrix in matrices)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    levels=st.integers(1, 4),
    empty_part=st.sampled_from([0.0, 0.3, 0.9]),
    unmeasured=st.booleans(),
)
def test_equals_dense_least_squares(seed: int, levels: int, empty_part: float, unmeasured: bool) -> None:
    generator = np.random.default_rng(seed)
    noisy = [generator.normal(10, 20, 4**level) for level in range(levels)]
    variances = list(generator.uniform(0.1, 10, levels))
    if unmeasured and levels > 1:
        variances[0] = np.inf
    leaf_empty = generator.random(4 ** (levels - 1)) < empty_part
    empty = [leaf_empty.reshape(4**level, -1).all(axis=1) for level in range(levels)]
    made = tree_least_squares(noisy, variances, empty)
    for ours, slow in zip(made, solve_slowly(noisy, variances, leaf_empty), strict=True):
        np.testing.assert_allclose(ours, slow, rtol=1e-8, atol=1e-8)
    for above, below in pairwise(made):
        np.testing.assert_allclose(below.reshape(-1, 4).sum(axis=1), above, rtol=1e-9, atol=1e-9)
    assert not made[-1][leaf_empty].any()


def test_exact_sums_come_back() -> None:
    leaves = np.arange(16.0)
    noisy = [leaves.reshape(4**level, -1).sum(axis=1) for level in range(3)]
    made = tree_least_squares(noisy, [1.0, 2.0, 3.0], [np.zeros(4**level, bool) for level in range(3)])
    np.testing.assert_allclose(made[-1], leaves, atol=1e-12)


def test_a_precise_root_corrects_the_sum_of_its_leaves() -> None:
    empty = [np.zeros(1, bool), np.zeros(4, bool)]
    made = tree_least_squares([np.array([8.0]), np.ones(4)], [1e-12, 1.0], empty)
    np.testing.assert_allclose(made[1], 2.0)


def test_reduces_the_variance_as_the_theory_says() -> None:
    generator = np.random.default_rng(1)
    empty = [np.zeros(1, bool), np.zeros(4, bool)]
    roots = [
        tree_least_squares([generator.normal(size=1), generator.normal(size=4)], [1.0, 1.0], empty)[0][0]
        for _ in range(4000)
    ]
    assert np.var(roots) == pytest.approx(4 / 5, rel=0.15)  # one in parallel with four in series
