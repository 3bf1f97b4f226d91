from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.inference.tree_median import KeptTree, Masses, reconstruct
from tests.inference.tree_median_lp import cost, reconstruct_lp


def some_tree(
    generator: np.random.Generator, width: int, first: int, levels: int, scale: float, whole: bool
) -> tuple[KeptTree, list[np.ndarray]]:
    """Noisy sums as the mechanism keeps them; ``whole`` rounds them so that ties abound."""

    def draw(size: int, spread: float) -> np.ndarray:
        values = generator.laplace(scale=spread, size=size) + generator.exponential(3 * scale, size)
        return np.round(values / scale) if whole else values

    nodes = np.arange(4**first)
    noisy, parents, is_open = [draw(nodes.size, scale)], [], []
    for level in range(1, levels):
        candidates = (nodes[:, None] * 4 + np.arange(4)).ravel()
        candidates = candidates[generator.random(candidates.size) < 0.9]  # some are known to be empty
        values = draw(candidates.size, scale * 1.4**level)
        kept = np.sort(np.argsort(-values)[:width])
        position = np.searchsorted(nodes, candidates[kept] // 4)
        parents.append(position)
        of_parent = np.bincount(position, minlength=nodes.size)
        offered = np.bincount(np.searchsorted(nodes, candidates // 4), minlength=nodes.size)
        is_open.append((offered > of_parent) | (of_parent == 0))
        noisy.append(values[kept])
        nodes = candidates[kept]
    return KeptTree(tuple(parents), tuple(is_open)), noisy


def check_feasible(tree: KeptTree, masses: Masses) -> None:
    for level, parents in enumerate(tree.parents):
        kept, below = masses.kept[level], masses.kept[level + 1]
        assert kept.min(initial=0) >= 0
        assert below.min(initial=0) >= 0
        left_out = masses.left_out[level]
        assert left_out.min(initial=0) >= 0
        assert not left_out[~tree.open[level]].any()
        held = np.bincount(parents, weights=below, minlength=kept.size) + left_out
        np.testing.assert_allclose(held, kept, rtol=1e-9, atol=1e-9)


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    width=st.integers(1, 30),
    first=st.integers(0, 2),
    levels=st.integers(1, 6),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    whole=st.booleans(),
)
def test_is_as_good_as_the_linear_program(
    seed: int, width: int, first: int, levels: int, scale: float, whole: bool
) -> None:
    tree, noisy = some_tree(np.random.default_rng(seed), width, first, levels, scale, whole)
    masses = reconstruct(tree, noisy)
    check_feasible(tree, masses)
    oracle = cost(tree, noisy, reconstruct_lp(tree, noisy))
    assert cost(tree, noisy, masses) == pytest.approx(oracle, rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 20), step=st.floats(1e-3, 3))
def test_no_move_of_mass_makes_it_better(seed: int, width: int, step: float) -> None:
    generator = np.random.default_rng(seed)
    tree, noisy = some_tree(generator, width, 1, 4, 1.0, whole=False)
    best = reconstruct(tree, noisy)
    # Any feasible point: other left-out and last-level masses, summed upwards.
    kept = [np.maximum(best.kept[-1] + step * generator.normal(size=best.kept[-1].size), 0)]
    left_out = []
    for level in range(len(tree.parents) - 1, -1, -1):
        free = np.maximum(best.left_out[level] + step * generator.normal(size=tree.open[level].size), 0)
        left_out.insert(0, np.where(tree.open[level], free, 0.0))
        below = np.bincount(tree.parents[level], weights=kept[0], minlength=free.size)
        kept.insert(0, below + left_out[0])
    other = Masses(tuple(kept), tuple(left_out))
    assert cost(tree, noisy, best) <= cost(tree, noisy, other) + 1e-9


def test_consistent_measurements_come_back() -> None:
    leaves = np.array([4.0, 0.0, 1.0, 3.0])
    quarter = np.zeros(4, dtype=np.int64)
    tree = KeptTree((quarter,), (np.array([False]),))
    masses = reconstruct(tree, [np.array([8.0]), leaves])
    np.testing.assert_array_equal(masses.kept[0], [8.0])
    np.testing.assert_allclose(masses.kept[1], leaves, atol=1e-12)


def test_the_first_level_keeps_the_positive_part_of_its_noisy_sums() -> None:
    tree, noisy = some_tree(np.random.default_rng(1), 10, 1, 4, 5.0, whole=False)
    noisy[0][0] = -3.0
    np.testing.assert_array_equal(reconstruct(tree, noisy).kept[0], np.maximum(noisy[0], 0))


def test_mass_beyond_all_measurements_goes_to_left_out_children_first_and_else_evenly() -> None:
    two = np.zeros(2, dtype=np.int64)
    noisy = [np.array([10.0]), np.array([1.0, 3.0])]
    free = reconstruct(KeptTree((two,), (np.array([True]),)), noisy)
    np.testing.assert_allclose(free.kept[1], [1.0, 3.0])
    np.testing.assert_allclose(free.left_out[0], [6.0])
    full = reconstruct(KeptTree((two,), (np.array([False]),)), noisy)
    np.testing.assert_allclose(full.kept[1], [4.0, 6.0])


def test_too_little_mass_is_divided_in_proportion() -> None:
    tree = KeptTree((np.zeros(2, dtype=np.int64),), (np.array([True]),))
    masses = reconstruct(tree, [np.array([2.0]), np.array([1.0, 3.0])])
    np.testing.assert_allclose(masses.kept[1], [0.5, 1.5])


def test_nothing_positive_gives_nothing() -> None:
    tree, noisy = some_tree(np.random.default_rng(2), 5, 1, 4, 1.0, whole=False)
    masses = reconstruct(tree, [-np.abs(values) for values in noisy])
    assert not any(values.any() for values in (*masses.kept, *masses.left_out))


def test_a_wide_deep_tree_takes_far_less_time_than_the_linear_program() -> None:
    # The whole w = 20,000 at depth 10 takes HiGHS 3 s; an eighth of it shows the same.
    tree, noisy = some_tree(np.random.default_rng(3), 2500, 5, 5, 10.0, whole=False)
    taken = []
    for solve in (reconstruct, reconstruct_lp):
        start = time.perf_counter()
        masses = solve(tree, noisy)
        taken.append(time.perf_counter() - start)
        check_feasible(tree, masses)
    assert taken[0] < taken[1] / 3


def test_levels_are_as_large_as_they_should_be() -> None:
    tree, noisy = some_tree(np.random.default_rng(4), 7, 1, 5, 1.0, whole=False)
    masses = reconstruct(tree, noisy)
    assert [mass.size for mass in masses.kept] == [values.size for values in noisy]
    assert [mass.size for mass in masses.left_out] == [values.size for values in noisy[:-1]]
    for parents, (above, below) in zip(tree.parents, pairwise(noisy), strict=True):
        assert parents.size == below.size
        assert parents.max(initial=0) < above.size
