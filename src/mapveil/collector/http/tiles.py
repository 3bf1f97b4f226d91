"""A finished map for the console: web-mercator pictures of it, and the numbers behind every cell.

The pictures are indexed PNGs of 256 x 256 pixels in the colours of every other picture; a pixel shows the mean
density of the locations in it, so that no cell is left out of a picture of many.
"""

from __future__ import annotations

import math
import struct
import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from mapveil.geo.quadtree import Quadtree
from mapveil.maps.density_map import INTERVAL_ALPHA
from mapveil.maps.frame import raster_frame
from mapveil.pictures.colours import DensityScale, density_scale, ramp
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.plane import EqualAreaCylinder

if TYPE_CHECKING:
    from mapveil.geo.tiling import Tiling
    from mapveil.maps.density_map import DensityMap


Shown = Literal["density", "uncertainty"]
Theme = Literal["light", "dark"]
LAYERS: Final[tuple[Shown, ...]] = get_args(Shown)
THEMES: Final[tuple[Theme, ...]] = get_args(Theme)

SIDE: Final = 256
"""Pixels of a tile's side."""

MOST_ZOOM: Final = 22
"""The deepest level that is drawn."""

UNIT: Final = "persons per km²"
"""Unit of a collection's map: a device stands for the person who carries it."""

_EQUATOR_M: Final = 2 * math.pi * 6378137.0
_FINEST: Final = 4  # samples of a pixel, each way
_CELL_PIXELS: Final = 32  # width of a cell at the deepest level, from which on pictures are enlarged
_DIGITS: Final = 4
_STOPS: Final = 24  # of the legend's gradient
_STEPS: Final = 255  # colours; index 0 of the palette is transparent


class MapTiles:
    """Pictures of one map on the web-mercator pyramid. Run by: the server, of a released map; costs no privacy."""

    def __init__(self, heat: DensityMap) -> None:
        if not heat.tiling.region.georeferenced:
            raise InputError("a map without georeference has no web-mercator tiles")
        self.heat = heat
        self._bounds = _cover(heat.tiling)
        self._cell_m = math.sqrt(float(np.median(heat.tiling.area_m2())))

    def png(
        self,
        z: int,
        x: int,
        y: int,
        layer: Shown = "density",
        theme: Theme = "light",
        *,
        top: float | None = None,
        knee: float | None = None,
    ) -> bytes:
        """The tile as a PNG; transparent where the map has no cell, or no bound.

        Parameters
        ----------
        z, x, y : int
            Level, column from the west and row from the north.
        layer : {"density", "uncertainty"}
            The estimated density, or half the width of its interval.
        theme : {"light", "dark"}
            Whether density 0 is white or black.
        top, knee : float, optional
            Another scale than the map's own, so that maps side by side have one; persons per km².
        """
        if not (0 <= z <= MOST_ZOOM and 0 <= x < 1 << z and 0 <= y < 1 << z):
            raise InputError(
                f"tile must have level 0 to {MOST_ZOOM} and row and column 0 to 2**level - 1, got {z}/{x}/{y}"
            )
        if theme not in THEMES:
            raise InputError(f"theme must be one of {', '.join(THEMES)}, got {theme!r}")
        if layer not in self._layers:
            raise InputError(f"layer must be one of {', '.join(self._layers)} on this map, got {layer!r}")
        values, scale = self._layers[layer]
        if top is not None or knee is not None:
            scale = _given_scale(top, knee)
        sampled = self._sample(z, x, y, values)
        known = np.isfinite(sampled)
        place = np.clip(scale.fraction(np.where(known, sampled, 0.0)), 0.0, 1.0)
        index = np.where(known, 1 + np.rint(place * (_STEPS - 1)), 0).astype(np.uint8)
        colours = ramp(_STEPS)
        return _indexed_png(index, colours[::-1] if theme == "dark" else colours)

    def legend(self, layer: Shown = "density") -> dict[str, Any] | None:
        """Legend of a layer: unit, top, knee, noise floor, ticks; None without the layer."""
        if layer not in self._layers:
            return None
        _, scale = self._layers[layer]
        return {
            "unit": UNIT,
            "top": scale.top,
            "knee": scale.knee,
            "noise_floor": self.heat.noise_floor if layer == "density" else 0.0,
            "ticks": scale.ticks().tolist(),
        }

    def record(self) -> dict[str, Any]:
        """Everything that a page needs to know of the map but its cells; JSON-ready."""
        import shapely

        heat = self.heat
        rings = shapely.get_rings(shapely.get_parts([heat.tiling.region.outline()]))
        across = _EQUATOR_M * math.cos(math.radians((self._bounds[1] + self._bounds[3]) / 2)) / SIDE
        deepest = math.ceil(math.log2(across * _CELL_PIXELS / self._cell_m))
        return {
            "method": heat.method,
            "parameters": heat.parameters,
            "tiling": {"spec": heat.tiling.spec, "cells": heat.tiling.size, **heat.tiling.to_dict()},
            "guarantee": heat.guarantee.to_dict(),
            "guarantee_in_words": heat.guarantee.in_words(),
            "bounds": list(self._bounds),
            "outline": [np.round(shapely.get_coordinates(ring), 7).tolist() for ring in rings],
            "unit": UNIT,
            "legend": {layer: self.legend(layer) for layer in LAYERS},
            "colours": [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in ramp(_STOPS).tolist()],
            "maxzoom": max(0, min(MOST_ZOOM, deepest)),
            "certainty": 1 - INTERVAL_ALPHA,
            "total": float(heat.values.sum()),
            "outside": heat.outside,
            "notes": list(heat.notes),
            "version": heat.version,
        }

    @cached_property
    def _layers(self) -> dict[str, tuple[FloatArray, DensityScale]]:
        """Values and scale of each layer that the map has, persons per km²; a width is NaN where nothing bounds it."""
        heat, density = self.heat, self.heat.density()
        layers = {"density": (density, density_scale(density, "log", noise_floor=heat.noise_floor))}
        interval = heat.interval()
        if interval is not None:
            area = heat.tiling.area_m2() / 1e6
            half = np.full(area.shape, np.nan)
            known = np.isfinite(density) & np.isfinite(interval.upper) & (area > 0)
            np.divide((interval.upper - interval.lower) / 2, area, out=half, where=known)
            layers["uncertainty"] = (half, density_scale(half, "log"))
        return layers

    def _sample(self, z: int, x: int, y: int, values: FloatArray) -> FloatArray:
        """The mean value of the known samples in each pixel, NaN without any; shape (SIDE, SIDE)."""
        sampled = np.full((SIDE, SIDE), np.nan)
        west, south, east, north = self._bounds
        pixel_m = _EQUATOR_M * math.cos(math.radians((south + north) / 2)) / (SIDE << z)
        fine = max(1, min(_FINEST, math.ceil(pixel_m / self._cell_m)))
        lon, lat = _places(z, x, y, fine)
        across = _whole_pixels((lon >= west) & (lon <= east), fine)
        down = _whole_pixels((lat >= south) & (lat <= north), fine)
        if across.start == across.stop or down.start == down.stop:
            return sampled
        lon, lat = lon[fine * across.start : fine * across.stop], lat[fine * down.start : fine * down.stop]
        cell = self.heat.tiling.locate(np.tile(lon, lat.size), np.repeat(lat, lon.size))
        found = np.where(cell >= 0, values[cell], np.nan).reshape(
            lat.size // fine, fine, lon.size // fine, fine
        )
        known = np.isfinite(found)
        count = known.sum(axis=(1, 3))
        total = np.where(known, found, 0.0).sum(axis=(1, 3))
        sampled[down, across] = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return sampled


