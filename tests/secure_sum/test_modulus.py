"""The modulus: as few bits as the exact law of the noise allows, and sums that come back as they were."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mapveil.secure_sum.modulus import centre, highest_sum, smallest_modulus
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

from ..privacy.noise_totals import noise_totals

CERTAIN = 1e-9


def window(bits, highest):
    """The room around [0, highest] that bits leave, evenly."""
    below = ((1 << bits) - highest) // 2
    return -below, (1 << bits) - below - 1


@given(st.integers(1, 64), st.data())
def test_sums_come_back_from_anywhere_in_the_window(bits, data):
    highest = data.draw(st.integers(0, (1 << bits) - 1 if bits < 64 else (1 << 63) - 1))
    low, high = window(bits, highest) if bits < 64 else (-(1 << 63), (1 << 63) - 1)
    exact = data.draw(st.lists(st.one_of(st.integers(low, high), st.sampled_from([low, high])), min_size=1))
    residues = np.array([value % (1 << bits) for value in exact], dtype=np.uint64)
    assert centre(residues, bits, highest).tolist() == exact
    if bits < 64:  # a sum of words carries bits above the modulus
        residues += np.uint64(1 << bits)
        assert centre(residues, bits, highest).tolist() == exact


def test_the_window_holds_every_exact_sum_and_as_much_noise_on_both_sides():
    for bits in range(4, 64):
        low, high = window(bits, 11)
        assert low <= 0
        assert high >= 11
        assert abs(-low - (high - 11)) <= 1
        assert centre(np.array([high + 1 & (1 << bits) - 1], dtype=np.uint64), bits, 11)[0] == low


CASES = [
    (1000, 1, 1254, Fraction(1), Fraction(1), 1),
    (1000, 1, 1, Fraction(1000, 950), Fraction(1, 100), 1),
    (10_000, 1, 10**6, Fraction(10_000, 9500), Fraction(1, 280), 1),
    (50, 100, 16, 1.2, Fraction(1, 2), 100),
    (3, 1, 1, 3.0, Fraction(10), 1),
]


def overflow(bits, size, most, length, terms, epsilon, sensitivity):
    """Probability that one of the coordinates leaves: the union bound by the exact law, sums of its binomials."""
    rate, highest = float(epsilon / sensitivity), size * most
    low, high = window(bits, highest)
    room = min(-low, high - highest)
    b = np.arange(min(int(200 * max(float(terms), 1) / rate) + 200, 200_000))
    law = stats.nbinom.pmf(b, float(terms), -math.expm1(-rate))
    return 2 * length * float(law @ stats.nbinom.sf(room + b, float(terms), -math.expm1(-rate)))


@pytest.mark.parametrize("case", CASES)
def test_bits_are_the_fewest_that_the_exact_law_allows(case):
    bits = smallest_modulus(*case)
    assert overflow(bits, *case) < 2.0**-40
    assert overflow(bits - 1, *case) > 2.0**-40


@settings(max_examples=12)
@given(
    st.integers(1, 10_000),
    st.integers(1, 1 << 28),
    st.integers(1, 10**6),
    st.floats(0.5, 4),
    st.fractions(Fraction(1, 50), 5),
)
def test_more_of_anything_never_needs_fewer_bits(size, most, length, terms, epsilon):
    bits = smallest_modulus(size, most, length, terms, epsilon, most)
    assert bits >= (size * most).bit_length()
    assert smallest_modulus(2 * size, most, length, terms, epsilon, most) >= bits
    assert smallest_modulus(size, most, 100 * length, terms, epsilon, most) >= bits
    assert smallest_modulus(size, most, length, terms, epsilon / 2, most) >= bits
    assert smallest_modulus(size, most, length, terms, epsilon, most, failure=0.01) <= bits


def test_sums_overflow_as_rarely_as_was_said_and_the_test_has_power():
    # A failure that can be seen: 1,000 sums of 100 coordinates, all of whose data is at the worst place.
    arguments = (40, 1, 100, 1.25, Fraction(1, 3), 1)
    bits = smallest_modulus(*arguments, failure=0.05)
    highest = highest_sum(40, 1)

    def lost(bits):
        noise = noise_totals(100_000, 1.25, Fraction(1, 3), 1, Randomness(5))
        exact = np.where(np.arange(100_000) % 2, highest, 0)
        residues = ((exact + noise) % (1 << bits)).astype(np.uint64)
        return int((centre(residues, bits, highest) != exact + noise).reshape(1000, 100).any(axis=1).sum())

    assert stats.binomtest(lost(bits), 1000, 0.05, alternative="greater").pvalue > CERTAIN
    assert stats.binomtest(lost(bits - 1), 1000, 0.05, alternative="greater").pvalue < CERTAIN


def test_sums_beyond_64_bits_are_refused():
    assert smallest_modulus(1 << 15, 1 << 28, 1, 1, Fraction(1, 10**4), 1 << 28) < 64
    assert smallest_modulus(1 << 32, 1 << 30, 1, 1, Fraction(1), 1 << 31) == 63
    with pytest.raises(ParameterError, match="more than 64 bits"):
        smallest_modulus(1 << 32, 1 << 31, 1, 1, Fraction(1), 1 << 31)
    with pytest.raises(ParameterError, match="more than 64 bits"):
        smallest_modulus(10, 1 << 31, 1, 1, Fraction(1, 10**12), 1 << 31)


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 1, 1, 1, Fraction(1), 1),
        (1, 0, 1, 1, Fraction(1), 1),
        (1, 1, 0, 1, Fraction(1), 1),
        (1, 1, 1, 0, Fraction(1), 1),
        (1, 1, 1, 1, Fraction(0), 1),
        (1, 1, 1, 1, Fraction(1), 0),
    ],
)
def test_numbers_outside_their_range_are_refused(arguments):
    with pytest.raises(ParameterError, match=r"must be|expected"):
        smallest_modulus(*arguments)
    with pytest.raises(ParameterError, match="a probability"):
        smallest_modulus(1, 1, 1, 1, Fraction(1), 1, failure=0.0)


@pytest.mark.parametrize(("bits", "highest"), [(0, 1), (65, 1), (8, -1), (64, 1 << 63)])
def test_a_window_outside_its_range_is_refused(bits, highest):
    with pytest.raises(ParameterError, match=r"must be|expected"):
        centre(np.zeros(1, dtype=np.uint64), bits, highest)
