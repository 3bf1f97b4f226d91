"""Sums of discrete Laplace variables: against the exact law, closed forms and samples, with power."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mapveil.privacy.discrete_laplace import laplace_quantile, laplace_variance
from mapveil.privacy.laplace_sum import laplace_sum_quantile, laplace_sum_tail
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

from .noise_totals import noise_totals

CERTAIN = 1e-9


def exact_law(terms, rate, size):
    """Pr[Z = k] at k modulo ``size``, from the generating function on the unit circle."""
    beta = math.exp(-rate)
    turn = 2 * np.pi * np.arange(size) / size
    gap = math.expm1(-rate) ** 2
    transform = np.exp(-terms * np.log1p(4 * beta * np.sin(turn / 2) ** 2 / gap))
    return np.fft.fft(transform).real / size


def exact_tails(terms, rate, count, size=1 << 14):
    """Pr[|Z| > t] for t = 0 .. count - 1, good to 1e-13."""
    law = exact_law(terms, rate, size)
    return 1 - (law[0] + 2 * np.concatenate([[0.0], np.cumsum(law[1:count])]))


# Narrow enough for steps of one.
SUMS = st.tuples(st.floats(0.05, 60), st.fractions(Fraction(1, 8), 8), st.integers(1, 2))


@settings(max_examples=60)
@given(SUMS, st.floats(1e-8, 0.99))
def test_narrow_quantiles_are_the_smallest_that_hold(law, alpha):
    terms, epsilon, sensitivity = law
    found = laplace_sum_quantile(alpha, *law)
    tails = exact_tails(terms, float(epsilon / sensitivity), found + 2)
    assert tails[found] <= alpha * (1 + 1e-6)
    assert found == 0 or tails[found - 1] > alpha * (1 - 1e-6)


@settings(max_examples=60)
@given(SUMS, st.integers(0, 300))
def test_narrow_tails_are_exact(law, threshold):
    terms, epsilon, sensitivity = law
    exact = exact_tails(terms, float(epsilon / sensitivity), threshold + 1)[threshold]
    assert laplace_sum_tail(threshold, *law) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("terms", [0.3, 1.0526, 5.5, 60.0])
@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(1, 400)])
def test_wide_bounds_hold_and_are_tight(terms, rate):
    tails = exact_tails(terms, float(rate), 30_000, 1 << 17)
    deviation = math.sqrt(terms * laplace_variance(rate, 1))
    for alpha in (0.5, 0.05, 1e-3, 1e-9):
        smallest = int(np.argmax(tails <= alpha))
        found = laplace_sum_quantile(alpha, terms, rate, 1)
        assert smallest <= found <= smallest + 0.01 * deviation + 1
    for threshold in (0, int(deviation / 2), int(2 * deviation), int(4 * deviation)):
        bound = laplace_sum_tail(threshold, terms, rate, 1)
        assert tails[threshold] * (1 - 1e-6) <= bound <= tails[threshold] * 1.03


@pytest.mark.parametrize(
    ("epsilon", "sensitivity"),
    [(Fraction(1), 1), (Fraction(1, 50), 1), (Fraction(1), 1 << 20), (Fraction(1, 1000), 1 << 28)],
)
def test_one_term_is_the_discrete_laplace_law_and_near_one_is_near(epsilon, sensitivity):
    near, deviation = 1 + 1e-12, math.sqrt(laplace_variance(epsilon, sensitivity))
    for alpha in (0.9, 0.5, 0.05, 1e-6, 1e-12, 1e-20, 1e-25):
        exact = laplace_quantile(alpha, epsilon, sensitivity)
        assert laplace_sum_quantile(alpha, 1, epsilon, sensitivity) == exact
        found = laplace_sum_quantile(alpha, near, epsilon, sensitivity)
        assert exact <= found <= exact + 0.01 * deviation + 1
        assert laplace_sum_tail(found, near, epsilon, sensitivity) <= alpha
        tail = laplace_sum_tail(exact, 1, epsilon, sensitivity)
        assert tail <= laplace_sum_tail(exact, near, epsilon, sensitivity) * (1 + 1e-9) <= tail * 1.03


def test_the_widest_laws_are_alike_but_for_their_scale():
    # At a rate this small no number below 1 is near enough to beta, and another function is used.
    for terms in (0.4, 3.3):
        wide = laplace_sum_quantile(0.05, terms, Fraction(1, 10**10), 1)
        wider = laplace_sum_quantile(0.05, terms, Fraction(1, 10**14), 1)
        assert wider / wide == pytest.approx(1e4, rel=1e-3)


@pytest.mark.parametrize("terms", [10**4, 10**6])
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(Fraction(1), 1), (Fraction(1, 100), 1 << 28)])
def test_many_terms_are_nearly_normal(terms, epsilon, sensitivity):
    deviation = math.sqrt(terms * laplace_variance(epsilon, sensitivity))
    for alpha in (0.5, 0.05, 1e-6):
        found = laplace_sum_quantile(alpha, terms, epsilon, sensitivity)
        assert found == pytest.approx(deviation * stats.norm.isf(alpha / 2), abs=0.01 * deviation + 1)


@pytest.mark.parametrize(
    ("terms", "epsilon", "sensitivity"),
    [(0.5, Fraction(1), 1 << 20), (Fraction(20, 19), Fraction(1), 1), (6.3, Fraction(1, 10), 1 << 28)],
)
def test_quantiles_cover_what_they_say_and_the_test_has_power(terms, epsilon, sensitivity):
    samples = np.abs(noise_totals(200_000, terms, epsilon, sensitivity, Randomness(51)))

    def outside(alpha, factor):
        reach = laplace_sum_quantile(alpha, terms, epsilon * factor, sensitivity)
        return int((samples > reach).sum())

    for alpha in (0.5, 0.05, 0.005):
        covered = stats.binomtest(outside(alpha, 1), samples.size, alpha, alternative="greater")
        assert covered.pvalue > CERTAIN
        # As the quantile is the smallest, up to 1 % or one integer, nearly as many are outside as may be.
        smaller = laplace_sum_quantile(alpha, terms, epsilon, sensitivity) * 0.99 - 1
        tight = stats.binomtest(int((samples > smaller).sum()), samples.size, alpha, alternative="less")
        assert tight.pvalue > CERTAIN
    wrong = stats.binomtest(outside(0.05, Fraction(13, 10)), samples.size, 0.05, alternative="greater")
    assert wrong.pvalue < CERTAIN
    wrong = stats.binomtest(outside(0.05, Fraction(7, 10)), samples.size, 0.05, alternative="less")
    assert wrong.pvalue < CERTAIN


@pytest.mark.parametrize(
    ("terms", "epsilon", "sensitivity"),
    [(0.5, Fraction(1), 1), (4, Fraction(1, 3), 2), (2.5, Fraction(1, 40), 1)],
)
def test_the_variance_is_the_laws(terms, epsilon, sensitivity):
    law = exact_law(terms, float(epsilon / sensitivity), 1 << 14)
    k = np.minimum(np.arange(law.size), law.size - np.arange(law.size)).astype(float)
    assert terms * laplace_variance(epsilon, sensitivity) == pytest.approx(float(law @ k**2), rel=1e-6)


@settings(max_examples=30)
@given(SUMS, st.floats(1e-20, 0.9))
def test_more_noise_reaches_further(law, alpha):
    terms, epsilon, sensitivity = law
    reach = laplace_sum_quantile(alpha, *law)
    assert laplace_sum_quantile(alpha / 2, *law) >= reach
    assert laplace_sum_quantile(alpha, 2 * terms, epsilon, sensitivity) >= reach
    assert laplace_sum_quantile(alpha, terms, epsilon / 2, sensitivity) >= reach
    assert laplace_sum_tail(reach, *law) <= alpha


def test_huge_epsilons_reach_nowhere():
    for epsilon in (Fraction(1000), Fraction(10**12)):
        assert laplace_sum_quantile(1e-9, 7.5, epsilon, 1) == 0


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 2, 1e-26, math.nan])
def test_alpha_is_a_probability(alpha):
    with pytest.raises(ParameterError, match="between 1e-25 and 1"):
        laplace_sum_quantile(alpha, 2, Fraction(1), 1)


@pytest.mark.parametrize(
    ("terms", "epsilon", "sensitivity"),
    [
        (0, Fraction(1), 1),
        (-1, Fraction(1), 1),
        (math.nan, Fraction(1), 1),
        (math.inf, Fraction(1), 1),
        (1, Fraction(0), 1),
        (1, Fraction(1), 0),
    ],
)
def test_numbers_outside_their_range_are_refused(terms, epsilon, sensitivity):
    for call in (
        lambda *law: laplace_sum_tail(1, *law),
        lambda *law: laplace_sum_quantile(0.5, *law),
    ):
        with pytest.raises(ParameterError, match="finite and above 0"):
            call(terms, epsilon, sensitivity)
    with pytest.raises(ParameterError, match="threshold"):
        laplace_sum_tail(-1, 1, Fraction(1), 1)
