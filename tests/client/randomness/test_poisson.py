"""Poisson counts: the tables in integers, the samples by statistics with power."""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.errors import ParameterError
from mapveil_client.randomness import noise_shares as module
from mapveil_client.randomness.noise_shares import LARGEST_MEAN, poisson
from mapveil_client.randomness.random import Randomness

CERTAIN = 1e-9
MEANS = [Decimal("0.001"), Decimal("0.115"), Decimal(1), Decimal("91.742"), Decimal(256)]


@pytest.mark.parametrize("mean", [Decimal("1e-30"), *MEANS])
def test_the_table_is_within_2_to_the_minus_62_of_the_law(units_of, mean):
    units = units_of(module._table(mean))
    assert sum(units.values()) == 1 << 96
    assert sorted(units) == list(range(len(units)))
    with decimal.localcontext(decimal.Context(prec=120)):
        law, rest, apart = (-mean).exp(), Decimal(1), Decimal(0)
        for n in range(len(units)):
            apart += abs(Decimal(units[n]) / (1 << 96) - law)
            rest -= law
            law *= mean / (n + 1)
        assert rest >= 0
        assert (apart + rest) / 2 < Decimal(2) ** -62


@given(st.decimals(0, 256, places=20))
def test_no_tail_is_cut_above_2_to_the_minus_66(mean):
    table = module._table(mean)
    assert stats.poisson.sf(table.outcomes.size - 1, float(mean)) <= 2.0**-66


def fits(counts, mean):
    """P-value of a chi-square test against the exact law, bins of at least 20 expected."""
    values = np.arange(int(mean + 12 * mean**0.5) + 12)
    wanted = counts.size * np.append(stats.poisson.pmf(values, mean), stats.poisson.sf(values[-1], mean))
    observed = np.bincount(np.minimum(counts, values[-1] + 1), minlength=values.size + 1)
    group = np.minimum(np.cumsum(wanted) // 20, (wanted.sum() - 20) // 20).astype(int)
    _, group = np.unique(group, return_inverse=True)
    wanted, observed = np.bincount(group, wanted), np.bincount(group, observed)
    return stats.chisquare(observed, wanted * (counts.size / wanted.sum())).pvalue


@pytest.mark.parametrize("mean", [*MEANS[1:], Decimal("256.5"), Decimal(3000)])
def test_counts_follow_the_law_and_the_test_has_power(mean):
    counts = poisson(100_000, mean, Randomness(5))
    assert fits(counts, float(mean)) > CERTAIN
    for factor in (0.7, 1.3):
        assert fits(counts, float(mean) * factor) < CERTAIN


def test_a_large_mean_is_the_sum_of_its_parts():
    counts = poisson(400, Decimal(10**6), Randomness(6)).astype(float)
    assert abs(counts.mean() - 1e6) < 6.2 * 1e3 / 20
    assert stats.chi2.sf(399 * counts.var(ddof=1) / 1e6, 399) > CERTAIN
    assert stats.chi2.cdf(399 * counts.var(ddof=1) / 1e6, 399) > CERTAIN
    # Parts that were copies of one another would spread 3,907 times as far.
    assert stats.chi2.sf(399 * counts.var(ddof=1) / 0.6e6, 399) < CERTAIN


def test_blocks_do_not_repeat_and_a_seed_does():
    first = poisson(3 * module._CHUNK, Decimal(100), Randomness(1))
    assert np.array_equal(first, poisson(3 * module._CHUNK, Decimal(100), Randomness(1)))
    assert not np.array_equal(first[: module._CHUNK], first[module._CHUNK : 2 * module._CHUNK])


def test_a_mean_of_nothing_gives_nothing():
    assert not poisson(1000, Decimal(0), Randomness(1)).any()
    assert poisson(0, Decimal(7), Randomness(1)).shape == (0,)


@pytest.mark.parametrize("mean", [Decimal(-1), Decimal(LARGEST_MEAN + 1)])
def test_a_mean_outside_its_range_is_refused(mean):
    with pytest.raises(ParameterError, match=r"must be|expected"):
        poisson(1, mean, Randomness(1))
