"""Quadtree: a region halved both ways, again and again."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mapveil.geo.raster import Raster, RasterShapes
from mapveil.geo.region import Region
from mapveil_client import morton
from mapveil_client.arrays import IntArray
from mapveil_client.cells import QuadtreeCells


@dataclass(frozen=True)
class Quadtree(QuadtreeCells, RasterShapes):
    """``2**depth`` rows and columns (:class:`~mapveil_client.cells.QuadtreeCells`), with SQL and outlines.

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
    >>> tree.size, tree.locate(np.array([-74.03]), np.array([40.83])).tolist()
    (65536, [0])
    """

    region: Region

    @cached_property
    def raster(self) -> Raster:
        """The rows and columns of the deepest level."""
        return Raster(self.region, 1 << self.depth, 1 << self.depth)

    def _cells_of_keys(self, keys: IntArray) -> IntArray:
        row, col = np.divmod(np.maximum(keys, 0), 1 << self.depth)
        return np.where(keys < 0, -1, morton.interleave(row, col))
