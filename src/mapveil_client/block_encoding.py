"""Rectangular blocks of the raster, each divided as often as its own number says: the grids of Qardaji et al. (2013).

Blocks need not be nodes of the quadtree: ten of them along 1,024 sites are 102 or 103 sites wide.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.encodings import Encoding
from mapveil_client.errors import check
from mapveil_client.morton import MAX_BITS, deinterleave


def even_edges(first: int, last: int, parts: int) -> IntArray:
    r"""Where to cut the sites from ``first`` up to, not including, ``last``, shape (parts + 1,).

    .. math:: e_i = f + \lceil i n / k \rceil

    where: f is ``first``, n the number of sites and k is ``parts`` (or n, where there are fewer sites).

    Examples
    --------
    >>> even_edges(0, 10, 4).tolist()
    [0, 3, 5, 8, 10]
    """
    length = last - first
    count = min(parts, length)
    return first - (-np.arange(count + 1, dtype=np.int64) * length // count)


class _Parts(NamedTuple):
    """The division of each block, all of shape (blocks,)."""

    down: IntArray
    across: IntArray
    start: IntArray  # the coordinate of its first part


@dataclass(frozen=True, eq=False)
class BlockEncoding(Encoding):
    """One coordinate for each part of each block: blocks row by row, and the parts of a block row by row.

    A location in no block, or in one that is not asked about, counts nowhere.

    Parameters
    ----------
    depth : int
        Of the raster of sites, 0 .. 31.
    rows, columns : ndarray of int64, shapes (down + 1,) and (across + 1,)
        Edges of the blocks: the first row (column) of each, and the end of the last; ascending.
    parts : ndarray of int64, shape (down, across)
        Into how many parts each block is divided along either side, as far as it has sites; 0 asks nothing.

    Raises
    ------
    ParameterError
        An edge or a number is out of range, or there are not as many numbers as blocks.

    Examples
    --------
    >>> encoding = BlockEncoding(2, np.array([0, 3, 4]), np.array([0, 4]), np.array([[2], [0]]))
    >>> encoding.length
    4
    >>> encoding.positions(np.arange(16)).reshape(-1, 4).tolist()  # Morton order, quarter by quarter
    [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, -1, -1], [3, 3, -1, -1]]
    """

    kind = "blocks"
    depth: int
    rows: IntArray
    columns: IntArray
    parts: IntArray

    def __post_init__(self) -> None:
        check(0 <= self.depth <= MAX_BITS, "depth", f"from 0 to {MAX_BITS}", self.depth)
        for name, edges in (("rows", self.rows), ("columns", self.columns)):
            good = edges.ndim == 1 and edges.size >= 2 and edges[0] >= 0 and edges[-1] <= 1 << self.depth
            good = good and bool((np.diff(edges) > 0).all())
            check(good, name, f"two or more edges from 0 to {1 << self.depth}, ascending", edges)
        shape = (self.rows.size - 1, self.columns.size - 1)
        good = self.parts.shape == shape and bool((self.parts >= 0).all())
        check(good, "parts", f"numbers of at least 0, of shape {shape}", self.parts)

    @cached_property
    def _parts(self) -> _Parts:
        down = np.minimum(self.parts, np.diff(self.rows)[:, None]).reshape(-1)
        across = np.minimum(self.parts, np.diff(self.columns)).reshape(-1)
        return _Parts(down, across, np.cumsum(down * across) - down * across)

    @property
    def length(self) -> int:
        """Number of parts."""
        return int((self._parts.down * self._parts.across).sum())

    @property
    def block(self) -> IntArray:
        """The block of each coordinate, shape (length,)."""
        return np.repeat(np.arange(self.parts.size), self._parts.down * self._parts.across)

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        """The part each site lies in; see :class:`mapveil_client.encodings.Encoding`."""
        inside = (sites >= 0) & (sites < 1 << (2 * self.depth))
        row, col = deinterleave(np.where(inside, sites, 0).astype(np.int64))
        down, i, height = self._along(self.rows, row)
        across, j, width = self._along(self.columns, col)
        inside &= (i >= 0) & (i < self.rows.size - 1) & (j >= 0) & (j < self.columns.size - 1)
        block = np.where(inside, i * (self.columns.size - 1) + j, 0)
        per_row = self._parts.across[block]
        position = self._parts.start[block] + down * self._parts.down[block] // height * per_row
        position += across * per_row // width
        return np.where(inside & (per_row > 0), position, -1)[:, None]

    @staticmethod
    def _along(edges: IntArray, at: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """The offset within its block, the block and its length, of rows or of columns."""
        block = np.searchsorted(edges, at, side="right") - 1
        there = np.clip(block, 0, edges.size - 2)
        return at - edges[there], block, np.diff(edges)[there]