def _given_scale(top: float | None, knee: float | None) -> DensityScale:
    """A logarithmic scale from a request."""
    if top is None or knee is None or not (math.isfinite(top) and 0 < knee <= top):
        raise InputError(f"a scale needs 0 < knee <= top, got knee {knee!r} and top {top!r}")
    return DensityScale("log", top, knee)


def cells_record(heat: DensityMap) -> dict[str, Any]:
    """Every cell's estimate and interval, and how to find the cell of a location; JSON-ready, four digits.

    ``geometry`` is of kind ``raster`` (edges in degrees; ``order`` says which cell lies at ``row * columns +
    column``: ``rows``, ``morton``, or the list of them with -1 for none) or ``nearest`` (the cells' centres; the
    nearest in metres of an equal-area cylinder, within ``max_distance_m``). ``values``, ``low`` and ``high`` are users,
    ``per_km2`` users per km², ``area_km2`` one number where all cells are of one size. None stands for a cell outside
    the region, and for no bound.
    """
    tiling = heat.tiling
    density, interval = heat.density(), heat.interval()
    inside = np.isfinite(density)
    area = tiling.area_m2() / 1e6
    return {
        "geometry": _raster_geometry(tiling) or _nearest_geometry(tiling),
        "names": getattr(tiling, "names", None),
        "bounds": list(_cover(tiling)),
        "certainty": 1 - INTERVAL_ALPHA,
        "area_km2": _numbers(area[:1])[0] if np.allclose(area, area[0], rtol=1e-9) else _numbers(area),
        "values": _numbers(np.where(inside, heat.values, np.nan)),
        "per_km2": _numbers(density),
        "low": None if interval is None else _numbers(np.where(inside, interval.lower, np.nan)),
        "high": None if interval is None else _numbers(np.where(inside, interval.upper, np.nan)),
    }


