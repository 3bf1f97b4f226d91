"""The noise of a hierarchy's consistent estimates, against every report of every level by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mapveil as mv
from mapveil.errors import ParameterError
from mapveil.local import Domain, HierarchicalHashing
from mapveil.local.estimators import estimate_distribution
from mapveil.local.hierarchical_hashing import HierarchicalHashingRandomizer
from mapveil.local.report import Tally

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def a_domain(sites: int) -> Domain:
    """Sites at uneven distances, so that the nodes of a level hold uneven numbers of them."""
    generator = np.random.default_rng(1)
    return Domain(
        mv.Places(generator.normal(-73.96, 0.02, sites), generator.normal(40.76, 0.02, sites), REGION)
    )


def covariance_by_reports(
    randomizer: HierarchicalHashingRandomizer, p: np.ndarray, each: list[int]
) -> np.ndarray:
    """Of the estimates from so many reports of each level: report by report, through the inverse itself."""
    starts = np.cumsum([0, *(level.symbols for level in randomizer._reports)])
    matrix = randomizer.transition_matrix()
    base = np.zeros(randomizer.symbols)
    base[starts[:-1]] = each
    total = np.zeros((randomizer.size, randomizer.size))
    for (start, stop), number in zip(itertools.pairwise(starts), each, strict=True):
        rows = np.empty((randomizer.size, stop - start))
        for symbol in range(start, stop):
            counts = base.copy()
            counts[start] -= 1
            counts[symbol] += 1
            rows[:, symbol - start] = randomizer.invert(Tally(counts, sum(each)))
        law = matrix[:, start:stop] / matrix[:, start:stop].sum(axis=1, keepdims=True)
        for part, chance in zip(p, law, strict=True):
            mean = rows @ chance
            total += number * part * ((rows * chance) @ rows.T - np.outer(mean, mean))
    return total


@pytest.mark.parametrize(("buckets", "growth", "weight"), [(2, 2, 3), (2, 4, 1), (29, 2, 4)])
def test_it_is_that_of_every_report_by_itself(buckets: int, growth: int, weight: int) -> None:
    # Two buckets, or as many as nodes: no line of the family has a third site, or each has all.
    domain = a_domain(23)
    randomizer = HierarchicalHashing(epsilon=1, buckets=buckets, growth=growth, site_weight=weight).on(domain)
    assert randomizer.levels >= 2
    p = np.random.default_rng(2).dirichlet(np.full(domain.size, 0.5))
    each = [50] * (randomizer.levels - 1) + [50 * weight]
    wanted = covariance_by_reports(randomizer, p, each)
    found = randomizer.covariance(p)
    np.testing.assert_allclose(found.matrix / sum(each), wanted, rtol=1e-7, atol=1e-10 * wanted.max())
    order, everything = np.arange(domain.size), np.array([domain.size])
    assert found.of_sums(order, np.array([0]), everything)[0] == pytest.approx(0, abs=1e-9 * wanted.max())


def test_of_lines_it_is_that_of_an_average_group() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=2))
    randomizer = HierarchicalHashing(epsilon=1, buckets=3, growth=4, site_weight=2).on(domain)
    p = np.random.default_rng(3).dirichlet(np.full(domain.size, 0.5))
    wanted = covariance_by_reports(randomizer, p, [50, 100])
    found = randomizer.covariance(p).matrix / 150
    np.testing.assert_allclose(np.diag(found), np.diag(wanted), rtol=0.1)
    ratio = []
    for seed in range(40):
        group = np.random.default_rng(seed).permutation(domain.size)[:6]
        ratio.append(found[np.ix_(group, group)].sum() / wanted[np.ix_(group, group)].sum())
    assert np.mean(ratio) == pytest.approx(1, abs=0.04)


def test_more_sites_than_a_matrix_holds_are_refused_with_a_way_out() -> None:
    domain = Domain(mv.Grid(REGION, rows=70, columns=70))
    randomizer = HierarchicalHashing(epsilon=1).on(domain)
    tally = Tally(np.ones(randomizer.symbols, dtype=np.int64), randomizer.symbols)
    with pytest.raises(ParameterError, match=r"4900 sites; 4096.*'smoothed-em'"):
        estimate_distribution(randomizer, tally, "multiscale")
