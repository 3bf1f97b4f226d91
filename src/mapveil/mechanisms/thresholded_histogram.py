"""Noise on every cell, and only the largest kept: the second baseline of Ghazi et al. (2023)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil_client.arrays import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class ThresholdedHistogram(LaplaceHistogram):
    r"""Add Laplace noise to every cell and keep the top t percent of the cells.

    .. math:: \hat{s}(c) = \max(0, \tilde{s}(c)) \text{ for the } \lceil t\, m / 100 \rceil
              \text{ largest } \tilde{s}(c), \text{ else } 0

    where: :math:`\tilde{s}(c)` is the sum of cell c with noise of :math:`\epsilon` (``epsilon``), t is
    ``keep_percent``, m the number of cells that can hold anybody. Source: Ghazi et al. (2023), section 4; the paper
    leaves open what the percentage is of: all cells.

    Parameters
    ----------
    keep_percent : float
        Percentage of the cells that is kept, in (0, 100].
    """

    name: ClassVar[str] = "thresholded"
    summary: ClassVar[str] = "Laplace noise on every cell, only the largest t percent kept"
    source: ClassVar[str] = "Ghazi et al. 2023, section 4 (baseline)"

    keep_percent: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(0 < self.keep_percent <= 100, "keep_percent", "a percentage above 0, at most 100,")

    def _shown(self, noisy: FloatArray) -> FloatArray:
        kept = largest(noisy, self.kept_cells(noisy.size))
        values = np.zeros(noisy.size)
        values[kept] = super()._shown(noisy[kept])
        return values

    def kept_cells(self, cells: int) -> int:
        """Number of cells that are kept, at least one."""
        return math.ceil(Fraction(str(self.keep_percent)) / 100 * cells)


def largest(values: FloatArray, count: int) -> IntArray:
    """The positions of the ``count`` largest values, ascending; among equals the first positions.

    Examples
    --------
    >>> largest(np.array([3.0, 1.0, 3.0, 2.0]), 1)
    array([0])
    """
    if not 0 < count < values.size:
        return np.arange(min(max(count, 0), values.size))
    least = np.partition(values, -count)[-count]
    kept = values > least
    kept[np.flatnonzero(values == least)[: count - np.count_nonzero(kept)]] = True
    return np.flatnonzero(kept)
