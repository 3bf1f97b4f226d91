"""Exact noise: the law of the tables in integers, the law of the samples by statistics with power."""

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

from mapveil.privacy import discrete_laplace as module
from mapveil.privacy.discrete_laplace import discrete_laplace, laplace_quantile, laplace_variance
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.logarithmic import SLOTS, draw_slots
from mapveil_client.randomness.random import Randomness

UNIT = 1 << 20
CERTAIN = 1e-9
LAWS = [
    (Fraction(1), 1),
    (Fraction(1, 3), 1),
    (Fraction(5), 1),
    (Fraction(1, 100), 1),
    (Fraction(1), UNIT),
    (Fraction(1, 10), UNIT),
    (Fraction(10), UNIT),
    (Fraction(1, 10**6), UNIT),
    (Fraction(37, 7), 1000),
]


def ratio(epsilon, sensitivity, place):
    return (-Decimal(epsilon.numerator) * (1 << place) / Decimal(epsilon.denominator * sensitivity)).exp()


@pytest.mark.parametrize(("epsilon", "sensitivity"), LAWS)
def test_the_tables_are_within_2_to_the_minus_60_of_the_law(units_of, epsilon, sensitivity):
    # All in integers and 120-digit decimals. The digits are independent, so total variations add.
    sampler = module._sampler(epsilon, sensitivity)
    shift = sum(sampler.widths)
    with decimal.localcontext(decimal.Context(prec=120)):
        unit = Decimal(2) ** 96
        distance = Decimal(0)
        place = 0
        for table, width in zip(sampler.low, sampler.widths, strict=True):
            q = ratio(epsilon, sensitivity, place)
            units = units_of(table)
            assert sorted(units) == list(range(1 << width))
            assert sum(units.values()) == 1 << 96
            first = (1 - q) / (1 - q ** (1 << width))
            distance += sum(abs(units[k] / unit - first * q**k) for k in units) / 2
            place += width
        assert place == shift

        q, leading = ratio(epsilon, sensitivity, 0), ratio(epsilon, sensitivity, shift)
        units = units_of(sampler.leading)
        assert sum(units.values()) == 1 << 96
        size = max(units) + 1
        assert sorted(units) == list(range(-size, size))
        apart = leading**size  # the mass beyond the table, of both signs
        for value, share in units.items():
            digit, sign = (value, 1) if value >= 0 else (-1 - value, q)
            apart += abs(share / unit - sign / (1 + q) * (1 - leading) * leading**digit)
        distance += apart / 2
    assert distance < Decimal(2) ** -60


@pytest.mark.parametrize(("epsilon", "sensitivity"), LAWS)
def test_few_slots_escape_and_every_remainder_is_settled(epsilon, sensitivity):
    sampler = module._sampler(epsilon, sensitivity)
    for table in (sampler.leading, *sampler.low):
        escapes = SLOTS - table.first_escape
        assert escapes <= SLOTS // 32
        assert (table.cumulated[-1] if table.cumulated else 0) == escapes << 80
        assert all(b >= a for a, b in zip(table.cumulated, table.cumulated[1:], strict=False))


@pytest.mark.parametrize(("epsilon", "sensitivity"), LAWS[:5])
def test_escapes_and_ties_pick_the_outcome_whose_remainder_they_fall_in(prescribed, epsilon, sensitivity):
    sampler = module._sampler(epsilon, sensitivity)
    settled = 0
    for table in (sampler.leading, *sampler.low):
        bounds = table.cumulated
        wholes = {0, bounds[-1] - 1}
        for bound in bounds[:40] + bounds[-40:]:
            wholes |= {bound - 1, bound, bound ^ 1, (bound >> 32) << 32, bound | 0xFFFF_FFFF}
        for whole in sorted(wholes):
            if not 0 <= whole < bounds[-1]:
                continue
            key, last = whole >> 32, whole & 0xFFFF_FFFF
            slot, more = table.first_escape + (key >> 48), key & ((1 << 48) - 1)
            tied = any(bound >> 32 == key for bound in bounds)
            words = prescribed([slot], [more << 16 | 0xABCD], *([[last]] if tied else []))
            drawn = draw_slots(table, 1, words)
            assert not words.given
            wanted = next(i for i, bound in enumerate(bounds) if whole < bound)
            assert drawn[0] == table.outcomes[wanted]
            settled += 1
    assert settled > 50


