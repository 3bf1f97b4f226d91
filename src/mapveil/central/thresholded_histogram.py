"""Noise on every cell, and only the largest kept: the second baseline of Ghazi et al. (2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.central.mechanism import CentralMechanism, noisy_sums
from mapveil.central.pyramid import largest
from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import Measurement
from mapveil.mechanisms.mechanism import Estimate, Progress
from mapveil.privacy.claim import Share
from mapveil_client.arrays import IntArray
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True, kw_only=True)
class ThresholdedHistogram(CentralMechanism):
    r"""Add Laplace noise to every cell and keep the top t percent of the cells.

    .. math:: \hat{s}(c) = \max(0, \tilde{s}(c)) \text{ for the } \lceil t\, m / 100 \rceil
              \text{ largest } \tilde{s}(c), \text{ else } 0

    where: :math:`\tilde{s}(c)` is the sum of cell c with noise of :math:`\epsilon` (``epsilon``), t is
    ``keep_percent``, m the number of cells that can hold anybody. Run by: the curator. Source: Ghazi et al. (2023),
    section 4; the paper leaves open what the percentage is of: all cells.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    keep_percent : float
        Part of the cells that is kept, in (0, 100].
    """

    name: ClassVar[str] = "thresholded"
    summary: ClassVar[str] = "Laplace noise on every cell, only the largest t percent kept"
    source: ClassVar[str] = "Ghazi et al. 2023, section 4 (baseline)"

    keep_percent: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(0 < self.keep_percent <= 100, "keep_percent", "a percentage above 0, at most 100,")

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Measure every cell once; see :meth:`CentralMechanism.estimate`."""
        inside = tiling.lattice().inside
        cells = np.arange(tiling.size) if inside is None else np.flatnonzero(inside)
        noisy = noisy_sums(sums[cells], self.budget, rng)
        kept = largest(noisy, self.kept_cells(cells.size))
        values = np.zeros(tiling.size)
        values[cells[kept]] = np.maximum(noisy[kept], 0.0)
        groups = np.full(tiling.size, -1, dtype=np.int64)
        groups[cells] = np.arange(cells.size)
        return Estimate(
            values=values,
            measurements=(Measurement(groups, noisy, self.budget, UNIT),),
            shares=(Share("every cell", self.budget),),
        )

    def kept_cells(self, cells: int) -> int:
        """How many of so many cells are kept, at least one."""
        return math.ceil(Fraction(str(self.keep_percent)) / 100 * cells)
