"""The raster under grids and quadtrees: a region's box in equal rows and columns."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import sql_number
from mapveil.geo.tiling import Bounds
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.cells import CellRaster, RasterCells

if TYPE_CHECKING:
    from mapveil.geo.region import Region


_LARGEST_MASK: Final = 1 << 22


@dataclass(frozen=True)
class Raster(CellRaster):
    """Equal rows and columns of a region's box, with a polygon those whose centre lies in it; also as SQL."""

    region: Region

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
        col = _clamped(f"floor(({x} - {x0}) * {sql_number(self.per_x)})", self.columns)
        row = _clamped(f"floor(({y1} - {y}) * {sql_number(self.per_y)})", self.rows)
        return f"(CASE WHEN {inside} THEN {row} * {self.columns} + {col} ELSE -1 END)"

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


class RasterShapes(RasterCells):
    """Bounds, outlines and areas of tilings whose cells are those of a raster."""

    @property
    @abstractmethod
    def raster(self) -> Raster:
        """The rows and columns of the cells."""

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

    def _inside(self) -> BoolArray | None:
        return None if self.raster.region.is_box else self.inside()


def _clamped(value: str, count: int) -> str:
    return f"CAST(least(greatest({value}, 0e0), {sql_number(count - 1)}) AS BIGINT)"
