"""The raster under grids and quadtrees: a region's box in equal rows and columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import project_sql, sql_number
from mapveil.geo.tiling import EXACT_KEY, Bounds, SqlKey
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.cell_edges import CellEdges
from mapveil_client.cells import CellRaster, RasterCells
from mapveil_client.plane import BoxEdges

if TYPE_CHECKING:
    from mapveil.geo.region import Region


_LARGEST_MASK: Final = 1 << 22

_NEAR: Final = 2.0**-20
_NEAR_DEGREES: Final = 360 * 2.0**-40
"""Ten million metres of the plane are rounded by less than a hundredth of this, whatever library computes sines."""

_MOST_NEAR: Final = 0.1
"""Where more of a cell than this is near an edge, SQL does not pay."""


@dataclass(frozen=True)
class Raster(CellRaster):
    """Equal rows and columns of a region's box, with a polygon those whose centre lies in it; also as SQL."""

    region: Region

    def lines_sql(self, lon: str, lat: str) -> tuple[SqlLine, SqlLine] | None:
        """Row and column as SQL, for the box; None for a polygon or without a closed form."""
        projected = project_sql(self.region.projection, lon, lat)
        if projected is None or self.region.polygon is not None:
            return None
        x, y = projected
        x0, _, _, y1 = (sql_number(value) for value in self.region.bounds_m)
        row = SqlLine(f"({y1} - {y}) * {sql_number(self.per_y)}", 0, self.row_edges)
        col = SqlLine(f"({x} - {x0}) * {sql_number(self.per_x)}", 0, self.column_edges)
        return row, col

    def key(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """``row * columns + column`` of locations in the box."""
        _, row, col = self.locate(lon, lat)
        return row * self.columns + col

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
        """``locate`` as SQL; None for a polygon, a CRS without a closed form, or cells finer than rounding."""
        raster = self.raster
        lines = raster.lines_sql(lon, lat)
        inside = in_box_sql(lon, lat, raster.region.bbox)
        return lines and key_sql(lines, raster.columns, (lon, lat), inside, self._cells_of_keys, raster.key)

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


class SqlLine(NamedTuple):
    """Row or column as SQL: a number whose floor it is, but near an edge."""

    number: str
    first: int  # number of the first line
    edges: CellEdges

    @property
    def near(self) -> float:
        """Distance from an edge, in lines, beyond which rounding cannot move the number across."""
        width = (self.edges.high - self.edges.low) / self.edges.count
        return max(_NEAR, _NEAR_DEGREES / width) if width > 0 else 1.0


def key_sql(
    lines: tuple[SqlLine, SqlLine],
    columns: int,
    location: tuple[str, str],
    inside: str,
    cells: Callable[[IntArray], IntArray],
    exact: Callable[[FloatArray, FloatArray], IntArray],
) -> SqlKey | None:
    """The key ``row * columns + column`` as SQL, with locations near an edge left to ``exact``."""
    if max(line.near for line in lines) > _MOST_NEAR:
        return None
    steps = tuple(zip(("mapveil_row", "mapveil_col"), (line.number for line in lines), strict=True))
    near = " OR ".join(
        f"abs({name} - round({name})) < {sql_number(line.near)}"
        for (name, _), line in zip(steps, lines, strict=True)
    )
    row, col = (
        floor_sql(name, line.first, line.first + line.edges.count - 1)
        for (name, _), line in zip(steps, lines, strict=True)
    )
    key = f"(CASE WHEN {near} THEN {EXACT_KEY}({', '.join(location)}) ELSE {row} * {columns} + {col} END)"
    return SqlKey(steps, key, inside, cells, exact)


def floor_sql(value: str, first: int, last: int) -> str:
    """The floor of an SQL number, kept from ``first`` to ``last``, as BIGINT."""
    # Casts round to nearest, so floor comes first.
    return f"CAST(least(greatest(floor({value}), {sql_number(first)}), {sql_number(last)}) AS BIGINT)"


def in_box_sql(lon: str, lat: str, box: BoxEdges) -> str:
    """SQL of whether a location lies in a box of degrees, edges included."""
    west, south, east, north = (sql_number(edge) for edge in box)
    return f"({lon}) BETWEEN {west} AND {east} AND ({lat}) BETWEEN {south} AND {north}"
