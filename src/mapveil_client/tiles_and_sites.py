"""Cells of web-mercator tiles and of a public list of sites, and cells of any kind from their record."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from mapveil_client import morton
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cell_edges import CellEdges
from mapveil_client.cells import MAX_DEPTH, Cells, Centres, GridCells, Lattice, QuadtreeCells
from mapveil_client.errors import InputError, check, check_whole
from mapveil_client.plane import Box

MAX_LAT: Final = math.degrees(math.atan(math.sinh(math.pi)))
"""Where web-mercator maps end, degrees."""

_MOST_TILES: Final = 1 << 26
_DEEPEST_SITES: Final = 12
_SPARE_LEVELS: Final = 3
_PAIRS: Final = 1 << 20


@dataclass(frozen=True)
class TileCells:
    r"""The tiles of one zoom level that touch a region; cell i is the i-th in the order of quadkeys.

    .. math:: x = 2^z \frac{\lambda + 180}{360}, \qquad
              y = 2^{z-1} \left(1 - \frac{\operatorname{artanh}(\sin\varphi)}{\pi}\right)

    where: :math:`\lambda` is ``lon``, :math:`\varphi` is ``lat``, z is ``zoom``; the tile is the integer
    part of (x, y). A location in a tile counts although it may lie outside the region's own edge; one on the
    eastern or southern edge of all the tiles belongs to the last of them. Tiles differ in area.

    Parameters
    ----------
    region : Box
        The region that is covered, between about 85.05 degrees south and north.
    zoom : int
        0 .. 23.

    Raises
    ------
    ParameterError
        ``zoom`` is out of range, the region lies beyond the map, or more than 2**26 tiles would be needed.
    """

    region: Box
    zoom: int

    def __post_init__(self) -> None:
        check_whole(self.zoom, "zoom", 0, MAX_DEPTH)
        _, south, _, north = self.region.bbox
        covered = self.region.georeferenced and north > -MAX_LAT and south < MAX_LAT
        check(covered, "region", "within 85.05 degrees south and north", str(self.region))
        check(self.size <= _MOST_TILES, "tiles of the zoom", f"at most {_MOST_TILES}", self.size)

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
        # The last bit of an edge's latitude must not leave out a location in the region.
        return (
            min(float(lon[0]), west),
            max(min(float(lat[0]), south), -MAX_LAT),
            max(float(lon[1]), east),
            min(max(float(lat[1]), north), MAX_LAT),
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
        return np.sort(morton.interleave(row.astype(np.int64), col.astype(np.int64)))

    @property
    def size(self) -> int:
        """Number of tiles."""
        return self._rows * self._columns

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, ``tiles:ZOOM``."""
        return f"tiles:{self.zoom}"

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each location (WGS84 degrees), -1 outside."""
        lon, lat = (np.asarray(axis, dtype=np.float64).ravel() for axis in (lon, lat))
        west, south, east, north = self._cover
        inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
        row, col = self._row_edges.locate(-lat), self._column_edges.locate(lon)
        codes = morton.interleave(row + self._range[2], col + self._range[0])
        return np.where(inside, self._cells_of_codes(codes), -1)

    @cached_property
    def _column_edges(self) -> CellEdges:
        """Edges of the columns of tiles, degrees of longitude; the first column is 0."""
        west, _, east, _ = self._cover
        return CellEdges(west, east, self._columns, self._columns_of)

    @cached_property
    def _row_edges(self) -> CellEdges:
        """Edges of the rows of tiles, negative degrees of latitude; the first row is 0."""
        _, south, _, north = self._cover
        return CellEdges(-north, -south, self._rows, self._rows_of)

    def _columns_of(self, lon: FloatArray) -> IntArray:
        x, _ = self._tile_coordinates(lon, np.zeros_like(lon))
        return np.clip(np.floor(np.nan_to_num(x)), *self._range[:2]).astype(np.int64) - self._range[0]

    def _rows_of(self, minus_lat: FloatArray) -> IntArray:
        _, y = self._tile_coordinates(np.zeros_like(minus_lat), -minus_lat)
        return np.clip(np.floor(np.nan_to_num(y)), *self._range[2:]).astype(np.int64) - self._range[2]

    def centres(self, cells: IntArray | None = None) -> Centres:
        """Centres of the given tiles (in their own projection), degrees."""
        row, col = self._row_col(cells)
        return Centres(*self._degrees(np.asarray(col + 0.5), np.asarray(row + 0.5)))

    def lattice(self) -> Lattice:
        """The tiles in the north-west corner of the smallest square that holds them."""
        row, col = self._row_col(None)
        depth = (max(self._rows, self._columns) - 1).bit_length()
        return Lattice(depth, row - self._range[2], col - self._range[0])

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`cells_from_dict` makes it again."""
        return {"kind": "tiles", "region": self.region.to_dict(), "zoom": self.zoom}

    def _tile_coordinates(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        sine = np.sin(np.radians(np.clip(lat, -MAX_LAT, MAX_LAT)))
        y = (0.5 - np.log((1 + sine) / (1 - sine)) / (4 * math.pi)) * 2.0**self.zoom
        return (lon + 180) / 360 * 2.0**self.zoom, np.maximum(y, 0.0)

    def _degrees(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        tiles = 2.0**self.zoom
        return x / tiles * 360 - 180, np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * y / tiles))))

    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        return morton.deinterleave(self._codes if cells is None else self._codes[cells])

    def _cells_of_codes(self, codes: IntArray) -> IntArray:
        at = np.minimum(np.searchsorted(self._codes, codes), self.size - 1)
        return np.where(self._codes[at] == codes, at, -1)