def test_samples_are_put_together_from_their_digits(prescribed):
    # One leading word, one word a low digit: no escapes are chosen, so the value can be computed by hand.
    epsilon = Fraction(1)
    sampler = module._sampler(epsilon, UNIT)
    stream = Randomness(5)
    slots = [
        np.minimum(stream.words(50, np.uint16), table.first_escape - 1)
        for table in (sampler.leading, *sampler.low)
    ]
    drawn = discrete_laplace(50, epsilon, UNIT, prescribed(*slots))
    shift = sum(sampler.widths)
    for at in range(50):
        leading = int(sampler.leading.values[slots[0][at]])
        value, place = (leading if leading >= 0 else -1 - leading) << shift, 0
        for table, width, words in zip(sampler.low, sampler.widths, slots[1:], strict=True):
            value += int(table.values[words[at]]) << place
            place += width
        assert drawn[at] == (value if leading >= 0 else -1 - value)


def expected(epsilon, sensitivity, edges, count):
    """Expected samples in the intervals between integer edges, the outer two open."""
    q = math.exp(-epsilon / sensitivity)

    def below(k):  # P[X < k]
        return q ** (1 - k) / (1 + q) if k <= 0 else 1 - q**k / (1 + q)

    cumulated = [0.0, *(below(edge) for edge in edges), 1.0]
    return count * np.diff(cumulated)


def fits(samples, epsilon, sensitivity, edges):
    observed = np.bincount(np.searchsorted(edges, samples, side="right"), minlength=len(edges) + 1)
    wanted = expected(epsilon, sensitivity, edges, samples.size)
    return stats.chisquare(observed, wanted * (samples.size / wanted.sum())).pvalue


def edges_of(epsilon, sensitivity):
    """Every value where the law is narrow, quantile bins where it is wide."""
    scale = float(sensitivity / epsilon)
    if scale < 8:
        reach = math.ceil(6 * scale)
        return np.arange(-reach, reach + 1)
    tails = -scale * np.log(np.arange(1, 40) / 40)
    return np.unique(np.round(np.concatenate([-tails, tails, [0]])).astype(np.int64))


@pytest.mark.parametrize(
    ("epsilon", "sensitivity"), [law for law in LAWS if law[0] / law[1] > Fraction(1, 10**9)]
)
def test_samples_follow_the_law_and_the_test_has_power(epsilon, sensitivity):
    edges = edges_of(epsilon, sensitivity)
    samples = discrete_laplace(200_000, epsilon, sensitivity, Randomness(20))
    assert fits(samples, epsilon, sensitivity, edges) > CERTAIN
    for factor in (Fraction(13, 10), Fraction(7, 10)):
        wrong = discrete_laplace(200_000, epsilon / factor, sensitivity, Randomness(20))
        assert fits(wrong, epsilon, sensitivity, edges) < CERTAIN


@pytest.mark.parametrize(("epsilon", "sensitivity"), LAWS)
def test_mean_and_variance_are_the_laws_and_the_test_has_power(epsilon, sensitivity):
    count = 400_000
    variance = laplace_variance(epsilon, sensitivity)
    q = math.exp(-epsilon / sensitivity)
    assert variance == pytest.approx(2 * q / (-math.expm1(-epsilon / sensitivity)) ** 2, rel=1e-9)

    def scores(epsilon):
        samples = discrete_laplace(count, epsilon, sensitivity, Randomness(21)).astype(float)
        squares = samples**2
        return (
            abs(samples.mean()) / math.sqrt(variance / count),
            abs(squares.mean() - variance) / (squares.std() / math.sqrt(count)),
        )

    mean, spread = scores(epsilon)
    assert mean < 6.2  # two-sided normal quantile of 1e-9 is 6.1
    assert spread < 6.2
    assert scores(epsilon / Fraction(13, 10))[1] > 6.2
    assert scores(epsilon / Fraction(7, 10))[1] > 6.2


