"""Noise on every cell: the plain Laplace mechanism, the baseline of every paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.central.mechanism import CentralMechanism, noisy_sums
from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import Measurement
from mapveil.mechanisms.mechanism import Estimate, Progress
from mapveil.privacy.claim import Share
from mapveil_client.arrays import IntArray
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True, kw_only=True)
class LaplaceHistogram(CentralMechanism):
    r"""Add Laplace noise to every cell and keep what is positive.

    .. math:: \hat{s}(c) = \max(0,\ s(c) + \nu_c), \qquad \nu_c \sim \mathrm{DLap}(\epsilon)

    where: :math:`s(c)` is the sum of the users' shares in cell c, :math:`\epsilon` is ``epsilon``.
    Run by: the curator. Source: the baseline of Ghazi et al. (2023), section 4, after Liu et al.
    (2019).

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    clip : bool
        Set negative cells to zero, as the paper's baseline does. Unclipped cells are unbiased.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> heat = LaplaceHistogram(epsilon=1).release(city, mv.Quadtree(city.region, depth=4), rng=1)
    >>> heat.values.shape
    (256,)
    """

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "Laplace noise on every cell, negatives set to zero"
    source: ClassVar[str] = "Dwork et al. 2006; the baseline of Ghazi et al. 2023"

    clip: bool = True

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Measure every cell once; see :meth:`CentralMechanism.estimate`."""
        inside = tiling.lattice().inside
        kept = np.arange(tiling.size) if inside is None else np.flatnonzero(inside)
        noisy = noisy_sums(sums[kept], self.budget, rng)
        values = np.zeros(tiling.size)
        values[kept] = np.maximum(noisy, 0.0) if self.clip else noisy
        groups = np.full(tiling.size, -1, dtype=np.int64)
        groups[kept] = np.arange(kept.size)
        return Estimate(
            values=values,
            measurements=(Measurement(groups, noisy, self.budget, UNIT),),
            shares=(Share("every cell", self.budget),),
        )
