"""Whole weights below e^epsilon."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.epsilon import ceil_log, keeps, odds, power
from mapveil_client.errors import ParameterError

EPSILONS = st.fractions(min_value=Fraction(1, 1000), max_value=30, max_denominator=1000)


@given(EPSILONS)
def test_power_is_just_below_the_exponential(epsilon: Fraction) -> None:
    assert float(power(epsilon)) == pytest.approx(math.exp(epsilon), rel=1e-14)
    # Fractions of Taylor's series are below the exponential too, and nearly it.
    term, total = Fraction(1), Fraction(1)
    for k in range(1, 180):
        term = term * epsilon / k
        total += term
    assert total - Fraction(1, 10**50) * total < power(epsilon) < total + Fraction(1, 10**20)


@given(EPSILONS, st.integers(20, 60), st.integers(0, 40))
def test_odds_keep_the_promise_and_little_is_lost(epsilon: Fraction, more: int, less: int) -> None:
    if math.exp(epsilon) < 1 + 2.0**-less:
        return
    made = odds(epsilon, more, less)
    assert keeps(Fraction(*made), epsilon)
    assert made.more < 1 << more
    assert made.less <= 1 << less
    if made.less > 1:
        assert not keeps(Fraction(made.more + 1, made.less), epsilon)


def test_a_factor_that_does_not_fit_is_as_large_as_fits() -> None:
    assert odds(Fraction(10**6), 50) == ((1 << 50) - 1, 1)


def test_an_epsilon_that_no_weights_can_tell_from_none_is_refused() -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        odds(Fraction(1, 10**9), 40, 10)


@given(st.fractions(min_value=1, max_value=10**6))
def test_the_logarithm_is_rounded_up(ratio: Fraction) -> None:
    found = ceil_log(ratio)
    assert found >= math.log(ratio) * (1 - 1e-15)
    assert found == pytest.approx(math.log(ratio), abs=1e-12)
