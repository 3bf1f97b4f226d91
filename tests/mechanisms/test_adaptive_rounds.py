from __future__ import annotations

import math
from decimal import Decimal, getcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.mechanisms.adaptive_rounds import (
    Noise,
    epsilon_of_deviation,
    next_epsilon,
    rounded_down,
    target_deviation,
    thresholds,
)
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil_client.errors import ParameterError

TENTH, HALF = Fraction(1, 10), Fraction(1, 2)
EPSILON = st.fractions(Fraction(1, 1000), 5)
SENSITIVITY = st.sampled_from([1, 20, 1024, 1 << 28])


def laplace_deviation(epsilon: Fraction | float, sensitivity: int) -> float:
    return math.sqrt(laplace_variance(Fraction(epsilon), sensitivity))


def equation_8(deviation: float, sensitivity: int) -> float:
    """As it is printed, in sixty digits."""
    getcontext().prec = 60
    square = Decimal(deviation) ** 2
    return float(-sensitivity * ((square + 1 - (2 * square + 1).sqrt()) / square).ln())


@given(epsilon=st.floats(1e-6, 30), sensitivity=SENSITIVITY)
def test_equation_8_inverts_equation_5(epsilon: float, sensitivity: int) -> None:
    deviation = laplace_deviation(epsilon * sensitivity, sensitivity)
    assert epsilon_of_deviation(deviation, sensitivity) == pytest.approx(epsilon * sensitivity, rel=1e-9)


@given(deviation=st.floats(1e-12, 1e12), sensitivity=SENSITIVITY)
def test_equation_8_keeps_its_digits_at_either_end(deviation: float, sensitivity: int) -> None:
    assert epsilon_of_deviation(deviation, sensitivity) == pytest.approx(
        equation_8(deviation, sensitivity), rel=1e-12
    )


@given(low=st.floats(1e-3, 10), factor=st.floats(1.001, 100))
def test_less_noise_costs_more(low: float, factor: float) -> None:
    assert epsilon_of_deviation(low, 1) > epsilon_of_deviation(low * factor, 1)
    assert laplace_deviation(low, 1) > laplace_deviation(low * factor, 1)


def test_the_target_is_the_erratum_of_equation_7() -> None:
    # The noise of ten shards has sqrt(10) times a shard's deviation: it comes to c U / T, taken as two deviations.
    one = target_deviation(0.1, 100_000, 64, 10)
    assert one * math.sqrt(10) * 2 == pytest.approx(0.1 * 100_000 / 64)


@pytest.mark.parametrize(
    ("users", "shards", "sizes", "budgets"),
    [
        (10_000, 1, (4, 16, 64), (0.0113, 0.0453, 0.181)),
        (100_000, 10, (4, 16, 64, 253), (0.0036, 0.0143, 0.0572, 0.226)),
    ],
)
def test_the_budgets_are_those_of_the_papers_first_table(
    users: int, shards: int, sizes: tuple[int, ...], budgets: tuple[float, ...]
) -> None:
    for size, budget in zip(sizes, budgets, strict=True):
        wanted = epsilon_of_deviation(target_deviation(0.1, users, size, shards), 1)
        assert wanted == pytest.approx(budget, rel=0.01)


@given(
    remaining=st.fractions(Fraction(1, 10**6), 100),
    wanted=st.floats(1e-9, 1e3),
    b=st.floats(1, 10),
)
def test_equation_9_never_asks_for_more_than_is_left(remaining: Fraction, wanted: float, b: float) -> None:
    epsilon = next_epsilon(remaining, wanted, b)
    assert 0 < epsilon <= remaining
    if epsilon < remaining:
        assert b * wanted <= float(remaining)
        assert epsilon == pytest.approx(wanted, rel=1e-8)
        assert epsilon <= Fraction(wanted)
    else:
        assert b * wanted > float(remaining) * (1 - 1e-8)


@pytest.mark.parametrize("wanted", [math.inf, math.nan, 0.0])
def test_a_wish_that_is_no_number_takes_all(wanted: float) -> None:
    assert next_epsilon(Fraction(1, 3), wanted, 2.0) == Fraction(1, 3)


@given(st.floats(1e-12, 1e12))
def test_rounding_goes_down_and_keeps_nine_digits(epsilon: float) -> None:
    rounded = rounded_down(epsilon)
    assert Fraction(epsilon) * (1 - Fraction(1, 10**8)) <= rounded <= Fraction(epsilon)
    assert len(str(rounded.numerator).rstrip("0")) <= 30


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0, 1), (-1, 1), (1, 0), (math.nan, 1)])
def test_senseless_noise_is_refused(epsilon: float, sensitivity: int) -> None:
    with pytest.raises(ParameterError, match="above 0"):
        epsilon_of_deviation(epsilon, sensitivity)


@given(terms=st.floats(0.5, 1e4), epsilon=EPSILON, scale=st.sampled_from([1, 1024]), more=st.integers(0, 99))
def test_noise_is_that_of_the_sum_in_users(terms: float, epsilon: Fraction, scale: int, more: int) -> None:
    noise = Noise(terms, scale + more, scale)
    variance = terms * laplace_variance(epsilon, scale + more) / scale**2
    assert noise.deviation(epsilon) ** 2 == pytest.approx(variance, rel=1e-9)


@given(spent=EPSILON, remaining=EPSILON, k=st.floats(0, 5), terms=st.integers(1, 100))
def test_the_experiments_look_at_the_better_of_both_rounds(
    spent: Fraction, remaining: Fraction, k: float, terms: int
) -> None:
    made = thresholds("experiments", k, 0.25, Noise(terms, 1, 1), spent, remaining, 7.0)
    best = min(laplace_deviation(spent, 1), laplace_deviation(remaining, 1))
    assert made.split == pytest.approx(k * math.sqrt(terms) * best)
    assert made.collapse == made.split / 4


@given(spent=EPSILON, remaining=EPSILON)
def test_equation_6_looks_at_what_is_left(spent: Fraction, remaining: Fraction) -> None:
    made = thresholds("equation-6", 2.0, 0.25, Noise(1, 1, 1), spent, remaining, 7.0)
    assert made.split == pytest.approx(2 * laplace_deviation(remaining, 1))


def test_algorithm_2_takes_the_target_of_the_round_which_is_two_deviations_of_its_noise() -> None:
    target = target_deviation(0.1, 30_000, 64, 3)
    made = thresholds("algorithm-2", 2.0, 0.25, Noise(3, 1, 1), TENTH, HALF, target)
    assert made.split == pytest.approx(0.1 * 30_000 / 64)
    drawn = Noise(3, 1, 1).deviation(Fraction(epsilon_of_deviation(target, 1)))
    assert made.split == pytest.approx(2 * drawn)


def test_a_number_is_the_threshold_itself() -> None:
    assert thresholds(10, 2.0, 0.25, Noise(3, 1, 1), TENTH, HALF, 7.0) == (10, 2.5)


def test_nodes_that_never_collapse_are_kept_even_below_zero() -> None:
    assert thresholds(10, 2.0, None, Noise(3, 1, 1), TENTH, HALF, 7.0).collapse == -math.inf
