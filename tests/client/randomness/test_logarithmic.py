"""Logarithmic steps: the bins in integers, the acceptance in decimals, the samples by statistics with power."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import exp1

from mapveil_client.errors import ParameterError
from mapveil_client.randomness import logarithmic as module
from mapveil_client.randomness.logarithmic import logarithmic_rate, signed_logarithmic
from mapveil_client.randomness.random import Randomness

CERTAIN = 1e-9
WIDE = decimal.Context(prec=120)
NARROW_LAWS = [
    (Fraction(1), 1),
    (Fraction(1, 3), 1),
    (Fraction(5), 1),
    (Fraction(1, 20), 1),
    (Fraction(200), 1),
]
WIDE_LAWS = [
    (Fraction(1, 30), 1),  # about where the bins stop being single values
    (Fraction(1, 100), 1),
    (Fraction(37, 7), 1000),
    (Fraction(1), 1 << 20),
    (Fraction(1), 1 << 28),
    (Fraction(1, 1000), 1 << 28),
]
LAWS = NARROW_LAWS + WIDE_LAWS


def bins_of(sampler):
    """Start and width exponent of the bins of positive values, after a look at their mirror images."""
    size = sampler.lowest.size // 2
    start, width = sampler.lowest[:size], (64 - sampler.spare.astype(np.int64))[:size]
    assert np.array_equal(sampler.lowest[size:], -(start + (1 << width) - 1))
    assert np.array_equal(sampler.spare[size:], sampler.spare[:size])
    assert np.array_equal(sampler.sure[size:], sampler.sure[:size])
    return start, width


def exact_rate(epsilon, sensitivity):
    return Decimal(epsilon.numerator) / Decimal(epsilon.denominator * sensitivity)


@pytest.mark.parametrize(("epsilon", "sensitivity"), NARROW_LAWS)
def test_single_bins_are_within_2_to_the_minus_60_of_the_law(units_of, epsilon, sensitivity):
    sampler = module._sampler(epsilon, sensitivity)
    assert sampler.single
    units = units_of(sampler.bins)
    with decimal.localcontext(WIDE):
        beta = (-exact_rate(epsilon, sensitivity)).exp()
        scale = -(1 - beta).ln()
        assert abs(logarithmic_rate(epsilon, sensitivity) - scale) < Decimal("1e-60")
        rest, apart = Decimal(1), Decimal(0)
        for k in range(1, len(units) // 2 + 1):
            law = beta**k / (2 * k * scale)
            apart += abs(Decimal(units[k]) / (1 << 96) - law) + abs(Decimal(units[-k]) / (1 << 96) - law)
            rest -= 2 * law
        assert (apart + abs(rest)) / 2 < Decimal(2) ** -60


@pytest.mark.parametrize(("epsilon", "sensitivity"), WIDE_LAWS)
def test_bins_tile_the_magnitudes_and_are_drawn_by_their_largest_weight(units_of, epsilon, sensitivity):
    # With a(c, d) = beta^d c / (c + d), which is kept, any magnitude k = c + d comes out in proportion to
    # 2^j beta^c / c / 2^j * a = beta^k / k: the law, if bins tile and their table is right.
    sampler = module._sampler(epsilon, sensitivity)
    assert not sampler.single
    start, width = bins_of(sampler)
    assert start[0] == 1
    assert np.array_equal(start[1:], start[:-1] + (1 << width[:-1]))
    units = units_of(sampler.bins)
    with decimal.localcontext(WIDE):
        rate = exact_rate(epsilon, sensitivity)
        weight = [(1 << int(j)) * (-rate * int(c)).exp() / int(c) for c, j in zip(start, width, strict=True)]
        total = 2 * sum(weight)
        apart = Decimal(0)
        assert sorted(units) == list(range(2 * start.size))
        for b, w in enumerate(weight + weight):
            apart += abs(Decimal(units[b]) / (1 << 96) - w / total)
        assert apart / 2 < Decimal(2) ** -80
        end = int(start[-1]) + (1 << int(width[-1]))
        beyond = (-rate * end).exp() / (end * (1 - (-rate).exp())) / logarithmic_rate(epsilon, sensitivity)
        assert beyond < Decimal(2) ** -62


@pytest.mark.parametrize(("epsilon", "sensitivity"), WIDE_LAWS)
def test_what_is_kept_without_a_look_would_be_kept_with_one(epsilon, sensitivity):
    sampler = module._sampler(epsilon, sensitivity)
    with decimal.localcontext(WIDE):
        rate = exact_rate(epsilon, sensitivity)
        for c, width, sure in zip(*bins_of(sampler), sampler.sure[: sampler.sure.size // 2], strict=True):
            last = (1 << int(width)) - 1
            least = (-rate * last).exp() * int(c) / (int(c) + last)
            assert int(sure) <= least * 4096 < int(sure) + 1 or (last == 0 and sure == 4096)


@settings(max_examples=200)
@given(st.data())
def test_keeping_compares_as_exact_numbers_do(prescribed, data):
    epsilon, sensitivity = data.draw(st.sampled_from(WIDE_LAWS))
    sampler = module._sampler(epsilon, sensitivity)
    start, width = bins_of(sampler)
    at = data.draw(st.integers(40, start.size - 1))
    c, j = int(start[at]), int(width[at])
    d = data.draw(st.integers(0, (1 << j) - 1))
    with decimal.localcontext(WIDE):
        kept = (-exact_rate(epsilon, sensitivity) * d).exp() * c / (c + d)
        near = int(kept * (1 << 64))
    # The first 64 bits at, next to, near and far from the probability; the last 64 any.
    off = data.draw(st.sampled_from([0, 0, 0, -1, 1, 1 << 20, -(1 << 20), 1 << 30, -(1 << 30), 1 << 55]))
    high = min(max(near + off, 0), 2**64 - 1)
    low = data.draw(st.integers(0, 2**64 - 1))
    tie = abs(high * 2.0**-64 - float(kept)) < module._MARGIN
    stream = prescribed([(high << 12) % 2**64], *([[low]] if tie else []))
    decided = module._keep(
        np.array([c]), np.array([d]), np.array([high >> 52], dtype=np.uint16), sampler.rate, stream
    )
    assert not stream.given
    with decimal.localcontext(WIDE):
        assert bool(decided[0]) == ((high << 64 | low) < kept * (1 << 128))


@given(st.sampled_from(WIDE_LAWS), st.integers(0, 2**64 - 1), st.data())
def test_a_value_is_put_together_from_its_words(prescribed, law, word, data):
    sampler = module._sampler(*law)
    start, width = bins_of(sampler)
    at = data.draw(st.integers(0, start.size - 1))
    inside = word >> (64 - int(width[at]))
    values = np.zeros(2, dtype=np.int64)
    doubt = module._within(
        values, np.array([at, start.size + at], dtype=np.int16), sampler, prescribed([word, word])
    )
    assert values[0] == int(start[at]) + inside
    assert values[1] == -(int(start[at]) + (1 << int(width[at])) - 1 - inside)
    sure = word & 0xFFF < int(sampler.sure[at])
    assert doubt.at.tolist() == ([] if sure else [0, 1])
    assert doubt.first.tolist() == ([] if sure else [word & 0xFFF] * 2)


@given(st.sampled_from(WIDE_LAWS), st.booleans(), st.integers(0, 0xFFF), st.data())
def test_the_distance_from_the_start_of_the_bin_decides(prescribed, law, negative, first, data):
    # The same value is kept with the same probability, whichever its sign, and a refused one is drawn again.
    sampler = module._sampler(*law)
    start, width = bins_of(sampler)
    at = data.draw(st.integers(70, start.size - 1))
    c, j = int(start[at]), int(width[at])
    inside = data.draw(st.integers(0, (1 << j) - 1))
    word = ((((1 << j) - 1 - inside) if negative else inside) << (64 - j)) | first
    with decimal.localcontext(WIDE):
        kept = (-exact_rate(*law) * inside).exp() * c / (c + inside)
        keeps = (first << 52) + (1 << 51) < kept * (1 << 64)
    looked = first >= int(sampler.sure[at])
    # The bin has a slot: the table escapes once at most in 32 draws, and then there are slots of their own.
    slots = np.flatnonzero(sampler.bins.values == (start.size + at if negative else at))
    assume(slots.size > 0 and slots[0] < sampler.bins.first_escape)
    three = int(np.flatnonzero(sampler.bins.values == 2)[0])
    redrawn = [] if keeps or not looked else [[three], [0], []]
    stream = prescribed([slots[0]], [word], [1 << 63] if looked else [], *redrawn)
    value = int(signed_logarithmic(1, *law, stream)[0])
    assert not stream.given
    assert value == ((-(c + inside) if negative else c + inside) if not redrawn else 3)


def beyond(edges, rate):
    """Pr[K >= edge] for the magnitudes, by sums below 2^16 and integrals above, good to 1e-9."""
    scale = -math.log(-math.expm1(-rate))
    law = np.exp(-rate * np.arange(1, 1 << 16)) / np.arange(1, 1 << 16) / scale
    below = np.concatenate([[0.0], np.cumsum(law)])
    edges = np.asarray(edges, dtype=float)
    # Midpoint rule: the sum from k on is the integral from k - 1/2, to the second order in 1 / k.
    return np.where(
        edges < 1 << 16,
        1 - below[np.minimum(edges, 1 << 16).astype(int) - 1],
        exp1(rate * (edges - 0.5)) / scale,
    )


def fits(samples, rate):
    if rate > 0.1:
        edges = np.arange(1, int(20 / rate) + 2)
    else:
        edges = np.unique(np.geomspace(1, 20 / rate, 60).astype(np.int64))
    wanted = np.append(-np.diff(beyond(edges, rate)), beyond(edges[-1:], rate)) * samples.size
    observed = np.bincount(np.searchsorted(edges, samples, side="right") - 1, minlength=edges.size)
    group = np.unique(np.minimum(np.cumsum(wanted) // 20, samples.size // 20 - 1), return_inverse=True)[1]
    wanted, observed = np.bincount(group, wanted), np.bincount(group, observed)
    return stats.chisquare(observed, wanted * (samples.size / wanted.sum())).pvalue


@pytest.mark.parametrize(("epsilon", "sensitivity"), LAWS[:2] + LAWS[3:4] + WIDE_LAWS)
def test_samples_follow_the_law_and_the_test_has_power(epsilon, sensitivity):
    samples = np.abs(signed_logarithmic(400_000, epsilon, sensitivity, Randomness(31)))
    rate = float(epsilon / sensitivity)
    assert fits(samples, rate) > CERTAIN
    for factor in (0.7, 1.3):
        assert fits(samples, rate * factor) < CERTAIN


@pytest.mark.parametrize(("epsilon", "sensitivity"), LAWS)
def test_the_mean_magnitude_and_the_signs_are_the_laws(epsilon, sensitivity):
    samples = signed_logarithmic(200_000, epsilon, sensitivity, Randomness(32))
    assert samples.all()
    rate = float(epsilon / sensitivity)
    scale = -math.log1p(-math.exp(-rate)) if rate > 1 else -math.log(-math.expm1(-rate))
    mean = math.exp(-rate) / (-math.expm1(-rate) * scale)
    magnitudes = np.abs(samples).astype(float)
    assert abs(magnitudes.mean() - mean) <= 6.2 * magnitudes.std() / math.sqrt(samples.size)
    assert stats.binomtest(int((samples > 0).sum()), samples.size).pvalue > CERTAIN
    large = magnitudes > mean
    if large.sum() > 1000:
        assert stats.binomtest(int((samples[large] > 0).sum()), int(large.sum())).pvalue > CERTAIN


def test_low_bits_of_wide_magnitudes_are_even_and_independent():
    samples = np.abs(signed_logarithmic(450_000, Fraction(1, 1000), 1 << 28, Randomness(33)))
    large = samples[samples > 1 << 28]
    assert large.size > 100_000
    for place in (0, 7, 13, 16):
        low = (large >> place) & 0xFF
        assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > CERTAIN
    pairs = (large[:-1:2] & 0xF) * 16 + (large[1::2] & 0xF)
    assert stats.chisquare(np.bincount(pairs, minlength=256)).pvalue > CERTAIN


def test_a_seed_repeats_the_steps_and_chunks_do_not():
    for epsilon, sensitivity in (LAWS[0], LAWS[-1]):
        size = 2 * module._CHUNK
        first = signed_logarithmic(size, epsilon, sensitivity, Randomness(1))
        assert np.array_equal(first, signed_logarithmic(size, epsilon, sensitivity, Randomness(1)))
        assert not np.array_equal(first[: module._CHUNK], first[module._CHUNK :])


@pytest.mark.parametrize("epsilon", [Fraction(100), Fraction(10**7), Fraction(10**12)])
def test_steps_of_a_huge_epsilon_are_of_one(epsilon):
    assert (np.abs(signed_logarithmic(1000, epsilon, 1, Randomness(1))) == 1).all()
    assert signed_logarithmic(0, epsilon, 1, Randomness(1)).shape == (0,)


def test_the_widest_scale_fits_and_a_wider_one_is_refused():
    samples = signed_logarithmic(10_000, Fraction(1, 2**26), 1 << 26, Randomness(3))
    assert (1 << 48) < np.abs(samples).max() < 1 << 58
    for epsilon in (Fraction(1, 10**12), Fraction(1, 10**40)):
        with pytest.raises(ParameterError, match="a larger epsilon"):
            signed_logarithmic(1, epsilon, 1 << 26, Randomness(1))


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), 0)])
def test_a_scale_that_is_not_positive_is_refused(epsilon, sensitivity):
    with pytest.raises(ParameterError, match="sensitivity must be above 0"):
        signed_logarithmic(1, epsilon, sensitivity, Randomness(1))
