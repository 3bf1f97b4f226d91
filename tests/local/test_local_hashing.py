"""Local hashing and its hierarchy."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.likelihood import SupportLikelihood
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.local_hashing import LocalHashing
from mapveil.local.randomizers.randomizer import Tally
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.hierarchical_hashing import levels_of
from mapveil_client.local.local_hashing import best_buckets, is_prime
from mapveil_client.randomness.random import Randomness

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
    hashes, reports = randomizer.hashes, randomizer
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
        sizes = [blocks.first.size for blocks in levels_of(domain.codes, 2)]
        assert sizes[-1] == domain.size
        assert all(2 * above <= below for above, below in itertools.pairwise(sizes))
        assert sizes[0] >= 2
    assert [b.first.size for b in levels_of(Domain(mv.Quadtree(REGION, depth=4)).codes, 2)] == [
        4,
        16,
        64,
        256,
    ]


def test_the_levels_estimates_agree() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=3))
    randomizer = HierarchicalHashing(epsilon=1).on(domain)
    counts = np.random.default_rng(3).integers(0, 5, randomizer.symbols)
    assert randomizer.invert(Tally(counts, int(counts.sum()))).sum() == pytest.approx(1)


def test_the_sites_are_asked_about_as_often_as_said() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=4))
    randomizer = HierarchicalHashing(epsilon=1, growth=4, site_weight=5).on(domain)
    reports = randomizer.randomize(np.zeros(80_000, dtype=np.int64), Randomness(5)).values
    parts = randomizer.likelihood(randomizer.tally(randomizer.randomize(np.arange(256), Randomness(6))))
    assert len(randomizer._levels) == 4
    starts = np.cumsum([0, *(level.symbols for level in randomizer._reports)])
    drawn = np.histogram(reports, starts)[0] / reports.size
    # Standard deviation 0.0018 at most: a weight that is 30 % off moves the sites' part by 0.06.
    np.testing.assert_allclose(drawn, np.array([1, 1, 1, 5]) / 8, atol=0.012)
    expected = randomizer.forward(np.eye(256)[0])
    got = [expected[a:b].sum() for a, b in itertools.pairwise(starts)]
    np.testing.assert_allclose(got, np.array([1, 1, 1, 5]) / 8, rtol=1e-9)
    assert isinstance(parts, SupportLikelihood)


def test_the_users_that_supports_suggest_are_those_there_when_reports_are_as_expected() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=4))
    randomizer = HierarchicalHashing(epsilon=1).on(domain)
    p = np.random.default_rng(8).dirichlet(np.ones(256))
    n = 10**13
    support = randomizer.likelihood(Tally(np.rint(n * randomizer.forward(p)).astype(np.int64), n))
    np.testing.assert_allclose(support.users(p), n * p, rtol=1e-5)


def test_the_information_of_supports_is_that_of_every_node_by_itself() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=3))
    randomizer = HierarchicalHashing(epsilon=1, growth=4, site_weight=1).on(domain)
    generator = np.random.default_rng(9)
    p, change = generator.dirichlet(np.ones(64)), generator.normal(size=64)
    reports = np.zeros(randomizer.symbols, dtype=np.int64)
    starts = np.cumsum([0, *(level.symbols for level in randomizer._reports)])
    reports[starts[:-1]] = 1000
    wanted = 0.0
    for level, bits in zip(randomizer._reports, (2, 4, 6), strict=True):
        for node in range(1 << bits):
            inside = domain.codes.site[domain.codes.code >> (6 - bits) == node]
            chance = level.other + (level.held - level.other) * p[inside].sum()
            slope = (level.held - level.other) * change[inside].sum()
            wanted += 1000 * slope**2 / (chance * (1 - chance))
    support = randomizer.likelihood(Tally(reports, 3000))
    assert support.information(p, change) == pytest.approx(wanted)
