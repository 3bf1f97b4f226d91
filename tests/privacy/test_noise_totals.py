"""Noise of whole sums: the tables against sums in decimals, the samples against the exact law, with power."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.privacy.laplace_sum import laplace_sum_quantile
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.noise_shares import noise_shares
from mapveil_client.randomness.random import Randomness

from . import noise_totals as module
from .noise_totals import noise_totals

CERTAIN = 1e-9
WIDE = decimal.Context(prec=110)


def differences(terms, rate, wanted):
    """The slow, obvious oracle: Pr[X - Y = k] as a sum over Y of two binomial laws' products, in decimals."""
    with decimal.localcontext(WIDE):
        shape = Decimal(terms.numerator) / Decimal(terms.denominator)
        beta = (-Decimal(rate.numerator) / Decimal(rate.denominator)).exp()
        law = [(shape * (1 - beta).ln()).exp()]
        top = max(wanted)
        while (
            len(law) < 2 * top + 5
            or len(law) < 4 * shape / (1 - beta)
            or law[-1 - top] ** 2 > Decimal(2) ** -200
        ):
            law.append(law[-1] * beta * (shape + len(law) - 1) / len(law))
        return {k: sum(a * b for a, b in zip(law, law[k:], strict=False)) for k in wanted}


@pytest.mark.parametrize(
    ("terms", "epsilon"),
    [
        (Fraction(1, 2), Fraction(1)),
        (Fraction(20, 19), Fraction(1)),
        (Fraction(73, 10), Fraction(2)),
        (Fraction(1), Fraction(1, 3)),
        (Fraction(60), Fraction(1)),
    ],
)
def test_tables_are_within_2_to_the_minus_60_of_the_law(units_of, terms, epsilon):
    cut = module._cut(terms, epsilon, 1)
    assert cut.parts == 1
    units = units_of(cut.table)
    exact = differences(terms, epsilon, range(len(units) // 2 + 1))
    with decimal.localcontext(WIDE):
        apart = sum(abs(Decimal(units[k]) / (1 << 96) - exact[abs(k)]) for k in units)
        beyond = 1 - sum(exact[abs(k)] for k in units)
        assert (apart + abs(beyond)) / 2 < Decimal(2) ** -60


@pytest.mark.parametrize(
    ("terms", "epsilon", "sensitivity"),
    [(Fraction(5747), Fraction(1), 1), (Fraction(5747), Fraction(1, 20), 1), (Fraction(3), Fraction(1), 70)],
)
def test_large_tables_are_right_at_some_values(units_of, terms, epsilon, sensitivity):
    cut = module._cut(terms, epsilon, sensitivity)
    units = units_of(cut.table)
    assert max(units) <= 1 << 12
    reach = max(units)
    some = [0, 1, reach // 3]
    exact = differences(terms / cut.parts, epsilon / sensitivity, some)
    with decimal.localcontext(WIDE):
        for k in some:
            for sign in (1, -1):
                assert abs(Decimal(units[sign * k]) / (1 << 96) / exact[k] - 1) < Decimal(2) ** -58


@settings(max_examples=25)
@given(st.fractions(Fraction(1, 10), 3000), st.fractions(Fraction(1, 60), 6))
def test_tables_reach_as_far_as_the_tail_asks_and_their_variance_is_the_laws(units_of, terms, epsilon):
    cut = module._cut(terms, epsilon, 1)
    units = units_of(cut.table)
    assert max(units) >= laplace_sum_quantile(2.0**-66, terms / cut.parts, epsilon, 1) or max(units) == 0
    variance = cut.parts * float(sum(Fraction(share, 1 << 96) * k * k for k, share in units.items()))
    assert variance == pytest.approx(terms * laplace_variance(epsilon, 1), rel=1e-9)


def exact_law(terms, rate, size=1 << 14):
    """Pr[Z = k] at k modulo ``size``, from the generating function on the unit circle."""
    beta = math.exp(-rate)
    turn = 2 * np.pi * np.arange(size) / size
    gap = math.expm1(-rate) ** 2
    return np.fft.fft(np.exp(-terms * np.log1p(4 * beta * np.sin(turn / 2) ** 2 / gap))).real / size


def fits(values, terms, rate):
    """P-value of integer values against the law, bins of at least 20 expected."""
    law = np.maximum(exact_law(terms, rate), 0)
    half = law.size // 2
    wanted = np.roll(law, half) * values.size
    observed = np.bincount(np.clip(values + half, 0, law.size - 1), minlength=law.size)
    group = np.unique(np.minimum(np.cumsum(wanted) // 20, values.size // 20 - 1), return_inverse=True)[1]
    wanted, observed = np.bincount(group, wanted), np.bincount(group, observed)
    return stats.chisquare(observed, wanted * (values.size / wanted.sum())).pvalue


@pytest.mark.parametrize(
    ("terms", "epsilon", "sensitivity"),
    [
        (0.4, Fraction(1), 1),
        (3, Fraction(1), 2),
        (Fraction(41, 8), Fraction(1, 10), 1),
        (2000, Fraction(1, 5), 1),  # several parts
        (Fraction(5, 2), Fraction(1, 100), 1),  # too wide for a table
        (3, Fraction(1), 100),
    ],
)
def test_totals_follow_the_law_and_the_test_has_power(terms, epsilon, sensitivity):
    totals = noise_totals(150_000, terms, epsilon, sensitivity, Randomness(47))
    rate = float(epsilon / sensitivity)
    assert fits(totals, float(terms), rate) > CERTAIN
    for factor in (0.7, 1.3):
        assert fits(totals, float(terms) * factor, rate) < CERTAIN
        assert fits(totals, float(terms), rate * factor) < CERTAIN


def test_totals_are_what_the_shares_of_all_clients_add_up_to():
    alpha, clients, length = Fraction(1, 30), 45, 40_000
    noise = noise_shares(clients, length, alpha, Fraction(1), 1, Randomness(48))
    shares = np.zeros(length, dtype=np.int64)
    np.add.at(shares, noise.position, noise.value)

    def alike(totals):
        table = np.array([np.bincount(np.clip(x, -8, 8) + 8, minlength=17) for x in (shares, totals)])
        return stats.chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue

    assert alike(noise_totals(length, alpha * clients, Fraction(1), 1, Randomness(49))) > CERTAIN
    assert alike(noise_totals(length, alpha * clients * 13 / 10, Fraction(1), 1, Randomness(49))) < CERTAIN


@pytest.mark.parametrize("sensitivity", [1, 1 << 20])
def test_totals_of_many_terms_spread_as_far_as_they_should(sensitivity):
    # More terms than one chunk of rows holds.
    totals = noise_totals(1200, 3000, Fraction(1), sensitivity, Randomness(48)).astype(float)
    score = 1199 * totals.var(ddof=1) / (3000 * laplace_variance(Fraction(1), sensitivity))
    assert min(stats.chi2.sf(score, 1199), stats.chi2.cdf(score, 1199)) > CERTAIN
    assert stats.chi2.sf(score * 1.5, 1199) < CERTAIN
    assert stats.chi2.cdf(score / 1.5, 1199) < CERTAIN


@pytest.mark.parametrize("sensitivity", [1, 1 << 20])
def test_coordinates_are_independent_and_repeat_with_the_seed(sensitivity):
    size = 2 * module._CHUNK + 5
    totals = noise_totals(size, 2.5, Fraction(1), sensitivity, Randomness(1))
    assert np.array_equal(totals, noise_totals(size, 2.5, Fraction(1), sensitivity, Randomness(1)))
    for lag in (1, module._CHUNK):
        table = np.bincount((totals[lag:] > 0) * 2 + (totals[:-lag] > 0), minlength=4).reshape(2, 2)
        assert stats.chi2_contingency(table).pvalue > CERTAIN


def test_totals_of_no_terms_are_zeros_and_of_none_are_none():
    assert not noise_totals(100, 0, Fraction(1), 1, Randomness(1)).any()
    assert noise_totals(0, 5, Fraction(1), 1, Randomness(1)).shape == (0,)


@pytest.mark.parametrize("epsilon", [Fraction(1000), Fraction(10**12)])
def test_huge_epsilons_give_no_noise(epsilon):
    assert not noise_totals(100, 2.5, epsilon, 1, Randomness(1)).any()


@pytest.mark.parametrize("terms", [-1, math.nan, math.inf, "many"])
def test_terms_are_a_number_from_zero(terms):
    with pytest.raises(ParameterError, match="finite number above 0"):
        noise_totals(10, terms, Fraction(1), 1, Randomness(1))


def test_numbers_outside_their_range_are_refused():
    with pytest.raises(ParameterError, match="0 or more"):
        noise_totals(-1, 1, Fraction(1), 1, Randomness(1))
    for epsilon, sensitivity in ((Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), 0)):
        with pytest.raises(ParameterError, match="numbers above 0"):
            noise_totals(1, 1, epsilon, sensitivity, Randomness(1))
