"""Mapveil's own mechanism: two rounds of noisy counts, then multiscale shrinkage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np

from mapveil.central.mechanism import CentralMechanism, declared_or_noisy_users, noisy_sums
from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.inference.shrinkage import multiscale_shrinkage, pool, spread
from mapveil.inference.two_rounds import divide_blocks, shrink_two_rounds
from mapveil.maps.density_map import Measurement
from mapveil.mechanisms.mechanism import Estimate, Progress
from mapveil.privacy.claim import Share
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import Lattice
from mapveil_client.epsilon import split_epsilon
from mapveil_client.randomness.random import Randomness

_BLOCKS = 0.4
_DEEPEST = 6


class _Raster(NamedTuple):
    """A tiling's lattice with the exact sums on it. Not private."""

    lattice: Lattice
    members: IntArray
    sums: IntArray

    def cells_of(self, number: IntArray) -> IntArray:
        """The group of each cell, from the group of each site of a raster at least as coarse."""
        up = self.lattice.depth - (number.shape[0].bit_length() - 1)
        groups = number[self.lattice.row >> up, self.lattice.col >> up]
        inside = self.lattice.inside
        return groups if inside is None else np.where(inside, groups, -1)


@dataclass(frozen=True, kw_only=True)
class MultiscaleHeatmap(CentralMechanism):
    r"""Measure blocks, divide each by what was found there, measure again, shrink at all scales and shifts.

    The first round measures the level whose number of blocks :math:`B_L` is nearest (as a ratio) to

    .. math:: B = 0.4\, (n \epsilon)^{2/3}

    with :math:`\epsilon_1 = \alpha \epsilon`. What its shrunk map expects in a block, :math:`\hat{x}`,
    says how often the block is quartered for the second round:

    .. math:: d = \operatorname{round} \log_4 (\hat{x}\, \epsilon_2 / c), \qquad 0 \le d \le 6

    where: n is ``users``, or a noisy total bought with ``users_share`` of the budget, :math:`\epsilon` is
    the rest of the budget, :math:`\alpha` is ``first_share``, :math:`\epsilon_2 = \epsilon - \epsilon_1`
    and c is ``leaf_users``. Both rounds are combined by least squares
    (:mod:`mapveil.inference.two_rounds`) and shrunk together (:mod:`mapveil.inference.shrinkage`).
    In either round a user moves disjoint sums by at most 1 in L1, so the rounds compose to
    :math:`\epsilon`-DP. Run by: the curator.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    users : int, optional
        A public estimate of the number of users; without one, ``users_share`` is spent on it.
    depth : int, optional
        The level to measure first, instead of the rule's; the tiling's own depth (or more) means one round.
    first_share : float
        Part of the budget for the first round, in (0, 1).
    leaf_users : float
        c, above 0: the signal (users times epsilon) that the second round's leaves aim at.
    users_share : float
        Part of the budget for a noisy total where none is declared, in (0, 1).
    shifts : int
        Boxes of so many sites a side are cut at every offset, larger ones at as many; at least 1.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> mechanism = MultiscaleHeatmap(epsilon=1, users=500, depth=3)
    >>> heat = mechanism.release(city, mv.Quadtree(city.region, depth=6), rng=1)
    >>> [share.purpose for share in heat.guarantee.shares]
    ['blocks of level 3', 'leaves of the blocks']
    """

    name: ClassVar[str] = "multiscale"
    summary: ClassVar[str] = "noisy blocks, divided where people are, shrunk at all scales and shifts"
    source: ClassVar[str] = "Mapveil, after Coifman and Donoho 1995 and Qardaji et al. 2013"

    users: int | None = None
    depth: int | None = None
    first_share: float = 0.25
    leaf_users: float = 1.4
    users_share: float = 0.05
    shifts: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.users is None or self.users >= 1, "users", "a whole number of at least 1, or none,")
        self._check(self.depth is None or 0 <= self.depth <= 23, "depth", "a level from 0 to 23, or none,")
        self._check(0 < self.first_share < 1, "first_share", "a number between 0 and 1")
        self._check(self.leaf_users > 0 and math.isfinite(self.leaf_users), "leaf_users", "a number above 0")
        self._check(0 < self.users_share < 1, "users_share", "a number between 0 and 1")
        self._check(self.shifts >= 1, "shifts", "a whole number of at least 1")

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Measure one or two rounds and shrink them; see :meth:`CentralMechanism.estimate`."""
        lattice = tiling.lattice()
        raster = _Raster(lattice, lattice.members(), lattice.to_square(sums))
        if self.depth is not None:
            return self._measure(raster, min(self.depth, lattice.depth), self.budget, rng, progress)
        declared = declared_or_noisy_users(self.users, self.users_share, self.budget, sums, rng)
        level = self.first_level(raster.members, declared.users * float(declared.rest))
        made = self._measure(raster, level, declared.rest, rng, progress)
        return made._replace(
            measurements=(*declared.measurements(tiling.size), *made.measurements),
            shares=(*declared.shares, *made.shares),
        )

    @staticmethod
    def first_level(members: IntArray, signal: float) -> int:
        """The level to measure first, for ``signal`` users times epsilon."""
        depth: int = members.shape[0].bit_length() - 1
        blocks = [int(np.count_nonzero(pool(members, depth - level))) for level in range(depth + 1)]
        wanted = _BLOCKS * math.pow(signal, 2 / 3)
        return min(range(depth + 1), key=lambda level: abs(math.log(max(blocks[level], 1) / wanted)))

    def _measure(
        self, raster: _Raster, level: int, budget: Fraction, rng: Randomness, progress: Progress
    ) -> Estimate:
        lattice, up = raster.lattice, raster.lattice.depth - level
        single = up == 0
        first, second = (
            (budget, budget) if single else split_epsilon(budget, [self.first_share, 1 - self.first_share])
        )
        weights = pool(raster.members, up)
        inside = weights > 0
        number = np.full(weights.shape, -1, dtype=np.int64)
        number[inside] = np.arange(np.count_nonzero(inside))
        noisy = noisy_sums(pool(raster.sums, up)[inside], first, rng)
        blocks = np.zeros(weights.shape)
        blocks[inside] = noisy
        measured = (Measurement(raster.cells_of(number), noisy, first, UNIT),)
        progress("shrink", 0.0)
        shrunk = multiscale_shrinkage(blocks, _variance(first), weights, shifts=self.shifts)
        if single:
            progress("shrink", 1.0)
            return Estimate(
                lattice.from_square(shrunk), measured, (Share(f"every cell of level {level}", first),)
            )
        depths = self._depths(shrunk, float(second), min(up, _DEEPEST))
        down = int(depths.max())
        members = pool(raster.members, up - down)
        leaves = divide_blocks(depths, members)
        exact = np.zeros(leaves.members.size, dtype=np.int64)
        held = leaves.of_site >= 0
        np.add.at(exact, leaves.of_site[held], pool(raster.sums, up - down)[held])
        again = noisy_sums(exact, second, rng)
        progress("shrink", 0.5)
        both = shrink_two_rounds(
            blocks, _variance(first), again, _variance(second), leaves, members, shifts=self.shifts
        )
        progress("shrink", 1.0)
        return Estimate(
            values=lattice.from_square(spread(both, raster.members)),
            measurements=(*measured, Measurement(raster.cells_of(leaves.of_site), again, second, UNIT)),
            shares=(Share(f"blocks of level {level}", first), Share("leaves of the blocks", second)),
            notes=(
                f"resolution follows the people found: levels {level} to {level + down}, even below them",
            ),
        )

    def _depths(self, expected: FloatArray, epsilon: float, most: int) -> IntArray:
        signal = np.maximum(expected * epsilon / self.leaf_users, 1.0)
        return np.clip(np.rint(np.log2(signal) / 2), 0, most).astype(np.int64)


def _variance(epsilon: Fraction) -> float:
    return 2 / float(epsilon) ** 2
