"""Two grids, the second as fine as the first found people: Qardaji, Yang, Li (2013)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from mapveil.central.mechanism import CentralMechanism, declared_or_noisy_users, noisy_sums
from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.inference.block_inference import block_inference
from mapveil.maps.density_map import Measurement
from mapveil.mechanisms.mechanism import Estimate, Progress
from mapveil.privacy.claim import Share
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import Lattice
from mapveil_client.epsilon import split_epsilon
from mapveil_client.randomness.random import Randomness

_LEAST = 10


class _Blocks(NamedTuple):
    """A division of the raster into blocks: the block of each cell, and how many cells each has."""

    of_cell: IntArray
    cells: IntArray


@dataclass(frozen=True, kw_only=True)
class AdaptiveGrid(CentralMechanism):
    r"""Measure a coarse grid, divide each of its blocks by its noisy count, measure again.

    .. math:: m_1 = \max\left(10, \left\lceil \tfrac{1}{4} \left\lceil \sqrt{N \epsilon / c} \right\rceil
              \right\rceil\right), \qquad
              m_2 = \left\lceil \sqrt{N' (1 - \alpha) \epsilon / (c / 2)} \right\rceil

    .. math:: v' = \frac{\alpha^2 k\, v + (1 - \alpha)^2 \sum u}{\alpha^2 k + (1 - \alpha)^2}, \qquad
              u' = u + (v' - \textstyle\sum u) / k

    where: N is ``users`` (or a noisy total), :math:`\epsilon` is ``epsilon`` (less what the total cost), c is ``c``,
    :math:`\alpha` is ``alpha``, :math:`N'` is a block's noisy count of the first grid, v that count,
    u the noisy counts of its k parts. Run by: the curator.

    Deviation: N is declared, or bought with ``users_share`` of the budget; the paper uses the true number.
    Deviation: blocks are of whole cells of the tiling. Deviation: negative estimates become zero.

    Source: Qardaji, Yang, Li, "Differentially Private Grids for Geospatial Data" (ICDE 2013), section IV.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    users : int, optional
        A public estimate of the number of users; without one, ``users_share`` is spent on it.
    alpha : float
        Part of the budget for the first grid, in (0, 1).
    c : float
        The paper's constant, above 0.
    users_share : float
        Part of the budget for a noisy total, in (0, 1).
    """

    name: ClassVar[str] = "adaptive-grid"
    summary: ClassVar[str] = "a coarse noisy grid, each block divided by its noisy count, measured again"
    source: ClassVar[str] = "Qardaji et al., Differentially Private Grids for Geospatial Data, ICDE 2013"

    users: int | None = None
    alpha: float = 0.5
    c: float = 10.0
    users_share: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.users is None or self.users >= 1, "users", "a whole number of at least 1, or none,")
        self._check(0 < self.alpha < 1, "alpha", "a number between 0 and 1")
        self._check(self.c > 0 and math.isfinite(self.c), "c", "a number above 0")
        self._check(0 < self.users_share < 1, "users_share", "a number between 0 and 1")

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Measure both grids; see :meth:`CentralMechanism.estimate`."""
        lattice = tiling.lattice()
        inside = np.ones(tiling.size, dtype=np.bool_) if lattice.inside is None else lattice.inside
        declared = declared_or_noisy_users(self.users, self.users_share, self.budget, sums, rng)
        coarse_epsilon, fine_epsilon = split_epsilon(declared.rest, [self.alpha, 1 - self.alpha])
        side = self.first_grid(declared.users, float(declared.rest))
        height, width = int(lattice.row.max()) + 1, int(lattice.col.max()) + 1
        # More blocks than rows or columns are the rows or columns themselves.
        down, across = min(side, height), min(side, width)
        coarse = _numbered(lattice.row * down // height * across + lattice.col * across // width, inside)
        v = noisy_sums(_block_sums(coarse, sums), coarse_epsilon, rng)
        fine = _divided(lattice, coarse, self.second_grids(v, float(fine_epsilon)), inside)
        u = noisy_sums(_block_sums(fine, sums), fine_epsilon, rng)
        parent = np.zeros(fine.cells.size, dtype=np.int64)
        parent[fine.of_cell[inside]] = coarse.of_cell[inside]
        inferred = self.infer(v, u, parent, float(coarse_epsilon), float(fine_epsilon))
        values = np.maximum(inferred, 0.0)[fine.of_cell] / fine.cells[fine.of_cell]
        return Estimate(
            values=np.where(inside, values, 0.0),
            measurements=(
                *declared.measurements(tiling.size),
                Measurement(coarse.of_cell, v, coarse_epsilon, UNIT),
                Measurement(fine.of_cell, u, fine_epsilon, UNIT),
            ),
            shares=(
                *declared.shares,
                Share("first grid", coarse_epsilon),
                Share("second grid", fine_epsilon),
            ),
        )

    def first_grid(self, users: float, epsilon: float) -> int:
        """m1, blocks per side of the first grid."""
        return max(_LEAST, math.ceil(math.ceil(math.sqrt(max(users, 0.0) * epsilon / self.c)) / 4))

    def second_grids(self, noisy: FloatArray, epsilon: float) -> IntArray:
        """m2, parts per side of each block of the first grid; ``epsilon`` is the second grid's."""
        return np.maximum(np.ceil(np.sqrt(np.maximum(noisy, 0.0) * epsilon / (self.c / 2))), 1).astype(
            np.int64
        )

    @staticmethod
    def infer(
        v: FloatArray, u: FloatArray, parent: IntArray, coarse_epsilon: float, fine_epsilon: float
    ) -> FloatArray:
        """The constrained inference: what both grids say of the second's blocks together."""
        return block_inference(v, u, parent, coarse_epsilon**-2, fine_epsilon**-2)


def _numbered(labels: IntArray, inside: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> _Blocks:
    """Blocks numbered from 0, those without a cell left out; cells where nobody can be get -1."""
    number = np.zeros(int(labels.max()) + 1, dtype=np.int64)
    number[labels[inside]] = 1
    number = np.cumsum(number) - 1
    of_cell = np.where(inside, number[labels], -1)
    return _Blocks(of_cell, np.bincount(of_cell[inside], minlength=int(number[-1]) + 1))


def _block_sums(blocks: _Blocks, sums: IntArray) -> IntArray:
    out = np.zeros(blocks.cells.size, dtype=np.int64)
    used = blocks.of_cell >= 0
    np.add.at(out, blocks.of_cell[used], sums[used])
    return out


def _divided(
    lattice: Lattice, coarse: _Blocks, parts: IntArray, inside: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> _Blocks:
    """Divide each block into parts x parts, as far as its rows and columns go."""
    count = coarse.cells.size
    block = np.maximum(coarse.of_cell, 0)
    first, last = {}, {}
    for axis, position in (("row", lattice.row), ("col", lattice.col)):
        low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
        np.minimum.at(low, block[inside], position[inside])
        np.maximum.at(high, block[inside], position[inside])
        first[axis], last[axis] = low, high
    label = np.zeros(block.size, dtype=np.int64)
    sides = {}
    for axis, position in (("row", lattice.row), ("col", lattice.col)):
        extent = last[axis] - first[axis] + 1
        sides[axis] = np.minimum(parts, extent)
        offset = np.clip(position - first[axis][block], 0, extent[block] - 1)
        label = label * sides[axis][block] + offset * sides[axis][block] // extent[block]
    start = np.concatenate([[0], np.cumsum(sides["row"] * sides["col"])])
    return _numbered(start[block] + label, inside)
