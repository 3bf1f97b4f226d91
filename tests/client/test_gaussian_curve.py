"""The Gaussian privacy curve against an integral, and its inverses against it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from mapveil_client.gaussian_curve import (
    gaussian_delta,
    gaussian_deviation,
    gaussian_epsilon,
)


def hockey_stick(epsilon: float, ratio: float) -> float:
    """The divergence by quadrature: the slow, obvious oracle."""

    def excess(x: float) -> float:
        return max(stats.norm.pdf(x, ratio) - math.exp(epsilon) * stats.norm.pdf(x), 0.0)

    crossing = ratio / 2 + epsilon / ratio
    return float(integrate.quad(excess, crossing, crossing + 40, epsabs=1e-15, limit=200)[0])


@pytest.mark.parametrize(("epsilon", "ratio"), [(0.0, 0.1), (0.5, 0.3), (1.0, 1.0), (3.0, 2.0), (8.0, 3.0)])
def test_the_curve_is_the_divergence(epsilon: float, ratio: float) -> None:
    assert gaussian_delta(epsilon, ratio) == pytest.approx(hockey_stick(epsilon, ratio), rel=1e-6, abs=1e-13)


@given(st.floats(0.01, 300), st.floats(-15, -1).map(lambda x: 10.0**x), st.floats(0.01, 100))
def test_the_deviation_is_the_least_one(epsilon: float, delta: float, sensitivity: float) -> None:
    deviation = gaussian_deviation(epsilon, delta, sensitivity)
    assert gaussian_delta(epsilon, sensitivity / deviation) <= delta
    assert gaussian_delta(epsilon, sensitivity / (deviation * 0.9999)) > delta


@given(st.floats(0.01, 300), st.floats(-12, -1).map(lambda x: 10.0**x))
def test_epsilon_and_deviation_are_inverses(epsilon: float, delta: float) -> None:
    assert gaussian_epsilon(delta, 1 / gaussian_deviation(epsilon, delta, 1.0)) == pytest.approx(
        epsilon, rel=1e-6
    )


def test_the_paper_s_figures() -> None:
    # Clip radius 7.154 taken for the sensitivity: what holds is far from what was asked for.
    assert gaussian_deviation(10, 1e-5, 7.154) == pytest.approx(3.576, abs=5e-4)
    assert gaussian_epsilon(1e-5, 2 * 7.154 / gaussian_deviation(1, 1e-5, 7.154)) == pytest.approx(
        2.155, abs=1e-3
    )
    assert gaussian_epsilon(1e-5, 2 * 7.154 / 3.862) == pytest.approx(22.0, abs=0.01)
    # A ratio too small to need any epsilon.
    assert gaussian_epsilon(0.05, 0.01) == 0.0
