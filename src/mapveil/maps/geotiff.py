"""A map as a Cloud-Optimised GeoTIFF."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.errors import require
from mapveil.maps.atomic import atomic_path
from mapveil.maps.density_map import INTERVAL_ALPHA
from mapveil.maps.frame import require_frame

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap

__all__ = ["METADATA_TAG", "write_geotiff"]

METADATA_TAG = "MAPVEIL"
"""The GDAL tag that holds the map's whole metadata as JSON."""


def write_geotiff(heat: DensityMap, path: str | PathLike[str]) -> None:
    """Write a raster map: band 1 the estimate, bands 2 and 3 its bounds, users per cell; then its layers.

    The bounds (at the alpha of the metadata's ``interval``) are there when the map has
    measurements; a cell without an upper bound is infinite there. North is up, in the plane of the region; a
    region without georeference gives a file without one.

    Raises
    ------
    InputError
        The cells are no raster, or the file cannot be written.
    MissingExtra
        rasterio is not installed.
    """
    frame = require_frame(heat.tiling, "GeoTIFF")
    rasterio = require("rasterio", "geo")
    interval = heat.interval()
    bounds = () if interval is None else (interval.lower, interval.upper)
    bands = [
        *zip((heat.values, *bounds), _titles(), ["users per cell"] * 3, strict=False),
        *((layer.values, layer.title, layer.unit) for layer in heat.layers()),
    ]
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
    }
    if frame.crs:
        profile["crs"] = rasterio.crs.CRS.from_user_input(frame.crs)
        profile["transform"] = rasterio.Affine.from_gdal(*frame.geotransform())
    guarantee = heat.guarantee
    tags = {
        METADATA_TAG: heat.metadata_json(),
        "TIFFTAG_SOFTWARE": f"mapveil {heat.version}",
        "TIFFTAG_IMAGEDESCRIPTION": f"{heat.method}, {guarantee.label} per {guarantee.unit}",
        "MAPVEIL_GUARANTEE": guarantee.in_words(),
    }
    with atomic_path(path) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(place, "w", **profile) as file:
            for band, (values, title, unit) in enumerate(bands, start=1):
                file.write(frame.image(np.asarray(values, dtype=np.float64)), band)
                file.set_band_description(band, title)
                file.set_band_unit(band, unit)
            file.update_tags(**tags)


def _titles() -> tuple[str, str, str]:
    coverage = f"{100 * (1 - INTERVAL_ALPHA):g} % interval"
    return (
        "users, estimate",
        f"users, lower bound of the {coverage}",
        f"users, upper bound of the {coverage}",
    )
