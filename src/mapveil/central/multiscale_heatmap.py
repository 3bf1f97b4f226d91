"""Mapveil's own mechanism: noisy counts of one level, then multiscale shrinkage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.central.mechanism import CentralMechanism, Estimate, IntArray, Progress, noisy_sums
from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import Measurement
from mapveil.maps.shrinkage import multiscale_shrinkage, pool, spread
from mapveil.privacy.epsilon import split_epsilon
from mapveil.privacy.guarantee import Share
from mapveil.privacy.random import Randomness

__all__ = ["MultiscaleHeatmap"]

_BLOCKS_PER_SIGNAL = 0.6


@dataclass(frozen=True, kw_only=True)
class MultiscaleHeatmap(CentralMechanism):
    r"""Measure one level of a quadtree, and shrink it at all scales and shifts.

    The level's number of blocks follows what can be told apart:

    .. math:: L = \arg\min_l \left| \log \frac{B_l}{0.6\, n \epsilon} \right|

    where: :math:`B_l` is the number of blocks with cells of level l, n is ``users``, or a noisy total
    bought with ``users_share`` of the budget, and :math:`\epsilon` is what is left of the budget.
    Run by: the curator.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    users : int, optional
        A public estimate of the number of users; without one, ``users_share`` is spent on it.
    depth : int, optional
        The level to measure, instead of the rule's.
    users_share : float
        Part of the budget for a noisy total, where the rule needs one.
    """

    name: ClassVar[str] = "multiscale"
    summary: ClassVar[str] = "noisy counts at a level that follows n and epsilon, multiscale shrinkage"
    source: ClassVar[str] = "Mapveil; cycle spinning after Coifman and Donoho 1995"

    users: int | None = None
    depth: int | None = None
    users_share: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.users is None or self.users >= 1, "users", "a whole number of at least 1, or none")
        self._check(self.depth is None or 0 <= self.depth <= 23, "depth", "a level from 0 to 23, or none")
        self._check(0 < self.users_share < 1, "users_share", "a number between 0 and 1")

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Measure one level and shrink it; see :meth:`CentralMechanism.estimate`."""
        lattice = tiling.lattice()
        members = lattice.members()
        measurements: list[Measurement] = []
        shares: list[Share] = []
        budget = self.budget
        users = float(self.users or 0)
        if self.users is None and self.depth is None:
            part, budget = split_epsilon(budget, [self.users_share, 1 - self.users_share])
            total = noisy_sums(sums.sum(keepdims=True), part, rng)
            users = max(float(total[0]), 1.0)
            measurements.append(Measurement(np.zeros(tiling.size, dtype=np.int64), total, part, UNIT))
            shares.append(Share("number of users", part))
        level = self._level(members, users, budget) if self.depth is None else min(self.depth, lattice.depth)
        up = lattice.depth - level
        weights = pool(members, up)
        kept = np.flatnonzero(weights)
        numbers = np.full(weights.size, -1, dtype=np.int64)
        numbers[kept] = np.arange(kept.size)
        noisy = noisy_sums(pool(lattice.to_square(sums), up).reshape(-1)[kept], budget, rng)
        groups = numbers[((lattice.row >> up) << level) + (lattice.col >> up)]
        measurements.append(Measurement(groups, noisy, budget, UNIT))
        shares.append(Share(f"blocks of level {level}", budget))
        progress("shrink", 0.0)
        square = np.zeros(weights.size)
        square[kept] = noisy
        shrunk = multiscale_shrinkage(square.reshape(weights.shape), float(2 / budget**2), weights)
        progress("shrink", 1.0)
        return Estimate(
            values=lattice.from_square(spread(shrunk, members)),
            measurements=tuple(measurements),
            shares=tuple(shares),
            notes=(f"measured at level {level}, even below it",) if up else (),
        )

    @staticmethod
    def _level(members: IntArray, users: float, epsilon: Fraction) -> int:
        """The level whose number of blocks is nearest, as a ratio, to what n and epsilon carry."""
        depth = members.shape[0].bit_length() - 1
        blocks = [int(np.count_nonzero(pool(members, depth - level))) for level in range(depth + 1)]
        wanted = _BLOCKS_PER_SIGNAL * users * float(epsilon)
        return min(range(depth + 1), key=lambda level: abs(math.log(max(blocks[level], 1) / wanted)))
