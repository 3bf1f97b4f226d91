"""Web-mercator tiles: the cells of every slippy map, named by quadkeys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import EqualAreaCylinder, sql_number
from mapveil.geo.region import Region
from mapveil.geo.tiling import Bounds, Centres, Lattice, SqlKey
from mapveil_client import morton
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

_MAX_ZOOM: Final = 23
_LARGEST: Final = 1 << 26
_MAX_LAT: Final = math.degrees(math.atan(math.sinh(math.pi)))


@dataclass(frozen=True)
class WebMercatorTiles:
    r"""The tiles of one zoom level that touch a region; cell i is the i-th in the order of quadkeys.

    .. math:: x = 2^z \frac{\lambda + 180}{360}, \qquad
              y = 2^{z-1} \left(1 - \frac{\operatorname{artanh}(\sin\varphi)}{\pi}\right)

    where: :math:`\lambda` is ``lon``, :math:`\varphi` is ``lat``, z is ``zoom``; the tile is the integer
    part of (x, y). A place in a tile counts although it may lie outside the region's own edge; one on the
    eastern or southern edge of all the tiles belongs to the last of them. Tiles differ in area.

    Parameters
    ----------
    region : Region
        What is covered, between about 85.05 degrees south and north.
    zoom : int
        0 .. 23.

    Raises
    ------
    ParameterError
        ``zoom`` is out of range, the region lies beyond the map, or more than 2**26 tiles would be needed.

    Examples
    --------
    >>> tiles = WebMercatorTiles(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), zoom=12)
    >>> tiles.size, tiles.quadkeys(np.array([0])).tolist()
    (9, ['032010110121'])
    """

    region: Region
    zoom: int

    def __post_init__(self) -> None:
        zoom = self.zoom
        if isinstance(zoom, bool) or not isinstance(zoom, int) or not 0 <= zoom <= _MAX_ZOOM:
            raise ParameterError(f"zoom is {zoom!r}; a whole number from 0 to {_MAX_ZOOM} is accepted")
        _, south, _, north = self.region.bbox
        if not self.region.georeferenced or north <= -_MAX_LAT or south >= _MAX_LAT:
            raise ParameterError(
                f"region {self.region} has no web-mercator tiles; one within 85.05 degrees has"
            )
        if self._rows * self._columns > _LARGEST:
            raise ParameterError(
                f"zoom {zoom} has {self._rows * self._columns} tiles there; at most {_LARGEST} are accepted"
            )

    @cached_property
    def _range(self) -> tuple[int, int, int, int]:
        """First and last column, first and last row of the tiles that touch the region's box."""
        west, south, east, north = self.region.bbox
        x, y = self._tile_coordinates(np.array([west, east]), np.array([north, south]))
        # A region that ends exactly on a tile's edge does not need the next one.
        last = np.maximum(np.ceil([x[1], y[1]]) - 1, np.floor([x[0], y[0]]))
        return int(x[0]), int(min(last[0], 2**self.zoom - 1)), int(y[0]), int(min(last[1], 2**self.zoom - 1))

    @cached_property
    def _cover(self) -> tuple[float, float, float, float]:
        """West, south, east and north edge of all the tiles together, degrees."""
        first_x, last_x, first_y, last_y = self._range
        lon, lat = self._degrees(np.array([first_x, last_x + 1.0]), np.array([last_y + 1.0, first_y]))
        west, south, east, north = self.region.bbox
        # The last bit of an edge's latitude must not leave out a place in the region.
        return (
            min(float(lon[0]), west),
            max(min(float(lat[0]), south), -_MAX_LAT),
            max(float(lon[1]), east),
            min(max(float(lat[1]), north), _MAX_LAT),
        )

    @property
    def _columns(self) -> int:
        return self._range[1] - self._range[0] + 1

    @property
    def _rows(self) -> int:
        return self._range[3] - self._range[2] + 1

    @cached_property
    def _codes(self) -> IntArray:
        """Morton codes of the tiles, sorted; shape (size,)."""
        first_x, last_x, first_y, last_y = self._range
        row, col = np.mgrid[first_y : last_y + 1, first_x : last_x + 1].reshape(2, -1)
        codes = np.sort(morton.interleave(row.astype(np.int64), col.astype(np.int64)))
        if self.region.polygon is None:
            return codes
        import shapely

        shapely.prepare(self.region.polygon)
        return np.asarray(codes[shapely.intersects(self.region.polygon, shapely.box(*self._edges(codes)))])

    @property
    def size(self) -> int:
        """Number of tiles."""
        # Of a box it is known before 2**26 codes are sorted.
        return self._rows * self._columns if self.region.polygon is None else self._codes.size

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, ``tiles:ZOOM``."""
        return f"tiles:{self.zoom}"

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each place (WGS84 degrees), -1 outside."""
        lon, lat = np.asarray(lon, dtype=np.float64).ravel(), np.asarray(lat, dtype=np.float64).ravel()
        west, south, east, north = self._cover
        first_x, last_x, first_y, last_y = self._range
        inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
        x, y = self._tile_coordinates(np.where(inside, lon, west), np.where(inside, lat, north))
        col = np.clip(x.astype(np.int64), first_x, last_x)
        row = np.clip(y.astype(np.int64), first_y, last_y)
        return np.where(inside, self._cells_of_codes(morton.interleave(row, col)), -1)

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """The same through SQL; None for a polygon."""
        if self.region.polygon is not None:
            return None
        west, south, east, north = (sql_number(edge) for edge in self._cover)
        first_x, last_x, first_y, last_y = self._range
        tiles = sql_number(2.0**self.zoom)
        sine = f"sin(radians({lat}))"
        x = f"(({lon}) + 180e0) / 360e0 * {tiles}"
        y = f"(0.5e0 - ln((1e0 + {sine}) / (1e0 - {sine})) / {sql_number(4 * math.pi)}) * {tiles}"
        # Casts round to nearest, so floor comes first.
        col = f"CAST(least(greatest(floor({x}), {sql_number(first_x)}), {sql_number(last_x)}) AS BIGINT)"
        row = f"CAST(least(greatest(floor({y}), {sql_number(first_y)}), {sql_number(last_y)}) AS BIGINT)"
        inside = f"({lon}) BETWEEN {west} AND {east} AND ({lat}) BETWEEN {south} AND {north}"
        key = f"(CASE WHEN {inside} THEN {row} * {1 << self.zoom} + {col} ELSE -1 END)"
        return SqlKey(key, self._cells_of_keys)

    def quadkeys(self, cells: IntArray | None = None) -> npt.NDArray[np.str_]:
        """The tiles' quadkeys, texts of ``zoom`` digits."""
        codes = self._codes if cells is None else self._codes[cells]
        places = 2 * np.arange(self.zoom - 1, -1, -1, dtype=np.int64)
        digits = ((codes[:, None] >> places) & 3).astype(np.uint8) + ord("0")
        if self.zoom == 0:
            return np.full(codes.size, "")
        return np.char.decode(np.ascontiguousarray(digits).view(f"S{self.zoom}")[:, 0], "ascii")

    def centres(self, cells: IntArray | None = None) -> Centres:
        """Centres of the given tiles (in their own projection), degrees."""
        row, col = self._row_col(cells)
        return Centres(*self._degrees(np.asarray(col + 0.5), np.asarray(row + 0.5)))

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

    def lattice(self) -> Lattice:
        """The tiles in the north-west corner of the smallest square that holds them."""
        row, col = self._row_col(None)
        depth = (max(self._rows, self._columns) - 1).bit_length()
        return Lattice(depth, row - self._range[2], col - self._range[0])

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil.geo.tiling_from_dict` makes it again."""
        return {"kind": "tiles", "region": self.region.to_dict(), "zoom": self.zoom}

    def _tile_coordinates(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        sine = np.sin(np.radians(np.clip(lat, -_MAX_LAT, _MAX_LAT)))
        y = (0.5 - np.log((1 + sine) / (1 - sine)) / (4 * math.pi)) * 2.0**self.zoom
        return (lon + 180) / 360 * 2.0**self.zoom, np.maximum(y, 0.0)

    def _degrees(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        tiles = 2.0**self.zoom
        return x / tiles * 360 - 180, np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * y / tiles))))

    def _edges(self, codes: IntArray) -> Bounds:
        row, col = morton.deinterleave(codes)
        west, north = self._degrees(col.astype(np.float64), row.astype(np.float64))
        east, south = self._degrees(np.asarray(col + 1.0), np.asarray(row + 1.0))
        return Bounds(west, south, east, north)

    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        return morton.deinterleave(self._codes if cells is None else self._codes[cells])

    def _cells_of_keys(self, keys: IntArray) -> IntArray:
        row, col = np.divmod(np.maximum(keys, 0), 1 << self.zoom)
        return np.where(keys < 0, -1, self._cells_of_codes(morton.interleave(row, col)))

    def _cells_of_codes(self, codes: IntArray) -> IntArray:
        at = np.minimum(np.searchsorted(self._codes, codes), self.size - 1)
        return np.where(self._codes[at] == codes, at, -1)
