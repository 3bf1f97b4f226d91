"""Local hashing and its hierarchy."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.errors import ParameterError
from mapveil.local import Domain, HierarchicalHashing, LocalHashing
from mapveil.local.hierarchical_hashing import levels_of
from mapveil.local.linear_hashes import is_prime
from mapveil.local.local_hashing import best_buckets
from mapveil.local.report import Tally

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)])
def test_the_prime_is_near_the_best_number(epsilon: Fraction) -> None:
    g = best_buckets(epsilon, 3202)
    assert is_prime(g)
    assert g / (np.exp(float(epsilon)) + 1) == pytest.approx(1, abs=0.5)


def test_a_table_that_is_too_large_is_refused() -> None:
    with pytest.raises(ParameterError, match="too many for hashing"):
        best_buckets(Fraction(1), 1000, largest_table=500)
    with pytest.raises(ParameterError, match=r"2\*\*25"):
        LocalHashing(epsilon=1, buckets=5003).on(Domain(mv.Quadtree(REGION, depth=7)))
    with pytest.raises(ParameterError, match="prime"):
        LocalHashing(epsilon=1, buckets=4)
    with pytest.raises(ParameterError, match="prime"):
        HierarchicalHashing(epsilon=1, buckets=9)


@pytest.mark.parametrize("epsilon", [1, 3])
def test_the_noise_of_an_average_group_is_that_of_the_matrix(epsilon: int) -> None:
    domain = Domain(mv.Quadtree(REGION, depth=3))
    randomizer = LocalHashing(epsilon=epsilon).on(domain)
    p = np.random.default_rng(4).dirichlet(np.full(domain.size, 0.5))
    matrix = randomizer.transition_matrix()
    hashes, reports = randomizer.reports.hashes, randomizer.reports
    function, bucket = np.divmod(np.arange(randomizer.symbols), hashes.buckets)
    supports = np.stack([hashes.values(function, np.full(function.size, x)) == bucket for x in range(64)])
    rows = (supports - reports.other) / (reports.held - reports.other)
    mean = rows @ matrix.T
    covariance = (rows * (p @ matrix)) @ rows.T - (mean * p) @ mean.T
    for size in (2, 8, 32, 63, 64):
        ratio = []
        for seed in range(12):
            order = np.random.default_rng(seed).permutation(domain.size)
            wanted = covariance[np.ix_(order[:size], order[:size])].sum()
            got = randomizer.covariance(p).of_sums(order, np.array([0]), np.array([size]))[0]
            ratio.append(got / wanted)
        assert np.mean(ratio) == pytest.approx(1, abs=0.06)


def test_levels_grow_and_end_with_the_sites() -> None:
    generator = np.random.default_rng(0)
    places = mv.Places(generator.uniform(-74, -73.92, 500), generator.uniform(40.7, 40.82, 500), REGION)
    for tiling in (mv.Quadtree(REGION, depth=4), places, mv.Grid(REGION, rows=1, columns=2)):
        domain = Domain(tiling)
        sizes = [blocks.first.size for blocks in levels_of(domain.codes)]
        assert sizes[-1] == domain.size
        assert all(2 * above <= below for above, below in itertools.pairwise(sizes))
        assert sizes[0] >= 2
    assert [b.first.size for b in levels_of(Domain(mv.Quadtree(REGION, depth=4)).codes)] == [4, 16, 64, 256]


def test_the_levels_estimates_agree() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=3))
    randomizer = HierarchicalHashing(epsilon=1).on(domain)
    counts = np.random.default_rng(3).integers(0, 5, randomizer.symbols)
    assert randomizer.invert(Tally(counts, int(counts.sum()))).sum() == pytest.approx(1)
