"""The design of hierarchical hashing follows from public numbers: reports, epsilon and the cells."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.split_trees import SplitTrees
from mapveil.local.level_design import best_design, information_about_halves
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.randomizer import Tally
from mapveil_client.local.domain import Domain
from mapveil_client.local.hierarchical_hashing import levels_of

REGION = mv.Region.from_bbox(*mv.synthetic.SEA_BOX)
DOMAIN = Domain(mv.Quadtree(REGION, depth=6))
REPORTS = 10**9


@pytest.mark.parametrize(("growth", "weight"), [(2, 1), (2, 4), (8, 4)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1)])
def test_the_information_is_that_of_the_reports(growth: int, weight: int, epsilon: Fraction) -> None:
    """The formula against the Fisher information of expected reports of even users, at every halving."""
    randomizer = HierarchicalHashing(epsilon=epsilon, growth=growth, site_weight=weight).on(DOMAIN)
    even = np.full(DOMAIN.size, 1 / DOMAIN.size)
    expected = np.rint(REPORTS * cast("Any", randomizer).forward(even)).astype(np.int64)
    likelihood = randomizer.likelihood(Tally(expected, REPORTS))
    trees, drawn = SplitTrees(DOMAIN, 1), np.random.default_rng(1)
    found = []
    for level in range(trees.levels):
        boxes = trees.divisions(even, level).half.size
        signs = drawn.choice([-1.0, 1.0], (16, boxes))
        moved = [likelihood.information(even, trees.moved(even, level, each)) for each in signs]
        found.append(float(np.mean(moved)) / boxes)
    nodes = np.array([blocks.first.size for blocks in levels_of(DOMAIN.codes, growth)], dtype=np.float64)
    asked = np.append(np.ones(nodes.size - 1), weight)
    odds = np.exp(float(epsilon))
    each = REPORTS * (odds - 1) ** 2 / (4 * odds) * asked / asked.sum()
    # Levels of few nodes are hashed to as many buckets: they hold more than the formula says.
    np.testing.assert_allclose(information_about_halves(nodes, each, trees.levels)[2:], found[2:], rtol=0.2)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_more_reports_have_less_predicted_error_and_ask_about_the_cells_more(epsilon: Fraction) -> None:
    designs = [best_design(epsilon, DOMAIN, 10**power) for power in range(3, 9)]
    for fewer, more in itertools.pairwise(designs):
        assert more.kl < fewer.kl
        assert more.emd < fewer.emd
        assert more.site_weight >= fewer.site_weight
    assert designs[0].site_weight < designs[-1].site_weight


def test_what_is_given_stays() -> None:
    assert best_design(Fraction(1), DOMAIN, 1000, growth=16)[0] == 16
    assert best_design(Fraction(1), DOMAIN, 1000, site_weight=3)[1] == 3
    given = HierarchicalHashing(epsilon=1, growth=4, site_weight=2)
    assert given.designed(DOMAIN, 1000) == (given, ())


def test_a_release_has_the_design_for_those_who_report() -> None:
    counts = np.zeros(DOMAIN.size, dtype=np.int64)
    counts[:500] = 20
    made = HierarchicalHashing(epsilon=4).release(
        mv.Counts(counts, cast("mv.Quadtree", DOMAIN.tiling)), rng=1
    )
    best = best_design(Fraction(4), DOMAIN, 10_000)
    assert (made.parameters["growth"], made.parameters["site_weight"]) == best[:2]
    assert any("10,000 reports at epsilon 4 about 4,096 cells" in note for note in made.notes)


def test_places_keep_their_levels() -> None:
    drawn = np.random.default_rng(2)
    west, south, east, north = REGION.bbox
    places = Domain(mv.Places(drawn.uniform(west, east, 50), drawn.uniform(south, north, 50), REGION))
    mechanism = HierarchicalHashing(epsilon=1)
    assert mechanism.designed(places, 1000).mechanism == mechanism
