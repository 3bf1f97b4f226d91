"""The quadtree above a tiling: sums of every level in Morton order, and the way back to cells.

The nodes of level i are numbered by Morton code, so the children of node k are 4k .. 4k + 3, a level's sums are the
sums of four neighbours of the next, and a node's leaves are consecutive. Everything here but the argument of
:meth:`Pyramid.sums` depends on the tiling only.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mapveil.maps.density_map import Measurement
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.morton import interleave

if TYPE_CHECKING:
    from mapveil_client.cells import Lattice


@dataclass(frozen=True, eq=False)
class Pyramid:
    """The quadtree above the cells of a tiling.

    Parameters
    ----------
    depth : int
        The level of the leaves; level 0 is the root.
    codes : ndarray of int64, shape (cells,)
        The leaf each cell lies on.
    members : tuple of ndarray of int64
        How many cells that can hold anybody lie in each node of each level; a node with none is known to
        be empty.
    inside : ndarray of bool, shape (cells,), optional
        Which cells can hold anybody; all by default.
    """

    depth: int
    codes: IntArray
    members: tuple[IntArray, ...]
    inside: npt.NDArray[np.bool_] | None = None

    @classmethod
    def over(cls, lattice: Lattice) -> Pyramid:
        """The quadtree above a tiling's lattice."""
        codes = interleave(lattice.row, lattice.col)
        usable = codes if lattice.inside is None else codes[lattice.inside]
        leaves = np.bincount(usable, minlength=1 << (2 * lattice.depth)).astype(np.int64)
        return cls(lattice.depth, codes, _level_sums(leaves, lattice.depth), lattice.inside)

    def sums(self, per_cell: IntArray) -> tuple[IntArray, ...]:
        """Sum per-cell values into every level, the root's first; level i has shape (4**i,)."""
        leaves = np.zeros(self.members[-1].size, dtype=np.int64)
        np.add.at(leaves, self.codes, per_cell)
        return _level_sums(leaves, self.depth)

    def ancestors(self, level: int) -> IntArray:
        """The node of a level that each cell lies in, shape (cells,)."""
        return self.codes >> (2 * (self.depth - level))

    def density(self, level: int, values: FloatArray) -> FloatArray:
        """Each node's value per member cell, 0 without members."""
        members = self.members[level]
        return np.where(members > 0, values / np.maximum(members, 1), 0.0)

    def to_cells(self, densities: FloatArray) -> FloatArray:
        """The leaves' densities as values of the cells, 0 where nobody can be, shape (cells,)."""
        values = densities[self.codes]
        return values if self.inside is None else np.where(self.inside, values, 0.0)

    def measurement(self, level: int, noisy: FloatArray, epsilon: Fraction, unit: int) -> Measurement:
        """The record of noisy sums of one level.

        Parameters
        ----------
        level : int
            The level.
        noisy : ndarray of float64
            Noisy sums of all its nodes.
        epsilon, unit
            As for :class:`~mapveil.maps.density_map.Measurement`.
        """
        return Measurement(self.ancestors(level), noisy, epsilon, unit)


def _level_sums(leaves: npt.NDArray[Any], depth: int) -> tuple[npt.NDArray[Any], ...]:
    levels = [leaves]
    for _ in range(depth):
        levels.append(levels[-1].reshape(-1, 4).sum(axis=1))
    return tuple(reversed(levels))


def largest(values: FloatArray, count: int) -> IntArray:
    """The positions of the ``count`` largest values, ascending; among equals the first positions.

    Examples
    --------
    >>> largest(np.array([3.0, 1.0, 3.0, 2.0]), 1)
    array([0])
    """
    if count >= values.size:
        return np.arange(values.size, dtype=np.int64)
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    least = np.partition(values, values.size - count)[values.size - count]
    above = np.flatnonzero(values > least)
    equal = np.flatnonzero(values == least)[: count - above.size]
    return np.sort(np.concatenate([above, equal])).astype(np.int64)