@dataclass(frozen=True, eq=False)
class SiteCells:
    """A public list of sites; a location belongs to the nearest site, and site i is cell i.

    Distances are in metres of the region's plane (of an equal-area cylinder around the region's middle where that plane
    is in degrees): exact enough for a city, not for a continent. The list must be public: one taken from the users' own
    table tells where somebody was.

    Parameters
    ----------
    lon, lat : array of float, shape (sites,)
        The sites, degrees; no two alike, nor within 0.1 mm where polygons are asked for.
    region : Box
        The region that is divided. Locations outside it belong to no site.
    names : sequence of str, optional
        Names of the sites.
    max_distance_m : float, optional
        Locations farther than this from every site belong to none.

    Raises
    ------
    InputError
        Fewer than two sites, duplicates, a site that is no place or lies outside the region.
    """

    lon: FloatArray
    lat: FloatArray
    region: Box
    names: tuple[str, ...] | None = None
    max_distance_m: float | None = None

    def __post_init__(self) -> None:
        lon, lat = (np.asarray(values, dtype=np.float64) for values in (self.lon, self.lat))
        if lon.ndim != 1 or lon.shape != lat.shape or lon.size < 2:
            raise InputError(
                f"places: {lon.shape} longitudes and {lat.shape} latitudes; expected two or more pairs"
            )
        bad = np.flatnonzero(~((np.abs(lon) <= 180) & (np.abs(lat) <= 90)))
        if bad.size:
            raise InputError(f"places: site {bad[0]} is at {lon[bad[0]]}, {lat[bad[0]]}; expected degrees")
        _, index, count = np.unique(np.stack([lon, lat]), axis=1, return_index=True, return_counts=True)
        if (count > 1).any():
            raise InputError(
                f"places: site {int(index[count > 1][0])} is there twice; expected distinct sites"
            )
        object.__setattr__(self, "lon", lon)
        object.__setattr__(self, "lat", lat)
        outside = np.flatnonzero(~self.region.contains(lon, lat))
        if outside.size:
            raise InputError(f"places: site {int(outside[0])} lies outside the region {self.region}")
        if self.names is not None and len(self.names) != lon.size:
            raise InputError(f"places: {len(self.names)} names for {lon.size} sites; expected one each")
        most = self.max_distance_m
        check(most is None or most > 0, "max_distance_m", "metres above 0", most)

    @property
    def size(self) -> int:
        """Number of sites."""
        return int(self.lon.size)

    @property
    def spec(self) -> str:
        """``places:N`` with the number of sites."""
        return f"places:{self.size}"

    @cached_property
    def _plane(self) -> FloatArray:
        """The sites in metres, shape (sites, 2)."""
        return np.column_stack(self.region.metric_projection.project(self.lon, self.lat))

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The nearest site of each location (WGS84 degrees), -1 outside the region or too far away."""
        lon, lat = np.asarray(lon, dtype=np.float64).ravel(), np.asarray(lat, dtype=np.float64).ravel()
        cells = np.full(lon.shape, -1, dtype=np.int64)
        inside = self.region.contains(lon, lat)
        cells[inside] = self._nearest(
            np.column_stack(self.region.metric_projection.project(lon[inside], lat[inside]))
        )
        return cells

    @property
    def _limit(self) -> float:
        """Distances below it count, metres."""
        return float(np.inf if self.max_distance_m is None else np.nextafter(self.max_distance_m, np.inf))

    def _nearest(self, at: FloatArray) -> IntArray:
        """The nearest site of each location of the plane, -1 where that is too far away."""
        near, away = nearest(at, self._plane)
        return np.where(away < self._limit, near, -1)

    def centres(self, cells: IntArray | None = None) -> Centres:
        """The given sites."""
        return Centres(self.lon, self.lat) if cells is None else Centres(self.lon[cells], self.lat[cells])

    def lattice(self) -> Lattice:
        """The sites on a raster fine enough that few share one of its sites."""
        return scattered(self.region, self.centres(), _SPARE_LEVELS)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`cells_from_dict` makes it again."""
        names = None if self.names is None else list(self.names)
        record = {"kind": "places", "region": self.region.to_dict(), "lon": self.lon.tolist()}
        return record | {"lat": self.lat.tolist(), "names": names, "max_distance_m": self.max_distance_m}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], region: Any) -> Self:
        """Read the list of a record that :meth:`to_dict` wrote."""
        lon, lat, names = np.array(record["lon"]), np.array(record["lat"]), record.get("names")
        return cls(lon, lat, region, None if names is None else tuple(names), record.get("max_distance_m"))


