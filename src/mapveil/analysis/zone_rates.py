"""Rates of users against a public denominator, such as residents: a column of the zones, or a raster."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.projection import projection_of
from mapveil.geo.region import reprojected
from mapveil.geo.zones import Zones
from mapveil.maps.frame import RasterFrame
from mapveil.maps.zone_fractions import raster_fractions
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, require

RASTERS: Final = (".tif", ".tiff")
"""Suffixes of denominators that are rasters."""

_LEAST: Final = 1e-9  # denominator above 0: no rate is then too large for a number
_PARTS: Final = 64  # of the zones' extent: edges are cut before they are projected


class Denominators(NamedTuple):
    """Public denominators of zones, arrays of shape (zones,)."""

    values: FloatArray
    covered: FloatArray  # fraction of the zone's area that the raster covers; 1 of a column


def denominators(zones: Zones, source: str | PathLike[str]) -> Denominators:
    """The public denominator of every zone. Reads no private data.

    Parameters
    ----------
    zones : Zones
        The zones.
    source : str or path-like
        Name of a column of numbers, or the path of a GeoTIFF whose pixels add up: residents per pixel, not per km²,
        which cannot be told from the raster.

    Raises
    ------
    InputError
        No such column, no numbers, no raster with a CRS or over any zone, or a negative denominator.
    MissingExtra
        A GeoTIFF, and rasterio is not installed.
    """
    if Path(source).suffix.lower() in RASTERS:
        found = _of_raster(zones, Path(source))
    else:
        found = Denominators(zones.column(str(source)), np.ones(len(zones)))
    if not (np.isfinite(found.values) & ((found.values == 0) | (found.values >= _LEAST))).all():
        raise InputError(f"per {source} (--per): a denominator must be 0, or a number of at least {_LEAST:g}")
    return found


def _of_raster(zones: Zones, file: Path) -> Denominators:
    import shapely

    rasterio = require("rasterio", "geo")
    if not file.is_file():
        raise InputError(f"{file}: no such file; expected a GeoTIFF")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(file) as opened:
                pixels = np.asarray(opened.read(1, masked=True).filled(0), dtype=np.float64)
                crs, at = opened.crs, opened.transform
    except rasterio.errors.RasterioError as error:
        raise InputError(f"{file}: not readable as GeoTIFF ({str(error).splitlines()[0]})") from error
    if crs is None or at.b or at.d or at.e >= 0:
        raise InputError(f"{file}: expected a raster with a CRS, north up")
    rows, columns = pixels.shape
    none: IntArray = np.empty(0, dtype=np.int64)
    bounds = (at.c, at.f + rows * at.e, at.c + columns * at.a, at.f)
    frame = RasterFrame(rows, columns, none, none, bounds, crs.to_wkt())
    extent = shapely.total_bounds(zones.polygons)
    step = float(max(extent[2] - extent[0], extent[3] - extent[1])) / _PARTS
    found = raster_fractions(zones.polygons, frame, step)
    if not found.zone.size:
        raise InputError(
            f"{file}: covers none of the zones (--per); expected a raster of the zones' surroundings"
        )
    held = np.nan_to_num(pixels[found.row, found.col])
    placed = reprojected(shapely.segmentize(zones.polygons, step), projection_of(frame.crs).project)
    in_pixels = shapely.area(placed) / abs(at.a * at.e)
    area, values = (
        np.bincount(found.zone, weights, len(zones)) for weights in (found.fraction, found.fraction * held)
    )
    covered = np.divide(area, in_pixels, out=np.ones(len(zones)), where=in_pixels > 0)
    return Denominators(values.astype(np.float64), np.clip(covered, 0.0, 1.0))
