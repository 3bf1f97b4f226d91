"""Quadtree: a region halved both ways, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from mapveil.geo.raster import Raster, RasterCells
from mapveil.geo.region import Region
from mapveil.geo.tiling import Lattice, SqlKey
from mapveil_client import morton
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

MAX_DEPTH: Final = 23
"""At this depth the cells of the whole Earth are less than 5 m wide."""


@dataclass(frozen=True)
class Quadtree(RasterCells):
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
    depth: int

    def __post_init__(self) -> None:
        depth = self.depth
        if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= MAX_DEPTH:
            raise ParameterError(f"depth is {depth!r}; a whole number from 0 to {MAX_DEPTH} is accepted")

    @property
    def size(self) -> int:
        """Number of cells, ``4**depth``."""
        return 1 << (2 * self.depth)

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, ``quadtree:DEPTH``."""
        return f"quadtree:{self.depth}"

    @cached_property
    def raster(self) -> Raster:
        """The rows and columns of the deepest level."""
        return Raster(self.region, 1 << self.depth, 1 << self.depth)

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each place (WGS84 degrees), -1 outside."""
        return self.raster.codes(lon, lat, morton.interleave)

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """The same through SQL; None for a polygon or a CRS without a closed form."""
        key = self.raster.key_sql(lon, lat)
        return None if key is None else SqlKey(key, self._cells_of_keys)

    def _cells_of_keys(self, keys: IntArray) -> IntArray:
        row, col = np.divmod(np.maximum(keys, 0), 1 << self.depth)
        return np.where(keys < 0, -1, morton.interleave(row, col))

    def lattice(self) -> Lattice:
        """Every cell on its own site."""
        inside = None if self.region.polygon is None else self.inside()
        return Lattice(self.depth, *self._row_col(None), inside)

    def parent(self, cells: IntArray, levels: int = 1) -> IntArray:
        """The ancestor ``levels`` levels up, as a code of that level."""
        if not 0 <= levels <= self.depth:
            raise ParameterError(f"levels is {levels!r}; 0 to {self.depth} is accepted")
        return morton.ancestors(cells, levels)

    def children(self, cells: IntArray) -> IntArray:
        """The four children of each node, one level down, shape (cells, 4)."""
        return morton.children(cells)

    def at_level(self, level: int) -> Quadtree:
        """The same region divided ``level`` times."""
        return Quadtree(self.region, level)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil.geo.tiling_from_dict` makes it again."""
        return {"kind": "quadtree", "region": self.region.to_dict(), "depth": self.depth}

    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        return morton.deinterleave(np.arange(self.size) if cells is None else cells)
