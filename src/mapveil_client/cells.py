"""Cells in closed form: the cell of a public tiling that a location is in, and the edges and centre of a cell.

Clients and servers in Python share this one definition: the tilings of :mod:`mapveil.geo` are these, with polygons,
SQL and outlines added. A location on an inner edge of a raster belongs to the cell south and east of it; one on the
box's southern or eastern edge to the last row or column.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mapveil_client import morton
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.cell_edges import CellEdges
from mapveil_client.errors import check_whole
from mapveil_client.plane import Box

MAX_DEPTH: Final = 23
"""At this depth the cells of the whole Earth are less than 5 m wide."""

_CHUNK: Final = 1 << 15


class Centres(NamedTuple):
    """Cell centres, WGS84 degrees."""

    lon: FloatArray
    lat: FloatArray


@dataclass(frozen=True, eq=False)
class Lattice:
    """The site of each cell of a tiling on a square raster; mechanisms that work on a quadtree see every tiling so.

    A site that no cell lies on is known to be empty; cells that share a site share its estimate evenly.

    Parameters
    ----------
    depth : int
        The raster has ``2**depth`` rows and columns; row 0 is the northmost, column 0 the westmost.
    row, col : ndarray of int64, shape (cells,)
        The site of each cell.
    inside : ndarray of bool, shape (cells,), optional
        Whether each cell can hold anybody; all by default. The others are known to be empty.
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
        """Number of cells on each site that can hold anybody, shape (side, side)."""
        inside = np.ones(self.row.size, dtype=np.bool_) if self.inside is None else self.inside
        return self.to_square(inside.astype(np.int64))

    def to_square(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum per-cell values onto the raster, shape (side, side), same dtype."""
        square = np.zeros((self.side, self.side), dtype=values.dtype)
        np.add.at(square, (self.row, self.col), values)
        return square


class Cells(Protocol):
    """A finite division of a region into cells with codes 0 .. size - 1; public."""

    @property
    def region(self) -> Box:
        """The region that is divided."""

    @property
    def size(self) -> int:
        """Number of cells."""

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, such as ``"quadtree:8"``."""

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each location (WGS84 degrees), -1 outside."""

    def centres(self, cells: IntArray | None = None) -> Centres:
        """Centres of the given cells (all by default)."""

    def lattice(self) -> Lattice:
        """Where the cells lie on a square power-of-two raster."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil_client.tiles_and_sites.cells_from_dict` makes it again."""


@dataclass(frozen=True)
class CellRaster:
    """Equal rows (0 is the northmost) and columns (0 is the westmost) of a region's box.

    Parameters
    ----------
    region : Box
        The region that is divided, in its own plane.
    rows, columns : int
        Number of rows and of columns.
    """

    region: Box
    rows: int
    columns: int

    @property
    def per_x(self) -> float:
        """Columns for each unit of the plane."""
        return self.columns / self.region.width_m

    @property
    def per_y(self) -> float:
        """Rows for each unit of the plane."""
        return self.rows / self.region.height_m

    def locate(self, lon: FloatArray, lat: FloatArray) -> tuple[BoolArray, IntArray, IntArray]:
        """Whether locations are in the box, and their rows and columns (clamped to it), shape (n,).

        Where rows and columns follow from a latitude and a longitude alone, they are defined by their edges
        (:mod:`mapveil_client.cell_edges`); in another plane by the formula.
        """
        inside = self.region.box_contains(lon, lat)
        if self.region.projection.separable:
            return inside, self.row_edges.locate(-lat), self.column_edges.locate(lon)
        x, y = self.region.project(lon, lat)
        return inside, self._rows_at(y), self._columns_at(x)

    @cached_property
    def column_edges(self) -> CellEdges:
        """The columns' edges, in degrees of longitude."""
        west, _, east, _ = self.region.bbox
        return CellEdges(west, east, self.columns, self._columns_of)

    @cached_property
    def row_edges(self) -> CellEdges:
        """The rows' edges, in negative degrees of latitude, because the northmost row is the first."""
        _, south, _, north = self.region.bbox
        return CellEdges(-north, -south, self.rows, self._rows_of)

    def _columns_of(self, lon: FloatArray) -> IntArray:
        return self._columns_at(self.region.project(lon, np.zeros_like(lon))[0])

    def _rows_of(self, minus_lat: FloatArray) -> IntArray:
        return self._rows_at(self.region.project(np.zeros_like(minus_lat), -minus_lat)[1])

    def _columns_at(self, x: FloatArray) -> IntArray:
        return _line(x - self.region.bounds_m[0], self.per_x, self.columns)

    def _rows_at(self, y: FloatArray) -> IntArray:
        return _line(self.region.bounds_m[3] - y, self.per_y, self.rows)

    def codes(
        self, lon: FloatArray, lat: FloatArray, code: Callable[[IntArray, IntArray], IntArray]
    ) -> IntArray:
        """The codes that ``code`` gives to the rows and columns of locations, -1 outside the region."""
        lon, lat = np.asarray(lon, dtype=np.float64).ravel(), np.asarray(lat, dtype=np.float64).ravel()
        cells = np.empty(lon.shape, dtype=np.int64)
        for start in range(0, lon.size, _CHUNK):  # temporaries that stay in the cache
            part = slice(start, start + _CHUNK)
            inside, row, col = self.locate(lon[part], lat[part])
            if not self.region.is_box:
                inside &= self.belongs(row, col)
            cells[part] = np.where(inside, code(row, col), -1)
        return cells

    def belongs(self, row: IntArray, col: IntArray) -> BoolArray:
        """Whether cells belong to the region: all of a box."""
        return np.ones(row.shape, dtype=np.bool_)

    def edges(self, row: IntArray, col: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """West, south, east and north edges of cells in the region's plane."""
        x0, y0, x1, y1 = self.region.bounds_m
        # Linear from both ends, so that the outer edges are the box's to the last bit.
        west = (x0 * (self.columns - col) + x1 * col) / self.columns
        east = (x0 * (self.columns - col - 1) + x1 * (col + 1)) / self.columns
        north = (y1 * (self.rows - row) + y0 * row) / self.rows
        south = (y1 * (self.rows - row - 1) + y0 * (row + 1)) / self.rows
        return west, south, east, north

    def centres(self, row: IntArray, col: IntArray) -> Centres:
        """Centres of cells, degrees."""
        west, south, east, north = self.edges(row, col)
        return Centres(*self.region.unproject((west + east) / 2, (south + north) / 2))


def _line(distance: FloatArray, per_unit: float, count: int) -> IntArray:
    """Row or column at a distance from the first one's outer edge, kept in the raster."""
    with np.errstate(invalid="ignore", over="ignore"):
        line = np.nan_to_num(distance * per_unit)
    return np.clip(line, 0, count - 1).astype(np.int64)


class RasterCells(ABC):
    """Tilings whose cells are those of a raster."""

    @property
    @abstractmethod
    def raster(self) -> CellRaster:
        """The rows and columns of the cells."""

    @abstractmethod
    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        """Row and column of the given cells (all by default)."""

    def _inside(self) -> BoolArray | None:
        """Which cells can hold anybody; None for all."""
        return None

    def centres(self, cells: IntArray | None = None) -> Centres:
        """Centres of the given cells (all by default)."""
        return self.raster.centres(*self._row_col(cells))


@dataclass(frozen=True)
class GridCells(RasterCells):
    """A region in equal rows and columns; cell ``row * columns + column``, the first in the north-west.

    Parameters
    ----------
    region : Box
        The region that is divided.
    rows, columns : int
        Number from north to south and from west to east, 1 .. 2**31.

    Raises
    ------
    ParameterError
        Too few or too many rows or columns.
    """

    region: Box
    rows: int
    columns: int

    def __post_init__(self) -> None:
        check_whole(self.rows, "rows", 1, 1 << 31)
        check_whole(self.columns, "columns", 1, 1 << 31)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.rows * self.columns

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, ``grid:ROWSxCOLUMNS``."""
        return f"grid:{self.rows}x{self.columns}"

    @cached_property
    def raster(self) -> CellRaster:
        """The rows and columns."""
        return CellRaster(self.region, self.rows, self.columns)

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each location (WGS84 degrees), -1 outside."""
        return self.raster.codes(lon, lat, lambda row, col: row * self.columns + col)

    def lattice(self) -> Lattice:
        """The grid in the north-west corner of the smallest square that holds it."""
        row, col = self._row_col(None)
        return Lattice((max(self.rows, self.columns) - 1).bit_length(), row, col, self._inside())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil_client.tiles_and_sites.cells_from_dict` makes it again."""
        return {"kind": "grid", "region": self.region.to_dict(), "rows": self.rows, "columns": self.columns}

    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        codes = np.arange(self.size) if cells is None else np.asarray(cells, dtype=np.int64)
        row, col = np.divmod(codes, self.columns)
        return row, col


@dataclass(frozen=True)
class QuadtreeCells(RasterCells):
    """A region in ``2**depth`` rows and columns; cells are Morton codes.

    Parameters
    ----------
    region : Box
        The region that is divided.
    depth : int
        Number of halvings, 0 .. 23.

    Raises
    ------
    ParameterError
        ``depth`` is out of range.
    """

    region: Box
    depth: int

    def __post_init__(self) -> None:
        check_whole(self.depth, "depth", 0, MAX_DEPTH)

    @property
    def size(self) -> int:
        """Number of cells, ``4**depth``."""
        return 1 << (2 * self.depth)

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, ``quadtree:DEPTH``."""
        return f"quadtree:{self.depth}"

    @cached_property
    def raster(self) -> CellRaster:
        """The rows and columns of the deepest level."""
        return CellRaster(self.region, 1 << self.depth, 1 << self.depth)

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each location (WGS84 degrees), -1 outside."""
        return self.raster.codes(lon, lat, morton.interleave)

    def lattice(self) -> Lattice:
        """Every cell on its own site."""
        return Lattice(self.depth, *self._row_col(None), self._inside())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil_client.tiles_and_sites.cells_from_dict` makes it again."""
        return {"kind": "quadtree", "region": self.region.to_dict(), "depth": self.depth}

    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        return morton.deinterleave(np.arange(self.size) if cells is None else cells)
