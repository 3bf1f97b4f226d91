from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.mechanisms.budget_schedule import epsilon_of_deviation, laplace_deviation, target_deviation
from mapveil.mechanisms.split_thresholds import Noise, thresholds
from mapveil.privacy.laplace_sum import laplace_sum_variance

TENTH, HALF = Fraction(1, 10), Fraction(1, 2)
EPSILON = st.fractions(Fraction(1, 1000), 5)


@given(terms=st.floats(0.5, 1e4), epsilon=EPSILON, scale=st.sampled_from([1, 1024]), more=st.integers(0, 99))
def test_noise_is_that_of_the_sum_in_users(terms: float, epsilon: Fraction, scale: int, more: int) -> None:
    noise = Noise(terms, scale + more, scale)
    variance = laplace_sum_variance(terms, epsilon, scale + more) / scale**2
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