def test_both_signs_are_equally_likely():
    for epsilon, sensitivity in LAWS:
        samples = discrete_laplace(100_000, epsilon, sensitivity, Randomness(22))
        positive, negative = int((samples > 0).sum()), int((samples < 0).sum())
        assert stats.binomtest(positive, max(positive + negative, 1)).pvalue > CERTAIN


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(10)])
def test_every_window_of_eight_bits_is_a_truncated_geometric(epsilon):
    samples = discrete_laplace(1 << 19, epsilon, UNIT, Randomness(23))
    magnitudes = np.where(samples < 0, ~samples, samples)
    for place in range(0, 24, 3):  # across the borders of the sampler's own digits
        rate = float(epsilon) * 2**place / UNIT
        law = np.exp(-rate * np.arange(256))
        observed = np.bincount((magnitudes >> place) & 0xFF, minlength=256)
        kept = samples.size * law / law.sum() > 5
        observed, law = (
            np.append(observed[kept], observed[~kept].sum()),
            np.append(law[kept], law[~kept].sum()),
        )
        if law[-1] == 0:
            observed, law = observed[:-1], law[:-1]
        assert stats.chisquare(observed, samples.size * law / law.sum()).pvalue > CERTAIN


def test_low_digits_are_independent_of_neighbours_and_of_high_digits():
    samples = np.abs(discrete_laplace(1 << 19, Fraction(1, 10), UNIT, Randomness(23)))
    neighbours = (samples[0::2] & 0xF) * 16 + (samples[1::2] & 0xF)
    assert stats.chisquare(np.bincount(neighbours, minlength=256)).pvalue > CERTAIN
    low, high = samples & 0xF, np.minimum(samples >> 20, 15)
    table = np.bincount(low * 16 + high, minlength=256).reshape(16, 16)
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 100]).pvalue > CERTAIN


def test_a_seed_repeats_the_noise_and_chunks_do_not():
    size = module._CHUNK * 2 + 17
    first = discrete_laplace(size, Fraction(1), UNIT, Randomness(1))
    assert np.array_equal(first, discrete_laplace(size, Fraction(1), UNIT, Randomness(1)))
    assert not np.array_equal(first, discrete_laplace(size, Fraction(1), UNIT, Randomness(2)))
    assert not np.array_equal(first[: module._CHUNK], first[module._CHUNK : 2 * module._CHUNK])


def test_tiny_epsilons_neither_overflow_nor_saturate():
    epsilon = Fraction(1, 10**6)
    samples = discrete_laplace(200_000, epsilon, UNIT, Randomness(3))
    scale = float(UNIT / epsilon)
    assert np.abs(samples).max() < 2**58
    assert np.abs(samples).astype(float).mean() == pytest.approx(scale, rel=0.02)
    smallest = discrete_laplace(10_000, Fraction(1, 5 * 10**9), UNIT, Randomness(3))
    assert np.abs(smallest).max() < 2**58


def test_epsilons_beyond_the_lattice_are_refused():
    with pytest.raises(ParameterError, match="a larger epsilon"):
        discrete_laplace(1, Fraction(1, 10**12), UNIT, Randomness(1))


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), 0)])
def test_a_scale_that_is_not_positive_is_refused(epsilon, sensitivity):
    with pytest.raises(ParameterError, match="sensitivity must be above 0"):
        discrete_laplace(1, epsilon, sensitivity, Randomness(1))


@pytest.mark.parametrize("epsilon", [Fraction(1000), Fraction(10**6), Fraction(10**12)])
def test_huge_epsilons_give_no_noise(epsilon):
    assert not discrete_laplace(100_000, epsilon, 1, Randomness(1)).any()
    assert laplace_variance(epsilon, 1) == 0
    assert laplace_quantile(0.05, epsilon, 1) == 0


def test_no_samples_are_no_samples():
    assert discrete_laplace(0, Fraction(1), UNIT, Randomness(1)).shape == (0,)


@settings(max_examples=60)
@given(st.floats(1e-6, 0.999), st.fractions(Fraction(1, 50), 20))
def test_the_quantile_is_the_smallest_that_holds(alpha, epsilon):
    found = laplace_quantile(alpha, epsilon, 1)
    q = math.exp(-epsilon)

    def beyond(t):
        return 2 * q ** (t + 1) / (1 + q)

    assert beyond(found) <= alpha * (1 + 1e-9)
    assert found == 0 or beyond(found - 1) > alpha * (1 - 1e-9)


def test_the_quantile_covers_what_it_says():
    samples = np.abs(discrete_laplace(400_000, Fraction(1), UNIT, Randomness(9)))
    for alpha in (0.5, 0.05, 0.001):
        outside = int((samples > laplace_quantile(alpha, Fraction(1), UNIT)).sum())
        assert stats.binomtest(outside, samples.size, alpha).pvalue > CERTAIN


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 2, math.nan])
def test_alpha_is_a_probability(alpha):
    with pytest.raises(ParameterError, match="between 0 and 1"):
        laplace_quantile(alpha, Fraction(1), 1)
