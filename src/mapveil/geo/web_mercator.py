"""Web-mercator tiles, named by quadkeys."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import sql_number
from mapveil.geo.raster import SqlLine, in_box_sql, key_sql
from mapveil.geo.region import Region
from mapveil.geo.tiling import Bounds, SqlKey
from mapveil_client import morton
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.plane import EqualAreaCylinder
from mapveil_client.tiles_and_sites import TileCells


@dataclass(frozen=True)
class WebMercatorTiles(TileCells):
    """The tiles of one zoom level that touch a region or its polygon, with SQL and outlines.

    Definition, range and errors: :class:`~mapveil_client.tiles_and_sites.TileCells`.

    Parameters
    ----------
    region : Region
        Region to cover, within 85.05 degrees south and north.
    zoom : int
        0 to 23.

    Examples
    --------
    >>> tiles = WebMercatorTiles(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), zoom=12)
    >>> tiles.size, tiles.quadkeys(np.array([0])).tolist()
    (9, ['032010110121'])
    """

    region: Region

    @cached_property
    def _codes(self) -> IntArray:
        codes = super()._codes
        if self.region.polygon is None:
            return codes
        import shapely

        shapely.prepare(self.region.polygon)
        return np.asarray(codes[shapely.intersects(self.region.polygon, shapely.box(*self._edges(codes)))])

    @property
    def size(self) -> int:
        """Number of tiles."""
        # Of a box it is known before 2**26 codes are sorted.
        return super().size if self.region.polygon is None else self._codes.size

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """``locate`` as SQL; None for a polygon."""
        if self.region.polygon is not None:
            return None
        tiles = sql_number(2.0**self.zoom)
        sine = f"sin(radians({lat}))"
        latitude = f"ln((1e0 + {sine}) / (1e0 - {sine})) / {sql_number(4 * math.pi)}"
        row = SqlLine(f"(0.5e0 - {latitude}) * {tiles}", self._range[2], self._row_edges)
        col = SqlLine(f"(({lon}) + 180e0) / 360e0 * {tiles}", self._range[0], self._column_edges)
        inside = in_box_sql(lon, lat, self._cover)
        return key_sql((row, col), 1 << self.zoom, (lon, lat), inside, self._cells_of_keys, self._keys)

    def quadkeys(self, cells: IntArray | None = None) -> npt.NDArray[np.str_]:
        """The tiles' quadkeys, texts of ``zoom`` digits."""
        codes = self._codes if cells is None else self._codes[cells]
        places = 2 * np.arange(self.zoom - 1, -1, -1, dtype=np.int64)
        digits = ((codes[:, None] >> places) & 3).astype(np.uint8) + ord("0")
        if self.zoom == 0:
            return np.full(codes.size, "")
        return np.char.decode(np.ascontiguousarray(digits).view(f"S{self.zoom}")[:, 0], "ascii")

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the given tiles, degrees."""
        return self._edges(self._codes if cells is None else self._codes[cells])

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Outlines of the given tiles as shapely polygons, degrees."""
        import shapely

        return np.asarray(shapely.box(*self.bounds(cells)), dtype=object)

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the given tiles on the ellipsoid, square metres."""
        west, south, east, north = self.bounds(cells)
        flat = EqualAreaCylinder(0.0, 0.0)
        (x0, y0), (x1, y1) = flat.project(west, south), flat.project(east, north)
        return np.asarray((x1 - x0) * (y1 - y0))

    def _edges(self, codes: IntArray) -> Bounds:
        row, col = morton.deinterleave(codes)
        west, north = self._degrees(col.astype(np.float64), row.astype(np.float64))
        east, south = self._degrees(np.asarray(col + 1.0), np.asarray(row + 1.0))
        return Bounds(west, south, east, north)

    def _keys(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        row, col = self._row_edges.locate(-lat), self._column_edges.locate(lon)
        return ((row + self._range[2]) << self.zoom) + col + self._range[0]

    def _cells_of_keys(self, keys: IntArray) -> IntArray:
        row, col = np.divmod(np.maximum(keys, 0), 1 << self.zoom)
        return np.where(keys < 0, -1, self._cells_of_codes(morton.interleave(row, col)))