def _raster_geometry(tiling: Tiling) -> dict[str, Any] | None:
    """Edges of rows and columns, where those run along parallels and meridians."""
    frame = raster_frame(tiling)
    if frame is None:
        return None
    from mapveil.geo.projection import projection_of

    projection = projection_of(frame.crs)
    # Web mercator is separable too, although pyproj computes it.
    if not projection.separable and frame.crs != "EPSG:3857":
        return None
    x0, y0, x1, y1 = frame.bounds
    x = np.linspace(x0, x1, frame.columns + 1)
    y = np.linspace(y1, y0, frame.rows + 1)
    lon, _ = projection.unproject(x, np.full(x.shape, y0))
    _, lat = projection.unproject(np.full(y.shape, x0), y)
    order: str | list[int] = "rows"
    if isinstance(tiling, Quadtree):
        order = "morton"
    elif frame.crs == "EPSG:3857":
        at = np.full(frame.rows * frame.columns, -1, dtype=np.int64)
        at[frame.row * frame.columns + frame.col] = np.arange(tiling.size)
        order = at.tolist()
    return {
        "kind": "raster",
        "rows": frame.rows,
        "columns": frame.columns,
        "lon": np.round(lon, 9).tolist(),
        "lat": np.round(lat, 9).tolist(),
        "order": order,
    }


def _nearest_geometry(tiling: Tiling) -> dict[str, Any]:
    """The middles of the cells, and the cylinder in which distances are measured."""
    centres = tiling.centres()
    projection = tiling.region.metric_projection
    west, south, east, north = tiling.region.bbox
    if not isinstance(projection, EqualAreaCylinder):
        projection = EqualAreaCylinder((south + north) / 2, (west + east) / 2)
    return {
        "kind": "nearest",
        "lon": np.round(centres.lon, 9).tolist(),
        "lat": np.round(centres.lat, 9).tolist(),
        "standard_parallel": projection.standard_parallel,
        "central_meridian": projection.central_meridian,
        "max_distance_m": getattr(tiling, "max_distance_m", None),
    }


def _cover(tiling: Tiling) -> tuple[float, float, float, float]:
    """The box that holds every cell and the region, degrees."""
    west, south, east, north = tiling.region.bbox
    if getattr(tiling, "raster", None) is not None or hasattr(tiling, "names"):
        return west, south, east, north
    # Tiles and hexagons lie over the region's edge.
    cells = tiling.bounds()
    return (
        min(west, float(cells.west.min())),
        min(south, float(cells.south.min())),
        max(east, float(cells.east.max())),
        max(north, float(cells.north.max())),
    )


def _places(z: int, x: int, y: int, fine: int) -> tuple[FloatArray, FloatArray]:
    """Longitudes of a tile's columns of samples and latitudes of its rows, ``fine`` to a pixel."""
    part = (np.arange(SIDE * fine) + 0.5) / (SIDE * fine)
    tiles = 2.0**z
    lat = np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * (y + part) / tiles))))
    return (x + part) / tiles * 360 - 180, lat


def _whole_pixels(wanted: npt.NDArray[np.bool_], fine: int) -> slice:
    """The pixels that hold any of the wanted samples, which lie side by side."""
    pixels = np.flatnonzero(wanted.reshape(-1, fine).any(axis=1))
    return slice(int(pixels[0]), int(pixels[-1]) + 1) if pixels.size else slice(0, 0)


def _numbers(values: FloatArray) -> list[float | None]:
    """Numbers of four digits, None for what is not finite."""
    known = np.isfinite(values) & (values != 0)
    size = np.where(known, np.abs(np.where(known, values, 1.0)), 1.0)
    digits = _DIGITS - 1 - np.floor(np.log10(size)).astype(np.int64)
    # Powers of ten are exact up to 22, and so is each quotient's rounding: the shortest text is the number's.
    up, down = 10.0 ** np.clip(digits, 0, 22), 10.0 ** np.clip(-digits, 0, 22)
    kept = np.rint(np.where(known, values, 0.0) * up / down) * down / up
    finite = np.isfinite(values)
    if finite.all():
        return [*kept.tolist()]
    return [value if good else None for value, good in zip(kept.tolist(), finite.tolist(), strict=True)]


def _indexed_png(index: npt.NDArray[np.uint8], colours: npt.NDArray[np.uint8]) -> bytes:
    """A PNG of colour type 3 (ISO/IEC 15948): 0 is transparent, k is ``colours[k - 1]``."""
    height, width = index.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each begins with its filter: none
    rows[:, 1:] = index
    palette = b"\0\0\0" + colours.tobytes()
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette),
            _chunk(b"tRNS", b"\0"),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
