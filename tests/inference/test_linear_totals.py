"""Sums, differences and ratios of totals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

from mapveil.inference.linear_totals import LinearTotal, ratio
from mapveil.inference.nested_sums import NestedSums
from mapveil.maps.measurement import Measurement

UNIT = 1 << 28


def sums(noisy: list[float], epsilon: Fraction = Fraction(1)) -> NestedSums:
    count = len(noisy)
    one = Measurement(np.arange(count), np.array(noisy), epsilon, UNIT)
    return NestedSums([one], np.ones(count, dtype=bool))


def total(of: NestedSums, *weights: float) -> LinearTotal:
    return LinearTotal(((of, csr_array(np.array([weights]))),))


def test_common_errors_cancel_and_others_add() -> None:
    one, two = sums([100, 60, 7]), sums([90, 1, 2])
    north, both = total(one, 1, 0, 0), total(one, 1, 1, 0)
    apart = both - north
    assert apart.estimate == pytest.approx(60)
    assert apart.deviation == pytest.approx(math.sqrt(2), rel=1e-6)
    assert (both - both).interval() == (0, 0)
    assert (both + north * 0.5).deviation == pytest.approx(math.sqrt(2 * (1.5**2 + 1)), rel=1e-6)
    across = north - total(two, 1, 0, 0)
    assert across.estimate == pytest.approx(10)
    assert across.deviation == pytest.approx(2, rel=1e-6)
    assert repr(north).startswith("100.0 users (95 %: 97.0 to 103.0)")


def test_a_fieller_set_has_its_coverage() -> None:
    rng, hits, trials = np.random.default_rng(2), 0, 150
    for _ in range(trials):
        noisy = [30 + rng.laplace(), 12 + rng.laplace()]
        found = ratio(total(one := sums(noisy), 1, 0), total(one, 0, 1))
        hits += found.low <= 2.5 <= found.high
    assert hits / trials >= 0.88  # four binomial deviations below 95 %


def test_the_ends_of_a_ratio_are_where_the_exact_law_says() -> None:
    one = sums([50, 20])
    n, d = total(one, 1, 0), total(one, 0, 1)
    found = ratio(n, d)
    for end in (found.low, found.high):
        apart = n - d * end
        assert min(abs(bound) for bound in apart.interval()) < 0.02
    assert found.bounded
    assert found.low < 2.5 < found.high


def test_a_denominator_that_may_be_zero_has_no_upper_end() -> None:
    one = sums([50, 1.5, -4])
    found = ratio(total(one, 1, 0, 0), total(one, 0, 1, 0))
    assert found.high == math.inf
    assert not found.bounded
    assert found.low > 0
    assert "unbounded: the denominator may be 0" in repr(found)
    nothing = ratio(total(one, 1, 0, 0), total(one, 0, 0, 1))
    assert math.isnan(nothing.estimate)
    assert (nothing.low, nothing.high) == (0, math.inf)


def test_a_numerator_that_may_be_zero_begins_at_zero() -> None:
    one = sums([1.0, 40])
    found = total(one, 1, 0) / total(one, 0, 1)
    assert found.low == 0
    assert 0.05 < found.high < 0.2


@pytest.mark.parametrize("below", [-1.0, -10.0, -300.0])
def test_a_numerator_far_below_zero_has_the_set_of_zero(below: float) -> None:
    """An empty zone's sum falls below its interval once in forty: no ratio is below 0, and no set is empty."""
    found = total(one := sums([below, 40]), 1, 0) / total(one, 0, 1)
    none = total(two := sums([0.0, 40]), 1, 0) / total(two, 0, 1)
    assert (found.estimate, found.low) == (0, 0)
    assert found.high == pytest.approx(none.high)
    assert 0.05 < found.high < 0.2
