"""The law of weighted sums of noise: against exact laws, draws, and the dominated sums of one law."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mapveil.privacy.laplace_sum import laplace_sum_quantile
from mapveil.privacy.weighted_noise import ERROR, WeightedNoise, half_width, tail
from mapveil_client.errors import ParameterError

FINE = 2.0**-28  # users per unit, as a curator's


def law(scales: list[float], terms: list[float] | None = None) -> WeightedNoise:
    """Noises of these Laplace scales, on a fine lattice."""
    a = np.array(scales)
    return WeightedNoise(a * FINE, np.full(a.size, FINE), np.array(terms or [1.0] * a.size))


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-3, 1e-8])
def test_one_noise_has_the_laplace_law(alpha: float) -> None:
    width = half_width(law([3.0]), alpha)
    assert width == pytest.approx(-3 * math.log(alpha), rel=3e-5)
    assert width >= -3 * math.log(alpha) * (1 - 1e-12)


def test_tails_on_both_sides_of_the_middle() -> None:
    x = np.array([-7.0, -0.3, 0.0, 0.2, 2.0, 20.0])
    exact = np.where(x >= 0, np.exp(-np.abs(x)) / 2, 1 - np.exp(-np.abs(x)) / 2)
    found = tail(law([1.0]), x)
    np.testing.assert_allclose(found, exact, rtol=3e-5)
    assert (found >= exact * (1 - 1e-9)).all()


def test_two_noises_have_their_closed_form() -> None:
    # Partial fractions: for scales a > b, P[X > x] = (a^2 e^(-x/a) - b^2 e^(-x/b)) / (2 (a^2 - b^2)).
    a, b, x = 2.0, 0.5, np.array([0.1, 1.0, 5.0, 30.0])
    exact = (a * a * np.exp(-x / a) - b * b * np.exp(-x / b)) / (2 * (a * a - b * b))
    np.testing.assert_allclose(tail(law([a, b]), x), exact, rtol=3 * ERROR)


@pytest.mark.parametrize(
    "scales", [[5.0, 1.0, 0.1], [1.0] * 40, [3.0] + [0.02] * 5000, [2.0**-k for k in range(12)]]
)
def test_against_a_million_draws(scales: list[float]) -> None:
    """Coverage of 10^6 draws within five binomial deviations, for many equal scales through gamma variables."""
    rng = np.random.default_rng(8)
    drawn = np.zeros(1_000_000)
    for scale, count in zip(*np.unique(scales, return_counts=True), strict=True):
        drawn += scale * (rng.gamma(count, size=drawn.size) - rng.gamma(count, size=drawn.size))
    for alpha in (0.3, 0.05, 0.002):
        outside = float((np.abs(drawn) > half_width(law(scales), alpha)).mean())
        assert abs(outside - alpha) <= 5 * math.sqrt(alpha * (1 - alpha) / drawn.size)


@pytest.mark.parametrize(
    ("terms", "epsilon", "unit"), [(3.7, 1, 16), (1, 1, 16), (2, 6, 16), (1, 20, 8), (12.5, 2, 4)]
)
@pytest.mark.parametrize("alpha", [0.3, 0.05, 1e-4])
def test_a_coarse_lattice_is_covered(terms: float, epsilon: int, unit: int, alpha: float) -> None:
    """At least the exact quantile of the lattice, and at most half a unit for each variable of a wide law above it."""
    noise = WeightedNoise(np.array([1 / unit]), np.array([epsilon / unit]), np.array([terms]))
    exact = laplace_sum_quantile(alpha, terms, Fraction(epsilon), unit) / unit
    width = half_width(noise, alpha)
    # A width between two lattice points covers what the lower one covers.
    assert math.floor(width * unit + 1e-9) / unit >= exact
    assert width <= exact + (1 + terms) / unit


def test_weights_and_independent_sums() -> None:
    one, two = law([1.0, 0.3]), law([2.0])
    assert half_width(one.scaled(-2), 0.05) == pytest.approx(2 * half_width(one, 0.05), rel=1e-6)
    both = one.joined(two)
    assert both.variance == pytest.approx(one.variance + two.variance)
    assert both.variance == pytest.approx(2 * (1 + 0.09 + 4), rel=1e-6)


def test_without_noise_there_is_no_width() -> None:
    none = law([0.0])
    assert half_width(none, 0.05) == 0
    assert tail(none, np.array([-1.0, 0.0, 1.0])).tolist() == [1, 0, 0]


@pytest.mark.parametrize("alpha", [0.0, 0.51, 1e-13, math.nan])
def test_probabilities_outside_the_range_are_refused(alpha: float) -> None:
    with pytest.raises(ParameterError, match="alpha must be between"):
        half_width(law([1.0]), alpha)
