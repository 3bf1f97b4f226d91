"""The raster under grids and quadtrees: a region's box in equal rows and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import sql_number
from mapveil.geo.tiling import Bounds, Centres
from mapveil_client.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from mapveil.geo.region import Region


_CHUNK: Final = 1 << 15
_LARGEST_MASK: Final = 1 << 22


@dataclass(frozen=True)
class Raster:
    """Equal rows (0 is the northmost) and columns (0 is the westmost) of a region's box.

    A place on an inner edge belongs to the cell south and east of it; one on the box's southern or eastern
    edge to the last row or column.

    Parameters
    ----------
    region : Region
        What is divided, in its own plane.
    rows, columns : int
        How often.
    """

    region: Region
    rows: int
    columns: int

    @property
    def _per_x(self) -> float:
        return self.columns / self.region.width_m

    @property
    def _per_y(self) -> float:
        return self.rows / self.region.height_m

    def locate(self, lon: FloatArray, lat: FloatArray) -> tuple[BoolArray, IntArray, IntArray]:
        """Whether places are in the box, and their rows and columns (clamped to it), shape (n,)."""
        inside = self.region.box_contains(lon, lat)
        x, y = self.region.project(lon, lat)
        x0, _, _, y1 = self.region.bounds_m
        with np.errstate(invalid="ignore", over="ignore"):
            col = np.nan_to_num((x - x0) * self._per_x)
            row = np.nan_to_num((y1 - y) * self._per_y)
        np.clip(col, 0, self.columns - 1, out=col)
        np.clip(row, 0, self.rows - 1, out=row)
        return inside, row.astype(np.int64), col.astype(np.int64)

    def codes(
        self, lon: FloatArray, lat: FloatArray, code: Callable[[IntArray, IntArray], IntArray]
    ) -> IntArray:
        """The codes that ``code`` gives to the rows and columns of places, -1 outside the region."""
        lon, lat = np.asarray(lon, dtype=np.float64).ravel(), np.asarray(lat, dtype=np.float64).ravel()
        cells = np.empty(lon.shape, dtype=np.int64)
        for start in range(0, lon.size, _CHUNK):  # temporaries that stay in the cache
            part = slice(start, start + _CHUNK)
            inside, row, col = self.locate(lon[part], lat[part])
            if self.region.polygon is not None:
                inside &= self.belongs(row, col)
            cells[part] = np.where(inside, code(row, col), -1)
        return cells

    def key_sql(self, lon: str, lat: str) -> str | None:
        """``row * columns + column`` as SQL, -1 outside; None for a polygon or without a closed form."""
        projected = self.region.project_sql(lon, lat)
        if projected is None or self.region.polygon is not None:
            return None
        x, y = projected
        x0, _, _, y1 = (sql_number(value) for value in self.region.bounds_m)
        west, south, east, north = (sql_number(value) for value in self.region.bbox)
        inside = f"({lon}) BETWEEN {west} AND {east} AND ({lat}) BETWEEN {south} AND {north}"
        # Casts round to nearest, so floor comes first.
        col = _clamped(f"floor(({x} - {x0}) * {sql_number(self._per_x)})", self.columns)
        row = _clamped(f"floor(({y1} - {y}) * {sql_number(self._per_y)})", self.rows)
        return f"(CASE WHEN {inside} THEN {row} * {self.columns} + {col} ELSE -1 END)"

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
        """Middles of cells, degrees."""
        west, south, east, north = self.edges(row, col)
        return Centres(*self.region.unproject((west + east) / 2, (south + north) / 2))

    def bounds(self, row: IntArray, col: IntArray) -> Bounds:
        """Bounding boxes of cells, degrees."""
        west, south, east, north = self.edges(row, col)
        if self.region.projection.separable:
            left, bottom = self.region.unproject(west, south)
            right, top = self.region.unproject(east, north)
            # Rounding must not carry an outer edge past the region's, which may be a pole or 180 degrees.
            first_lon, first_lat, last_lon, last_lat = self.region.bbox
            return Bounds(
                np.clip(left, first_lon, last_lon),
                np.clip(bottom, first_lat, last_lat),
                np.clip(right, first_lon, last_lon),
                np.clip(top, first_lat, last_lat),
            )
        lon, lat = self._corners(west, south, east, north)
        return Bounds(lon.min(axis=1), lat.min(axis=1), lon.max(axis=1), lat.max(axis=1))

    def polygons(self, row: IntArray, col: IntArray) -> npt.NDArray[np.object_]:
        """Outlines of cells (their four corners), degrees."""
        import shapely

        if self.region.projection.separable:
            return np.asarray(shapely.box(*self.bounds(row, col)), dtype=object)
        lon, lat = self._corners(*self.edges(row, col))
        return np.asarray(shapely.polygons(np.stack([lon, lat], axis=-1)), dtype=object)

    def _corners(
        self, west: FloatArray, south: FloatArray, east: FloatArray, north: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        x = np.stack([east, east, west, west], axis=1)
        y = np.stack([south, north, north, south], axis=1)
        return self.region.unproject(x, y)

    def area_m2(self, row: IntArray, col: IntArray) -> FloatArray:
        """Areas of cells, square metres."""
        west, south, east, north = self.edges(row, col)
        return self.region.projection.box_area_m2(west, south, east, north)

    def belongs(self, row: IntArray, col: IntArray) -> BoolArray:
        """Whether cells belong to the region: all of a box, those with their centre in a polygon."""
        if self.region.polygon is None:
            return np.ones(row.shape, dtype=np.bool_)
        if self.rows * self.columns <= _LARGEST_MASK:
            return np.asarray(self._mask[row, col])
        distinct, index = np.unique(row * self.columns + col, return_inverse=True)
        lon, lat = self.centres(distinct // self.columns, distinct % self.columns)
        return self.region.contains(lon, lat)[index]

    @cached_property
    def _mask(self) -> BoolArray:
        row, col = np.divmod(np.arange(self.rows * self.columns), self.columns)
        lon, lat = self.centres(row, col)
        return self.region.contains(lon, lat).reshape(self.rows, self.columns)


class RasterCells(ABC):
    """What tilings whose cells are those of a raster have in common."""

    @property
    @abstractmethod
    def raster(self) -> Raster:
        """The rows and columns of the cells."""

    @abstractmethod
    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        """Row and column of the given cells (all by default)."""

    def centres(self, cells: IntArray | None = None) -> Centres:
        """Centres of the given cells (all by default)."""
        return self.raster.centres(*self._row_col(cells))

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the given cells (all by default)."""
        return self.raster.bounds(*self._row_col(cells))

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Outlines of the given cells as shapely polygons, WGS84 degrees."""
        return self.raster.polygons(*self._row_col(cells))

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the given cells in square metres."""
        return self.raster.area_m2(*self._row_col(cells))

    def inside(self, cells: IntArray | None = None) -> npt.NDArray[np.bool_]:
        """Whether the given cells belong to the region: all but those outside its polygon."""
        return self.raster.belongs(*self._row_col(cells))


def _clamped(value: str, count: int) -> str:
    return f"CAST(least(greatest({value}, 0e0), {sql_number(count - 1)}) AS BIGINT)"
