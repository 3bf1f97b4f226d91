r"""A test of a map's noise by its redundancy: two measurements of the same cells differ by their noise alone.

Two partitions overlap in a graph whose vertices are groups, with an edge where two groups share a cell. In a connected
component :math:`c` both measurements sum the same users, so that

.. math:: r_c = \sum_{i \in c} \tilde a_i - \sum_{j \in c} \tilde b_j, \qquad
    v_c = m_c \sigma_a^2 + n_c \sigma_b^2, \qquad T = \sum_c r_c^2 \Big/ \sum_c v_c

where: :math:`\tilde a` and :math:`\tilde b` are the noisy sums, :math:`m_c` and :math:`n_c` their numbers in the
component, and :math:`\sigma` the standard deviations that the file states. T has mean 1, also where the second groups
were chosen by the first sums: a block whose noise is large is divided deeper, so residuals must not be divided by their
own :math:`v_c`. Its law is that of :mod:`mapveil.inference.squared_residuals`.

Noise that one measurement lacks shows only beside another whose noise is not much larger, so every pair with enough
residuals is tested, with a share of the false alarm (Bonferroni). A coarse sum's noise is a small part of :math:`v_c`
beside that of many finer sums: measurements that no pair could judge are listed. Run by: anybody who holds the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from scipy import sparse

from mapveil.inference.squared_residuals import SquaredResiduals
from mapveil.maps.measurement import Measurement
from mapveil_client.arrays import FloatArray

LEAST_RESIDUALS: Final = 64
"""Residuals from which half the stated deviation in both measurements is told from the stated one.

See ``tests/inference``. Where one of the two alone has too little noise, more may be needed.
"""

_UPPER: Final = 0.2  # of the level: too much noise harms nobody's privacy, and its law is approximate
_POWER: Final = 0.99  # of finding that all noise is missing, from which a measurement counts as tested
_LEAST_VARIANCE: Final = 1e-9  # squared users per residual; below it there is no noise to test


class PairTest(NamedTuple):
    """The residuals of one pair of measurements, beside the stated noise."""

    pair: tuple[int, int]  # places of the two in the map's measurements
    residuals: int  # number of sums that were measured twice
    ratio: (
        float  # sum of the squared residuals over that of their variances; 1 is expected of the stated noise
    )
    too_small: float  # probability of a ratio as small or smaller
    too_large: float  # probability of a ratio as large or larger
    level: float  # of too_small, below which there is too little noise

    @property
    def failed(self) -> bool:
        """Whether the noise is not as stated."""
        return self.too_small < self.level or self.too_large < self.level * _UPPER


class NoiseTests(NamedTuple):
    """The tests of every pair of a map's measurements with enough residuals."""

    pairs: tuple[PairTest, ...]  # most residuals first
    untested: tuple[
        int, ...
    ]  # places of measurements without whose noise fewer than 99 of 100 maps would fail


def noise_tests(measurements: Sequence[Measurement], false_alarm: float) -> NoiseTests:
    """Test every pair of measurements with enough residuals.

    The pair with the most residuals has half the false alarm, the others divide the rest evenly.

    Parameters
    ----------
    measurements : sequence of Measurement
        Noisy sums of one map; estimates of another kind are not tested.
    false_alarm : float
        Probability, about, that a test fails although all noise is as stated.
    """
    many = [
        place
        for place, each in enumerate(measurements)
        if type(each) is Measurement and each.noisy.size >= LEAST_RESIDUALS
    ]
    found = [(pair, *_residuals(*(measurements[place] for place in pair))) for pair in combinations(many, 2)]
    enough = [
        each
        for each in found
        if each[1].size >= LEAST_RESIDUALS and each[2].moments()[0] > _LEAST_VARIANCE * each[1].size
    ]
    enough.sort(key=lambda each: -each[1].size)
    tests, seen = [], set()
    for rank, (pair, squares, law) in enumerate(enough):
        share = 1.0 if len(enough) == 1 else 0.5 if rank == 0 else 0.5 / (len(enough) - 1)
        total, level = float(squares.sum()), share * false_alarm / 2
        tests.append(PairTest(pair, squares.size, total / law.moments()[0], *law.tails(total), level))
        for place, scales in zip(pair, ((0.0, 1.0), (1.0, 0.0)), strict=True):
            if law.finds(scales, level) >= _POWER:
                seen.add(place)
    return NoiseTests(tuple(tests), tuple(sorted(set(range(len(measurements))) - seen)))


def _residuals(one: Measurement, other: Measurement) -> tuple[FloatArray, SquaredResiduals]:
    """Squares of the residuals of a pair, and the law of their sum."""
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
    kinds, residuals = np.unique(np.array([count_a[usable], count_b[usable]]), axis=1, return_counts=True)
    return difference[usable] ** 2, SquaredResiduals(
        (one.law(), other.law()), kinds, residuals.astype(np.float64)
    )
