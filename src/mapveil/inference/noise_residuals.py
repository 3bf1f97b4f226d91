r"""A test of a map's noise by its redundancy: two measurements of the same cells differ by their noise alone.

Two partitions overlap in a graph whose vertices are groups, with an edge where two groups share a cell. In a connected
component :math:`c` both measurements sum the same users, so that

.. math:: r_c = \sum_{i \in c} \tilde a_i - \sum_{j \in c} \tilde b_j, \qquad
    v_c = m_c \sigma_a^2 + n_c \sigma_b^2, \qquad T = \sum_c r_c^2 \Big/ \sum_c v_c

where: :math:`\tilde a` and :math:`\tilde b` are the noisy sums, :math:`m_c` and :math:`n_c` their numbers in the
component, and :math:`\sigma` the standard deviations that the file states. T has mean 1, also where the second groups
were chosen by the first sums: a block whose noise is large is divided deeper, so residuals must not be divided by their
own :math:`v_c`. Its variance is :math:`\sum_c v_c^2 (2 + \kappa_c) / (\sum_c v_c)^2` with the excess kurtosis
:math:`\kappa_c` of the residual; it is compared with the scaled chi-squared law of the same two moments (Satterthwaite
1946), which misses some of the skewness: of 64 residuals 1.6 in 1,000 fall below its 1 in 1,000. Run by: anybody who
holds the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from scipy import sparse, stats

from mapveil.maps.measurement import Measurement
from mapveil_client.arrays import FloatArray

LEAST_RESIDUALS: Final = 64
"""Residuals from which half the stated deviation in both measurements is told from the stated one.

See ``tests/inference``. Where one of the two alone has too little noise, more are needed: of 256 residuals the test
finds that in three or four of five.
"""

_KURTOSIS: Final = 3.0
"""Excess kurtosis of one Laplace variable; of the discrete law it is a little more at scales near 1."""


class NoiseTest(NamedTuple):
    """The residuals of one pair of measurements, beside the stated noise."""

    residuals: int  # number of sums that were measured twice
    ratio: (
        float  # sum of the squared residuals over that of their variances; 1 is expected of the stated noise
    )
    too_small: float  # probability of a ratio as small or smaller
    too_large: float  # probability of a ratio as large or larger


def noise_test(measurements: Sequence[Measurement]) -> NoiseTest | None:
    """Test the pair of measurements with the most residuals; None where no sum was measured twice.

    Parameters
    ----------
    measurements : sequence of Measurement
        Noisy sums of one map; estimates of another kind are left out.
    """
    sums = [each for each in measurements if type(each) is Measurement]
    found = [_residuals(one, other) for one, other in combinations(sums, 2)]
    nothing = np.empty(0)
    square, variance, kurtosis = max(
        found, key=lambda each: each[0].size, default=(nothing, nothing, nothing)
    )
    if not square.size:
        return None
    freedom = 2 * float(variance.sum()) ** 2 / float((variance**2 * (2 + kurtosis)).sum())
    ratio = float(square.sum() / variance.sum())
    law = stats.chi2(freedom)
    return NoiseTest(square.size, ratio, float(law.cdf(ratio * freedom)), float(law.sf(ratio * freedom)))


def _residuals(one: Measurement, other: Measurement) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Squares of the residuals of a pair, their variances and excess kurtosis: one of each component."""
    left, right = one.noisy.size, other.noisy.size
    # A cell that only one of the two measured links its group to the last vertex, which stands for "not measured".
    a = np.where(one.groups < 0, left + right, one.groups)
    b = np.where(other.groups < 0, left + right, left + other.groups)
    size = left + right + 1
    graph = sparse.coo_array((np.ones(a.size, dtype=np.int8), (a, b)), shape=(size, size))
    _, label = sparse.csgraph.connected_components(graph, directed=False)
    components = int(label.max()) + 1

    def totals(labels: np.ndarray, weights: FloatArray | None = None) -> FloatArray:
        return np.bincount(labels, weights, components).astype(np.float64)

    ours, theirs = label[:left], label[left:-1]
    difference = totals(ours, one.noisy) - totals(theirs, other.noisy)
    count_a, count_b = totals(ours), totals(theirs)
    usable = (count_a > 0) & (count_b > 0)
    usable[label[-1]] = False
    part_a, part_b = count_a[usable] * one.deviation() ** 2, count_b[usable] * other.deviation() ** 2
    variance = part_a + part_b
    fourth = part_a**2 / (count_a[usable] * one.terms) + part_b**2 / (count_b[usable] * other.terms)
    return difference[usable] ** 2, variance, _KURTOSIS * fourth / variance**2
