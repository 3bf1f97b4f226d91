from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.mechanisms.hierarchical_histogram import HierarchicalHistogram
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.trust.queries import Setting
from mapveil_client.errors import ParameterError


def test_one_query_asks_every_level_with_the_whole_budget(play, crowd):
    made = play(HierarchicalHistogram(epsilon=Fraction(1, 2)), crowd(4, 100), seed=1)
    (query,) = made.queries
    assert query.epsilon == Fraction(1, 2)
    assert query.encoding.length == 4 + 16 + 64 + 256
    assert query.encoding.copies == 4
    # As noisy as a query of its own for each level, with a quarter of the budget.
    assert made.answers[0].variance == pytest.approx(laplace_variance(Fraction(1, 8), 1))


def test_the_papers_length():
    # Section 6.2: levels 1 to 10 are 1,398,100 coordinates.
    setting = Setting(10, np.ones(4**10, dtype=np.int64), 10_000, 1, Fraction(1, 10_000), 1)
    query = next(HierarchicalHistogram(epsilon=1).plan(setting))
    assert query.encoding.length == 1_398_100
    assert query.encoding.copies == 10


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_without_noise_it_is_the_plain_map(play, crowd, depth):
    people = crowd(depth, 1000)
    made = play(HierarchicalHistogram(epsilon=1), people)
    np.testing.assert_allclose(made.made.values, people)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_level_is_shown_everywhere_where_it_is_asked_for(play, crowd, level):
    people = crowd(3, 1000)
    made = play(HierarchicalHistogram(epsilon=1, level=level), people, seed=2)
    size = 64 // 4**level
    start = sum(4**above for above in range(1, level))
    raw = made.answers[0].values[start : start + 4**level]
    np.testing.assert_allclose(made.made.values, np.maximum(raw, 0).repeat(size) / size)
    assert any(f"level {level} is shown" in note for note in made.made.notes)


def test_all_levels_are_measurements(play, crowd):
    members = (np.arange(64) % 5 > 0).astype(np.int64)
    people = crowd(3, 1000, members=members)
    made = play(HierarchicalHistogram(epsilon=1, deepest=2), people, members).made
    assert len(made.measurements) == 2
    for level, measured in enumerate(made.measurements, 1):
        sums = np.bincount(measured.groups[members > 0], people[members > 0], measured.noisy.size)
        np.testing.assert_array_equal(measured.noisy, sums)
        assert measured.noisy.size == np.count_nonzero(members.reshape(4**level, -1).any(axis=1))
        assert measured.sensitivity == 2


def test_the_rule_is_not_far_from_the_best_level(play, crowd):
    # The paper picks the best level with the truth in hand; the rule sees noise only.
    people = crowd(6, 5000, seed=4)
    ratio = []
    for seed in range(5):
        by_level = [
            np.square(
                play(HierarchicalHistogram(epsilon=1, level=level), people, seed=seed).made.values - people
            ).sum()
            for level in range(1, 7)
        ]
        ruled = np.square(
            play(HierarchicalHistogram(epsilon=1), people, seed=seed).made.values - people
        ).sum()
        ratio.append(ruled / min(by_level))
    assert np.mean(ratio) < 1.2
    assert max(by_level) > 1.5 * min(by_level)  # the choice matters


@pytest.mark.parametrize("wrong", [{"deepest": 0}, {"level": 0}, {"subregions": -1}])
def test_senseless_parameters_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        HierarchicalHistogram(epsilon=1, **wrong)


def test_a_level_that_is_not_asked_for_is_refused(play, crowd):
    with pytest.raises(ParameterError, match="level must be from 1 to 3 on this map, got 4"):
        play(HierarchicalHistogram(epsilon=1, level=4), crowd(3, 10))
    with pytest.raises(ParameterError, match="level must be from 1 to 2 on this map, got 3"):
        play(HierarchicalHistogram(epsilon=1, level=3, deepest=2), crowd(3, 10))
