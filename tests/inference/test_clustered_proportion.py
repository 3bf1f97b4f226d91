"""Intervals of clustered proportions: coverage, and no certainty from a few groups."""

import numpy as np
import pytest
from scipy import stats

from mapveil.inference.clustered_proportion import clustered_proportion


@pytest.mark.parametrize(("users", "mean"), [(8, 0.5), (8, 0.2), (40, 0.9)])
def test_it_covers_the_proportion_where_users_differ(users: int, mean: float) -> None:
    draw = np.random.default_rng(3)
    groups = np.repeat(np.arange(users), 50)
    covered, naive = 0, 0
    for _ in range(600):
        own = draw.beta(4 * mean, 4 * (1 - mean), users)
        wrong = draw.random(len(groups)) < own[groups]
        low, high = clustered_proportion(wrong, groups)
        covered += low <= mean <= high
        plain = stats.binomtest(int(wrong.sum()), len(wrong)).proportion_ci(method="wilson")
        naive += plain.low <= mean <= plain.high
    assert covered / 600 >= 0.92
    assert naive / 600 < 0.75


def test_agreement_of_few_users_is_no_certainty() -> None:
    groups = np.repeat(np.arange(4), 1_000)
    low, high = clustered_proportion(np.zeros(4_000, dtype=np.bool_), groups)
    assert low == 0
    assert high > 0.5
    assert clustered_proportion(np.ones(4_000, dtype=np.bool_), groups) == pytest.approx((1 - high, 1))
    assert clustered_proportion(np.ones(5, dtype=np.bool_), np.zeros(5, dtype=np.int64)) == (0, 1)


def test_independent_trials_have_wilson_s_interval() -> None:
    happened = np.random.default_rng(1).random(4_000) < 0.3
    found = clustered_proportion(happened, np.arange(4_000))
    plain = stats.binomtest(int(happened.sum()), 4_000).proportion_ci(method="wilson")
    assert found == pytest.approx((plain.low, plain.high), abs=1e-4)
