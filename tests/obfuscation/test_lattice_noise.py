"""Noise on a lattice: the laws exactly, the draws statistically, and no trace of the value's last bits."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil.obfuscation.privatizers.lattice_noise import (
    RESOLUTION,
    add_gaussian,
    add_laplacian,
    laplacian_resolution,
    laplacian_table,
    normal_table,
)
from mapveil.obfuscation.privatizers.truncated_laplacian import TruncatedLaplacian
from mapveil_client.errors import ParameterError
from mapveil_client.gaussian_curve import gaussian_deviation
from mapveil_client.randomness.logarithmic import SlotTable
from mapveil_client.randomness.random import Randomness

COUNT = 400_000


def law(table: SlotTable) -> dict[int, float]:
    """Probability of each outcome, exact but for the last division."""
    units: dict[int, int] = {}
    for value, slots in zip(*np.unique(table.values[: table.first_escape], return_counts=True), strict=True):
        units[int(value)] = int(slots) << 80
    before = 0
    for outcome, bound in zip(table.outcomes, table.cumulated, strict=True):
        units[int(outcome)] = units.get(int(outcome), 0) + bound - before
        before = bound
    assert sum(units.values()) == 1 << 96
    return {outcome: count / 2**96 for outcome, count in units.items()}


def test_the_gaussian_table_is_the_rounded_normal_law() -> None:
    found = law(normal_table())
    assert set(found) == set(range(-2432, 2433))
    for z in (0, 1, 2, 100, 700, 1500, 2300, 2432):
        low, high = (z - 0.5) / RESOLUTION, (z + 0.5) / RESOLUTION
        # Differences of survival functions keep their digits in the tail.
        expected = stats.norm.sf(low) - stats.norm.sf(high)
        assert found[z] == pytest.approx(expected, rel=1e-6 if z > 2000 else 1e-9)
        assert found[-z] == pytest.approx(found[z], rel=1e-6)
    assert sum(p * z * z for z, p in found.items()) == pytest.approx(RESOLUTION**2 + 1 / 12, rel=1e-12)


@pytest.mark.parametrize("span", ["0.0001", "0.001953125", "0.3", "5", "22.17", "37.5", "300"])
def test_the_laplacian_table_is_the_rounded_truncated_law(span: str) -> None:
    found = law(laplacian_table(Decimal(span)))
    steps = laplacian_resolution(Decimal(span))
    end = float(span)

    def below(x: float) -> float:
        return 0.5 + math.copysign(-math.expm1(-abs(x)) / 2, x) / -math.expm1(-end)

    for z in {0, 1, 7, max(found) - 1, max(found)} & set(found):
        low, high = ((z + half) / steps for half in (-0.5, 0.5))
        expected = below(min(high, end)) - below(max(low, -end))
        assert found[z] == pytest.approx(expected, abs=1e-14)
        assert found.get(-z) == pytest.approx(expected, abs=1e-14)
    # Nothing lies beyond the cut, and the cell of the cut is there.
    assert (max(found) - 0.5) / steps < end <= (max(found) + 0.5) / steps


def slack(found: dict[int, float], steps: int, epsilon: float) -> float:
    """The delta of the drawn law at epsilon, for two values so many steps apart."""
    return math.fsum(max(p - math.exp(epsilon) * found.get(z - steps, 0.0), 0.0) for z, p in found.items())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_the_drawn_laws_keep_epsilon_and_delta(epsilon: float, delta: float) -> None:
    # Clipped values are at most epsilon scales, or the sensitivity, apart; both are rounded towards zero.
    most_delta = delta + 1e-15  # the rounding of the sums below
    span = TruncatedLaplacian(epsilon=str(epsilon), delta=delta).span
    table, steps = laplacian_table(span), laplacian_resolution(span) * epsilon
    for apart in (1, int(steps) // 2, int(steps)):
        assert slack(law(table), apart, epsilon) <= most_delta
    assert slack(law(table), int(steps) + 9, epsilon) > delta
    ratio = 1 / gaussian_deviation(epsilon, delta, 1.0)
    found, most = law(normal_table()), math.floor(ratio * RESOLUTION)
    assert slack(found, most, epsilon) <= most_delta
    assert slack(found, most + 9, epsilon) > delta


def test_long_laplacians_have_fewer_steps_and_too_long_ones_are_refused() -> None:
    assert laplacian_resolution(Decimal(30)) == RESOLUTION
    assert laplacian_resolution(Decimal(100)) == 64
    with pytest.raises(ParameterError, match="a truncated Laplacian of 10000 scales"):
        laplacian_resolution(Decimal(10_000))


def kolmogorov(noise: np.ndarray, cdf: object) -> float:
    return float(stats.kstest(noise, cdf).pvalue)


def test_gaussian_noise_has_its_deviation_and_no_other() -> None:
    noise = add_gaussian(np.zeros((COUNT // 4, 4)), 3.0, Randomness(1)).ravel()
    # Half a step of jitter makes the lattice continuous again; its law is that of the noise to 1e-5.
    smooth = noise + (np.random.default_rng(2).random(COUNT) - 0.5) * 3 / RESOLUTION
    assert kolmogorov(smooth, stats.norm(scale=3.0).cdf) > 1e-9
    for wrong in (0.7, 1.3):
        assert kolmogorov(smooth, stats.norm(scale=3.0 * wrong).cdf) < 1e-9


def test_laplacian_noise_has_its_scale_and_its_end() -> None:
    span = Decimal("3.5")
    noise = add_laplacian(np.zeros((COUNT // 4, 4)), 2.0, span, Randomness(1)).ravel()
    smooth = noise + (np.random.default_rng(2).random(COUNT) - 0.5) * 2 / RESOLUTION

    def cdf(x: np.ndarray, scale: float = 2.0, end: float = 7.0) -> np.ndarray:
        inside = np.sign(x) * np.expm1(-np.minimum(np.abs(x), end) / scale) / np.expm1(-end / scale)
        return 0.5 + inside / 2

    assert kolmogorov(smooth, cdf) > 1e-9
    for wrong in (0.7, 1.3):
        assert kolmogorov(smooth, lambda x, w=wrong: cdf(x, 2.0 * w, 7.0 * w)) < 1e-9
        assert kolmogorov(smooth, lambda x, w=wrong: cdf(x, 2.0 * w)) < 1e-9
    assert np.abs(noise).max() <= 7.0 + 1 / RESOLUTION
    assert np.abs(noise).max() > 6.9


@given(st.floats(-8, 8), st.floats(-8, 8), st.integers(0, 2**32))
def test_two_values_give_outputs_on_one_lattice(first: float, second: float, seed: int) -> None:
    # Whatever the value, an output is a whole multiple of the step: its last bits say nothing.
    step = 0.37 / RESOLUTION
    made = add_gaussian(np.array([[first, second]]), 0.37, Randomness(seed))
    assert (made == np.round(made / step) * step).all()


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20))
def test_the_lattice_takes_values_towards_zero(values: list[float]) -> None:
    # So the norm of a clipped row cannot grow.
    given_rows = np.array([values])
    step = 0.5 / RESOLUTION
    kept = add_gaussian(given_rows, 0.5, Randomness(3)) - add_gaussian(
        np.zeros_like(given_rows), 0.5, Randomness(3)
    )
    assert (np.abs(kept) <= np.abs(given_rows) + 1e-9).all()
    assert (np.abs(kept - given_rows) <= step * (1 + 1e-9)).all()
