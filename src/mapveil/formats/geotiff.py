"""A map as a Cloud-Optimised GeoTIFF."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.maps.density_map import INTERVAL_ALPHA
from mapveil.maps.frame import require_frame
from mapveil.maps.layer import Layer
from mapveil.pictures.picture_frame import Pictured
from mapveil_client.errors import require

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap

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
    interval = heat.interval()
    bounds = () if interval is None else (interval.lower, interval.upper)
    own = zip((heat.values, *bounds), _titles(), strict=False)
    bands = [*(Layer("", title, "users per cell", values) for values, title in own), *heat.layers()]
    write_bands(heat, bands, path)


def write_bands(drawn: Pictured, bands: Sequence[Layer], path: str | PathLike[str]) -> None:
    """Write numbers per cell of a raster map as bands, with the map's metadata, promise and georeference.

    Parameters
    ----------
    drawn : Pictured
        The map.
    bands : sequence of Layer
        Band by band; NaN is "no data".
    path : path-like
        Where to write.

    Raises
    ------
    InputError
        The cells are no raster, or the file cannot be written.
    MissingExtra
        rasterio is not installed.
    """
    frame = require_frame(drawn.tiling, "GeoTIFF")
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
    }
    if frame.crs:
        profile["crs"] = rasterio.crs.CRS.from_user_input(frame.crs)
        profile["transform"] = rasterio.Affine.from_gdal(*frame.geotransform())
    guarantee = drawn.guarantee
    tags = {
        METADATA_TAG: drawn.metadata_json(),
        "TIFFTAG_SOFTWARE": f"mapveil {drawn.version}",
        "TIFFTAG_IMAGEDESCRIPTION": f"{drawn.method}, {guarantee.label} per {guarantee.unit}",
        "MAPVEIL_GUARANTEE": guarantee.in_words(),
    }
    with atomic_path(path) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(place, "w", **profile) as file:
            for band, layer in enumerate(bands, start=1):
                file.write(frame.image(np.asarray(layer.values, dtype=np.float64)), band)
                file.set_band_description(band, layer.title)
                file.set_band_unit(band, layer.unit)
            file.update_tags(**tags)


def _titles() -> tuple[str, str, str]:
    coverage = f"{100 * (1 - INTERVAL_ALPHA):g} % interval"
    return (
        "users, estimate",
        f"users, lower bound of the {coverage}",
        f"users, upper bound of the {coverage}",
    )
