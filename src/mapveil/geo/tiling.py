"""The protocol of tilings: how a place becomes a cell, and what a cell covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from mapveil.geo.region import Region

__all__ = ["Bounds", "Centres", "HierarchicalTiling", "Lattice", "Tiling"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Centres(NamedTuple):
    """Cell centres, WGS84 degrees."""

    lon: FloatArray
    lat: FloatArray


class Bounds(NamedTuple):
    """Cell bounding boxes, WGS84 degrees."""

    west: FloatArray
    south: FloatArray
    east: FloatArray
    north: FloatArray


@dataclass(frozen=True, eq=False)
class Lattice:
    """Where each cell of a tiling lies on a square raster of 2**depth rows and columns.

    Mechanisms that work on a quadtree see every tiling through its lattice. A site that no cell
    lies on is known to be empty; cells that share a site share its estimate evenly.

    Parameters
    ----------
    depth : int
        The raster has ``2**depth`` rows and columns; row 0 is the northmost, column 0 the westmost.
    row, col : ndarray of int64, shape (cells,)
        The site of each cell.
    """

    depth: int
    row: IntArray
    col: IntArray

    @property
    def side(self) -> int:
        """Rows (and columns) of the raster."""
        return 1 << self.depth

    def members(self) -> IntArray:
        """How many cells lie on each site, shape (side, side)."""
        return self.to_square(np.ones(self.row.size, dtype=np.int64))

    def to_square(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum per-cell values onto the raster, shape (side, side), same dtype."""
        square = np.zeros((self.side, self.side), dtype=values.dtype)
        np.add.at(square, (self.row, self.col), values)
        return square

    def from_square(self, square: npt.NDArray[Any]) -> FloatArray:
        """Give each cell its even part of its site's value, shape (cells,)."""
        shared = np.maximum(self.members(), 1)[self.row, self.col]
        return np.asarray(square[self.row, self.col] / shared, dtype=np.float64)


@runtime_checkable
class Tiling(Protocol):
    """A finite division of a region into cells with codes 0 .. size - 1.

    ``locate`` gives -1 to whatever lies outside. Codes of hierarchical tilings are Morton codes.
    Everything here depends on the region and the tiling's parameters only, never on data.
    """

    region: Region

    @property
    def size(self) -> int:
        """Number of cells."""
        ...

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, such as ``"quadtree:8"``."""
        ...

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each place (WGS84 degrees), -1 outside."""
        ...

    def locate_sql(self, lon: str, lat: str) -> str | None:
        """The same as one SQL expression over two column expressions, where there is one."""
        ...

    def centres(self, cells: IntArray | None = None) -> Centres:
        """Centres of the given cells (all by default)."""
        ...

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the given cells (all by default)."""
        ...

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Outlines of the given cells as shapely polygons, WGS84 degrees."""
        ...

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the given cells in square metres."""
        ...

    def lattice(self) -> Lattice:
        """Where the cells lie on a square power-of-two raster."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil.geo.tiling_from_dict` makes it again."""
        ...


@runtime_checkable
class HierarchicalTiling(Tiling, Protocol):
    """A tiling whose cells nest: a node is a Morton prefix, a subtree an interval of codes."""

    depth: int

    def parent(self, cells: IntArray, levels: int = 1) -> IntArray:
        """The ancestor ``levels`` levels up, as a code of that level."""
        ...

    def children(self, cells: IntArray) -> IntArray:
        """The four children of each node, one level down, shape (cells, 4)."""
        ...

    def at_level(self, level: int) -> HierarchicalTiling:
        """The same region divided ``level`` times."""
        ...
