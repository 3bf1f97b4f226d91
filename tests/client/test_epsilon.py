"""Exact epsilons: read as written, split without exceeding the whole."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.epsilon import as_epsilon, plain, split_epsilon
from mapveil_client.errors import ParameterError


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (1, Fraction(1)),
        (0.1, Fraction(1, 10)),
        ("0.5", Fraction(1, 2)),
        ("1/3", Fraction(1, 3)),
        ("1e-3", Fraction(1, 1000)),
        (Decimal("0.30"), Fraction(3, 10)),
        (Fraction(2, 7), Fraction(2, 7)),
        (np.float64(0.25), Fraction(1, 4)),
        (np.int64(3), Fraction(3)),
    ],
)
def test_an_epsilon_is_read_exactly(value, exact):
    assert as_epsilon(value) == exact


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        0.0,
        math.nan,
        math.inf,
        -math.inf,
        "",
        "one",
        "1/0",
        "nan",
        "inf",
        None,
        [],
        True,
        Decimal("Infinity"),
    ],
)
def test_what_is_no_epsilon_is_refused_with_its_value(value):
    with pytest.raises(ParameterError) as caught:
        as_epsilon(value, "budget")
    text = str(caught.value)
    assert text.startswith("budget must be a finite number above 0")
    assert repr(value) in text
    assert "\n" not in text


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_float_means_the_decimal_it_prints_as(value):
    assert as_epsilon(value) == Fraction(repr(value))
    assert float(as_epsilon(value)) == value


totals = st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=10**9)
weights = st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=12)


@given(totals, weights)
def test_parts_sum_to_the_whole_exactly(total, shares):
    parts = split_epsilon(total, shares)
    assert len(parts) == len(shares)
    assert sum(parts) == total


@given(totals, weights)
def test_parts_are_proportional(total, shares):
    *parts, last = split_epsilon(total, shares)
    whole = sum(map(Fraction, shares))
    for part, share in zip(parts, shares, strict=False):
        wanted = total * Fraction(share) / whole
        assert wanted - Fraction(1, 1 << 40) < part <= wanted
    wanted = total * Fraction(shares[-1]) / whole
    assert wanted <= last < wanted + Fraction(len(shares), 1 << 40)


@pytest.mark.parametrize("shares", [[], [0.0], [1.0, -1.0], [math.nan], [1.0, math.inf]])
def test_shares_must_be_positive_and_finite(shares):
    with pytest.raises(ParameterError, match="positive finite"):
        split_epsilon(Fraction(1), shares)


def test_a_part_that_rounds_to_nothing_is_refused():
    with pytest.raises(ParameterError, match="too small"):
        split_epsilon(Fraction(1, 1 << 39), [1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    "value",
    [
        "1e400",
        "1e-400",
        "1e999999999",
        "1e-999999999",
        1e13,
        9e-13,
        Fraction(1, 10**400),
        "9" * 400,
    ],
)
def test_an_epsilon_far_from_any_use_is_refused_in_short(value):
    with pytest.raises(ParameterError, match=r"^epsilon must be between 1e-12 and 1e12, got ") as caught:
        as_epsilon(value)
    assert len(str(caught.value)) < 80


@pytest.mark.parametrize("digits", [1000, 5000])
def test_a_fraction_too_fine_to_be_added_up_is_refused(digits):
    with pytest.raises(ParameterError, match="denominator of at most 1,000 digits"):
        as_epsilon(Fraction(10**digits + 2, 10**digits + 1))
    with pytest.raises(ParameterError, match="between 1e-12 and 1e12"):
        as_epsilon(10**digits)


def test_a_sum_of_more_digits_than_python_writes_is_rounded():
    assert plain(1 + Fraction(1, 10**5000 + 1)) == "1"


def test_the_limits_are_epsilons():
    assert as_epsilon("1e12") == 1 / as_epsilon("1e-12") == 10**12
