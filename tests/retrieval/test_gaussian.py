"""The law of secrets and errors: the table is exact, the samples follow it, and the test can tell."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from mapveil.retrieval.gaussian import LARGEST, draw_gaussian, gaussian_table
from mapveil.retrieval.lattice_parameters import DEVIATION, SECRET, failure_log2
from mapveil_client.randomness.logarithmic import SLOTS
from mapveil_client.randomness.random import Randomness


def units() -> dict[int, int]:
    """The probability of each outcome in the table, in units of 2^-96."""
    table = gaussian_table()
    assert table.first_escape <= SLOTS
    filled = np.bincount(table.values[: table.first_escape].astype(int) + LARGEST, minlength=2 * LARGEST + 1)
    rests = np.diff(np.array([0, *table.cumulated], dtype=object))
    return {
        int(k): int(filled[k + LARGEST]) * (1 << 80) + int(rest)
        for k, rest in zip(table.outcomes, rests, strict=True)
    }


def law(deviation: float) -> np.ndarray:
    k = np.arange(-LARGEST, LARGEST + 1)
    weights = np.exp(-(k**2) / (2 * deviation**2))
    return weights / weights.sum()


def test_the_table_is_the_law_to_two_to_the_minus_88():
    held = units()
    assert sum(held.values()) == 1 << 96
    with localcontext() as context:
        context.prec = 80
        rate = 1 / (2 * (Decimal(DEVIATION.numerator) / DEVIATION.denominator) ** 2)
        weights = {k: (-rate * k * k).exp() for k in range(-3 * LARGEST, 3 * LARGEST + 1)}
        total = sum(weights.values())
        distance = sum(abs(Decimal(held.get(k, 0)) / (1 << 96) - w / total) for k, w in weights.items()) / 2
    assert -96 < math.log2(distance) < -88
    # What the failure bound counts for it, and nothing less.
    assert failure_log2(1, 1) >= math.log2(distance * (SECRET + 1))


def test_the_law_has_its_deviation():
    held = units()
    variance = sum(k * k * value for k, value in held.items()) / 2**96
    assert math.isclose(variance, float(DEVIATION) ** 2, rel_tol=1e-12)


@pytest.fixture(scope="module")
def drawn():
    return draw_gaussian(200_000, Randomness(5))


@pytest.mark.parametrize(("scale", "fits"), [(1.0, True), (0.7, False), (1.3, False)])
def test_samples_follow_the_law_and_the_test_has_power(drawn, scale, fits):
    edges = np.quantile(drawn, np.linspace(0, 1, 31)[1:-1])
    group = np.searchsorted(edges, np.arange(-LARGEST, LARGEST + 1))
    observed = np.bincount(group[drawn + LARGEST], minlength=group.max() + 1)
    expected = np.bincount(group, law(float(DEVIATION) * scale)) * drawn.size
    assert bool(stats.chisquare(observed, expected).pvalue > 1e-9) is fits


def test_chunks_follow_one_another():
    whole = draw_gaussian((1 << 16) + 10, Randomness(6))
    assert whole.dtype == np.int16
    assert np.array_equal(whole[: 1 << 16], draw_gaussian(1 << 16, Randomness(6)))
    assert draw_gaussian(0, Randomness(6)).size == 0