def scattered(region: Box, centres: Centres, spare: int) -> Lattice:
    """Centres on a raster of a region's box with ``spare`` levels more than cells of equal area need."""
    depth = min(_DEEPEST_SITES, (centres.lon.size - 1).bit_length() // 2 + spare)
    x0, y0, x1, y1 = region.bounds_m
    side = 1 << depth
    x, y = region.project(*centres)
    col = ((x - x0) / (x1 - x0) * side).astype(np.int64)
    row = ((y1 - y) / (y1 - y0) * side).astype(np.int64)
    return Lattice(depth, np.clip(row, 0, side - 1), np.clip(col, 0, side - 1))


def nearest(at: FloatArray, sites: FloatArray) -> tuple[IntArray, FloatArray]:
    """The nearest site of each location of the plane, of equal ones the first, and its distance."""
    near, away = np.empty(len(at), dtype=np.int64), np.empty(len(at))
    step = max(1, _PAIRS // len(sites))
    for start in range(0, len(at), step):
        part = slice(start, start + step)
        distances = np.sqrt(np.square(at[part, None] - sites).sum(axis=2))
        near[part] = np.argmin(distances, axis=1)
        away[part] = np.take_along_axis(distances, near[part, None], 1)[:, 0]
    return near, away


def cells_from_dict(record: Mapping[str, Any]) -> Cells:
    """Read the record of a tiling of a box, as it came over the wire. Run by: the client.

    Raises
    ------
    InputError
        An unknown kind, a region that is no box, or a record that lacks something.
    """
    try:
        kind, region = record["kind"], Box.from_dict(record["region"])
        if kind == "grid":
            return GridCells(region, rows=record["rows"], columns=record["columns"])
        if kind == "quadtree":
            return QuadtreeCells(region, record["depth"])
        if kind == "tiles":
            return TileCells(region, record["zoom"])
        if kind == "places":
            return SiteCells.from_record(record, region)
    except (KeyError, TypeError) as error:
        raise InputError(f"a tiling's record lacks {error}") from error
    raise InputError(f"a tiling must be one of grid, quadtree, tiles or places, got {kind!r}")
