"""Quadtree: a region halved both ways, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mapveil.geo.raster import Raster, RasterShapes
from mapveil.geo.region import Region
from mapveil.geo.tiling import SqlKey
from mapveil_client import morton
from mapveil_client.arrays import IntArray
from mapveil_client.cells import QuadtreeCells
from mapveil_client.errors import ParameterError


@dataclass(frozen=True)
class Quadtree(QuadtreeCells, RasterShapes):
    """A region in ``2**depth`` rows and columns; cells are Morton codes, so nodes are their prefixes.

    Nothing is enumerated unless asked for: a tree of depth 23 costs no memory. With a polygon as region,
    the cells whose centre lies outside it keep their codes, but no place is located to them
    (see :meth:`inside`).

    Parameters
    ----------
    region : Region
        What is divided.
    depth : int
        How often it is halved, 0 .. 23.

    Raises
    ------
    ParameterError
        ``depth`` is out of range.

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

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """The same through SQL; None for a polygon or a CRS without a closed form."""
        key = self.raster.key_sql(lon, lat)
        return None if key is None else SqlKey(key, self._cells_of_keys)

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
