"""Quadtree: a region halved both ways, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mapveil.geo.raster import Raster, RasterShapes
from mapveil.geo.region import Region
from mapveil_client import morton
from mapveil_client.arrays import IntArray
from mapveil_client.cells import QuadtreeCells
from mapveil_client.errors import ParameterError


@dataclass(frozen=True)
class Quadtree(QuadtreeCells, RasterShapes):
    """``2**depth`` rows and columns (:class:`~mapveil_client.cells.QuadtreeCells`), with SQL, outlines and nodes.

    Cells are Morton codes, so nodes are their prefixes. Nothing is enumerated unless asked for: a tree of depth 23
    costs no memory. A polygon as region counts as for :class:`mapveil.geo.grid.Grid`.

    Parameters
    ----------
    region : Region
        Region to divide.
    depth : int
        Number of halvings, 0 to 23.

    Examples
    --------
    >>> tree = Quadtree(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=8)
    >>> cell = tree.locate(np.array([-73.97]), np.array([40.77]))
    >>> tree.parent(cell, 8), tree.size
    (array([0]), 65536)
    """

    region: Region

    @cached_property
    def raster(self) -> Raster:
        """The rows and columns of the deepest level."""
        return Raster(self.region, 1 << self.depth, 1 << self.depth)

    def _cells_of_keys(self, keys: IntArray) -> IntArray:
        row, col = np.divmod(np.maximum(keys, 0), 1 << self.depth)
        return np.where(keys < 0, -1, morton.interleave(row, col))

    def parent(self, cells: IntArray, levels: int = 1) -> IntArray:
        """The ancestor ``levels`` levels up, as a code of that level."""
        if not 0 <= levels <= self.depth:
            raise ParameterError(f"levels must be 0 to {self.depth}, got {levels!r}")
        return np.asarray(cells, dtype=np.int64) >> (2 * levels)

    def children(self, cells: IntArray) -> IntArray:
        """The four children of each node, one level down, shape (cells, 4)."""
        return morton.children(cells)

    def at_level(self, level: int) -> Quadtree:
        """The same region divided ``level`` times."""
        return Quadtree(self.region, level)
