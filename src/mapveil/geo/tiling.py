"""The protocol of tilings: how a place becomes a cell, and what a cell covers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from mapveil.geo.region import Region


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


class SqlKey(NamedTuple):
    """A cell as SQL computes it: an integer key, -1 outside, and what turns distinct keys into cells.

    Bits are dear in SQL and cheap in NumPy: rows are grouped by a key that is plain arithmetic, and only the
    distinct keys that are left become codes.
    """

    expression: str
    cells: Callable[[IntArray], IntArray]


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
    inside : ndarray of bool, shape (cells,), optional
        Which cells can hold anybody; all by default. The others are known to be empty.
    """

    depth: int
    row: IntArray
    col: IntArray
    inside: npt.NDArray[np.bool_] | None = None

    @property
    def side(self) -> int:
        """Rows (and columns) of the raster."""
        return 1 << self.depth

    def members(self) -> IntArray:
        """How many cells that can hold anybody lie on each site, shape (side, side)."""
        inside = np.ones(self.row.size, dtype=np.bool_) if self.inside is None else self.inside
        return self.to_square(inside.astype(np.int64))

    def to_square(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum per-cell values onto the raster, shape (side, side), same dtype."""
        square = np.zeros((self.side, self.side), dtype=values.dtype)
        np.add.at(square, (self.row, self.col), values)
        return square

    def from_square(self, square: npt.NDArray[Any]) -> FloatArray:
        """Give each cell that can hold anybody its even part of its site's value, shape (cells,)."""
        shared = np.maximum(self.members(), 1)[self.row, self.col]
        values = np.asarray(square[self.row, self.col] / shared, dtype=np.float64)
        return values if self.inside is None else np.where(self.inside, values, 0.0)


@runtime_checkable
class Tiling(Protocol):
    """A finite division of a region into cells with codes 0 .. size - 1.

    ``locate`` gives -1 to whatever lies outside. Codes of hierarchical tilings are Morton codes.
    Everything here depends on the region and the tiling's parameters only, never on data.
    """

    @property
    def region(self) -> Region:
        """What is divided."""
        ...

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

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """The same through one SQL expression over two column expressions, where there is one."""
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

    @property
    def depth(self) -> int:
        """How often the region is halved."""
        ...

    def parent(self, cells: IntArray, levels: int = 1) -> IntArray:
        """The ancestor ``levels`` levels up, as a code of that level."""
        ...

    def children(self, cells: IntArray) -> IntArray:
        """The four children of each node, one level down, shape (cells, 4)."""
        ...

    def at_level(self, level: int) -> HierarchicalTiling:
        """The same region divided ``level`` times."""
        ...
