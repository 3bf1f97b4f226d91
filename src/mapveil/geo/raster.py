"""The raster under grids and quadtrees: a region's box in equal rows and columns."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import project_sql, sql_number
from mapveil.geo.tiling import Bounds, SqlKey
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.cells import CellRaster, RasterCells
from mapveil_client.plane import BoxEdges

if TYPE_CHECKING:
    from mapveil.geo.region import Region


_LARGEST_MASK: Final = 1 << 22


@dataclass(frozen=True)
class Raster(CellRaster):
    """Equal rows and columns of a region's box, with a polygon those whose centre lies in it; also as SQL."""

    region: Region

    def key_sql(self, lon: str, lat: str) -> str | None:
        """``row * columns + column`` as SQL, for the box; None for a polygon or without a closed form."""
        projected = project_sql(self.region.projection, lon, lat)
        if projected is None or self.region.polygon is not None:
            return None
        x, y = projected
        x0, _, _, y1 = (sql_number(value) for value in self.region.bounds_m)
        col = floor_sql(f"({x} - {x0}) * {sql_number(self.per_x)}", 0, self.columns - 1)
        row = floor_sql(f"({y1} - {y}) * {sql_number(self.per_y)}", 0, self.rows - 1)
        return f"{row} * {self.columns} + {col}"

    def belongs(self, row: IntArray, col: IntArray) -> BoolArray:
        """Whether cells belong to the region: all of a box, those with their centre in a polygon."""
        if self.region.polygon is None:
            return np.ones(row.shape, dtype=np.bool_)
        if self.rows * self.columns <= _LARGEST_MASK:
            return np.asarray(self._mask[row, col])
        distinct, index = np.unique(row * self.columns + col, return_inverse=True)
        return self.region.contains(*self.centres(*np.divmod(distinct, self.columns)))[index]

    @cached_property
    def _mask(self) -> BoolArray:
        every = np.divmod(np.arange(self.rows * self.columns), self.columns)
        return self.region.contains(*self.centres(*every)).reshape(self.rows, self.columns)


class RasterShapes(RasterCells):
    """SQL keys, bounds, outlines and areas of tilings whose cells are those of a raster."""

    @property
    @abstractmethod
    def raster(self) -> Raster:
        """The rows and columns of the cells."""

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """``locate`` as SQL; None for a polygon or a CRS without a closed form."""
        key = self.raster.key_sql(lon, lat)
        inside = in_box_sql(lon, lat, self.raster.region.bbox)
        return None if key is None else SqlKey(key, inside, self._cells_of_keys)

    def _cells_of_keys(self, keys: IntArray) -> IntArray:
        """Cells of :meth:`Raster.key_sql`."""
        return keys

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the given cells (all by default), degrees."""
        region = self.raster.region
        if region.projection.separable:
            west, south, east, north = self._edges(cells)
            degrees = Bounds(*region.unproject(west, south), *region.unproject(east, north))
            # Rounding must not carry an outer edge past the region's, which may be a pole or 180 degrees.
            low, high = region.bbox[:2] * 2, region.bbox[2:] * 2
            return Bounds(*map(np.clip, degrees, low, high))
        lon, lat = self._corners(cells)
        return Bounds(lon.min(axis=1), lat.min(axis=1), lon.max(axis=1), lat.max(axis=1))

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Outlines of the given cells (their four corners) as shapely polygons, WGS84 degrees."""
        import shapely

        if self.raster.region.projection.separable:
            return np.asarray(shapely.box(*self.bounds(cells)), dtype=object)
        return np.asarray(shapely.polygons(np.stack(self._corners(cells), axis=-1)), dtype=object)

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the given cells in square metres."""
        return self.raster.region.projection.box_area_m2(*self._edges(cells))

    def inside(self, cells: IntArray | None = None) -> npt.NDArray[np.bool_]:
        """Whether the given cells belong to the region: all but those outside its polygon."""
        return self.raster.belongs(*self._row_col(cells))

    def _inside(self) -> BoolArray | None:
        return None if self.raster.region.is_box else self.inside()

    def _edges(self, cells: IntArray | None) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return self.raster.edges(*self._row_col(cells))

    def _corners(self, cells: IntArray | None) -> tuple[FloatArray, FloatArray]:
        west, south, east, north = self._edges(cells)
        x = np.stack([east, east, west, west], axis=1)
        y = np.stack([south, north, north, south], axis=1)
        return self.raster.region.unproject(x, y)


def floor_sql(value: str, first: int, last: int) -> str:
    """The floor of an SQL number, kept from ``first`` to ``last``, as BIGINT."""
    # Casts round to nearest, so floor comes first.
    return f"CAST(least(greatest(floor({value}), {sql_number(first)}), {sql_number(last)}) AS BIGINT)"


def in_box_sql(lon: str, lat: str, box: BoxEdges) -> str:
    """SQL of whether a location lies in a box of degrees, edges included."""
    west, south, east, north = (sql_number(edge) for edge in box)
    return f"({lon}) BETWEEN {west} AND {east} AND ({lat}) BETWEEN {south} AND {north}"
