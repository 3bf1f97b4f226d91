"""A map as a Cloud-Optimised GeoTIFF."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.formats.content_hash import file_record, record_json
from mapveil.formats.measurement_record import MEASUREMENTS_KEY, as_kept
from mapveil.geo.projection import named_crs
from mapveil.maps.frame import require_frame
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from mapveil.maps.released import ReleasedMap

METADATA_TAG = "MAPVEIL"
"""The GDAL tag that holds the map's whole metadata as JSON."""


def write_geotiff(released: ReleasedMap, path: str | PathLike[str]) -> None:
    """Write a raster map: one band per number of a cell, but no density, which follows from the cells' areas.

    Bands 2 and 3 of a map of users are the bounds of band 1 (at the alpha of the metadata's ``interval``) where it has
    measurements; no upper bound is infinite, NaN is "no data". North is up, in the plane of the region.

    Raises
    ------
    InputError
        The cells are no raster, or the file cannot be written.
    MissingExtra
        rasterio is not installed.
    """
    released = as_kept(released)
    bands = [layer for layer in released.columns() if not layer.derived]
    frame = require_frame(released.tiling, "GeoTIFF")
    rasterio = require("rasterio", "geo")
    profile: dict[str, Any] = {
        "driver": "COG",
        "width": frame.columns,
        "height": frame.rows,
        "count": len(bands),
        "dtype": "float64",
        "nodata": float("nan"),
        "compress": "deflate",
        "predictor": "yes",
        "overview_resampling": "average",
        "copy_src_mdd": "YES",  # the measurements too
    }
    if frame.crs:
        profile["crs"] = rasterio.crs.CRS.from_wkt(named_crs(frame.crs).to_wkt())
        profile["transform"] = rasterio.Affine.from_gdal(*frame.geotransform())
    guarantee = released.guarantee
    metadata, measured = file_record(released)
    tags = {
        METADATA_TAG: record_json(metadata),
        "TIFFTAG_SOFTWARE": f"mapveil {released.version}",
        "TIFFTAG_IMAGEDESCRIPTION": f"{released.method}, {guarantee.unit}-level, {guarantee.promise.label}",
        "MAPVEIL_GUARANTEE": guarantee.in_words(),
    }
    with atomic_path(path) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        # Through memory: Python names the reason where the disk is full, GDAL does not.
        with rasterio.MemoryFile() as memory:
            with memory.open(**profile) as file:
                for band, layer in enumerate(bands, start=1):
                    file.write(frame.image(np.asarray(layer.values, dtype=np.float64)), band)
                    file.set_band_description(band, layer.title)
                    file.set_band_unit(band, layer.unit)
                file.update_tags(**tags)
                if measured:
                    # In a domain of their own: tools that print a file's tags leave it out.
                    file.update_tags(ns=MEASUREMENTS_KEY, base64=measured)
            place.write_bytes(memory.getbuffer())


@contextmanager
def open_geotiff(file: Path) -> Iterator[DatasetReader]:
    """Open the bytes of a GeoTIFF alone: no file beside it overrides its tags, and no other format is looked for."""
    rasterio = require("rasterio", "geo")
    content = file.read_bytes()
    if not content:
        raise InputError(f"{file}: not readable as GeoTIFF (it is empty)")
    hooks = sys.excepthook, sys.unraisablehook
    # Where GDAL's message about a damaged file is not UTF-8, rasterio's callback prints a traceback by both hooks.
    sys.excepthook = lambda kind, *more: None if issubclass(kind, UnicodeError) else hooks[0](kind, *more)
    sys.unraisablehook = lambda each: None if isinstance(each.exc_value, UnicodeError) else hooks[1](each)
    try:
        with rasterio.MemoryFile(content) as memory, memory.open(driver="GTiff") as opened:
            yield opened
    finally:
        sys.excepthook, sys.unraisablehook = hooks
