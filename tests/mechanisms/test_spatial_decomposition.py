from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from mapveil.inference.tree_least_squares import tree_least_squares
from mapveil.mechanisms.spatial_decomposition import SpatialDecomposition
from mapveil_client.errors import ParameterError


@pytest.mark.parametrize("growth", [2 ** (1 / 3), 2 ** (-1 / 3), 1.0])
def test_the_budget_is_geometric_and_spent(play, crowd, growth):
    made = play(SpatialDecomposition(epsilon=Fraction(1, 2), growth=growth), crowd(4, 100))
    budgets = [query.epsilon for query in made.queries]
    assert [query.purpose for query in made.queries] == [f"level {level}" for level in range(5)]
    assert [query.encoding.length for query in made.queries] == [4**level for level in range(5)]
    for above, below in pairwise(budgets):
        assert float(below / above) == pytest.approx(growth)
    assert 0.4999 < sum(budgets) <= Fraction(1, 2)


def test_the_budget_is_lemma_3_of_the_source(play, crowd):
    made = play(SpatialDecomposition(epsilon=1), crowd(3, 100))
    for level, query in enumerate(made.queries):
        formula = 2 ** (level / 3) * (2 ** (1 / 3) - 1) / (2 ** (4 / 3) - 1)
        assert float(query.epsilon) == pytest.approx(formula)


@pytest.mark.parametrize("parameters", [{}, {"prune_below": 0}, {"level": 4}])
def test_without_noise_it_is_the_plain_map(play, crowd, parameters):
    people = crowd(4, 1000)
    made = play(SpatialDecomposition(epsilon=1, **parameters), people)
    np.testing.assert_allclose(made.made.values, people, atol=1e-9)


def estimates(made, members):
    """The least-squares tree of what was answered."""
    depth = len(made.answers) - 1
    held = [members.reshape(4**level, -1).sum(axis=1) for level in range(depth + 1)]
    noisy = []
    for level, answer in enumerate(made.answers):
        noisy.append(np.zeros(4**level))
        noisy[level][held[level] > 0] = answer.values
    return held, tree_least_squares(
        noisy, [answer.variance for answer in made.answers], [each == 0 for each in held]
    )


@pytest.mark.parametrize("level", [0, 2, 4])
def test_a_level_of_the_consistent_tree_is_shown(play, crowd, level):
    members = (np.arange(256) % 7 > 0).astype(np.int64)
    made = play(
        SpatialDecomposition(epsilon=1, level=level), crowd(4, 3000, members=members), members, seed=1
    )
    held, tree = estimates(made, members)
    density = np.maximum(tree[level], 0) / np.maximum(held[level], 1)
    np.testing.assert_allclose(made.made.values, density.repeat(4 ** (4 - level)) * members)


@pytest.mark.parametrize("least", [0.0, 20.0, 150.0, 1e9])
def test_a_node_below_the_threshold_is_not_divided(play, crowd, least):
    members = (np.arange(256) % 7 > 0).astype(np.int64)
    made = play(
        SpatialDecomposition(epsilon=1, prune_below=least), crowd(4, 3000, members=members), members, seed=2
    )
    held, tree = estimates(made, members)
    for site in range(256):
        level = 0
        while level < 4 and (least == 0 or tree[level][site >> 2 * (4 - level)] >= least):
            level += 1
        node = site >> 2 * (4 - level)
        wanted = max(tree[level][node], 0) / max(held[level][node], 1) * members[site]
        assert made.made.values[site] == pytest.approx(wanted)


def test_consistency_pays(play, crowd):
    # The leaves of the consistent tree are nearer to the truth than the leaves' own sums.
    people = crowd(4, 3000)
    own, consistent = [], []
    for seed in range(10):
        made = play(SpatialDecomposition(epsilon=1, prune_below=0), people, seed=seed)
        own.append(np.square(np.maximum(made.answers[-1].values, 0) - people).sum())
        consistent.append(np.square(made.made.values - people).sum())
    assert np.mean(consistent) < 0.9 * np.mean(own)


def test_every_level_is_a_measurement(play, crowd):
    members = (np.arange(64) % 5 > 0).astype(np.int64)
    people = crowd(3, 1000, members=members)
    made = play(SpatialDecomposition(epsilon=1), people, members)
    for query, measured in zip(made.queries, made.made.measurements, strict=True):
        sums = np.bincount(measured.groups[members > 0], people[members > 0], measured.noisy.size)
        np.testing.assert_array_equal(measured.noisy, sums)
        assert measured.epsilon == query.epsilon


@pytest.mark.parametrize("deepest", [0, 2])
def test_no_level_is_deeper_than_asked(play, crowd, deepest):
    people = crowd(4, 1000)
    made = play(SpatialDecomposition(epsilon=1, deepest=deepest), people)
    assert len(made.queries) == deepest + 1
    size = 4 ** (4 - deepest)
    np.testing.assert_allclose(made.made.values, people.reshape(-1, size).mean(axis=1).repeat(size))


@pytest.mark.parametrize(
    "wrong",
    [
        {"deepest": -1},
        {"growth": 0},
        {"growth": 17},
        {"prune_below": -1},
        {"prune_below": float("inf")},
        {"level": -1},
        {"level": 1, "prune_below": 1},
        {"subregions": -1},
    ],
)
def test_senseless_parameters_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        SpatialDecomposition(epsilon=1, **wrong)


def test_a_level_that_is_not_asked_for_is_refused(play, crowd):
    with pytest.raises(ParameterError, match="level must be from 0 to 3 on this map, got 4"):
        play(SpatialDecomposition(epsilon=1, level=4), crowd(3, 10))
