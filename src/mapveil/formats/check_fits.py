"""Formats that can hold a map's cells, decided before a release is charged."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Final

from mapveil.formats.geojson import no_georeference
from mapveil.geo.tiling import Tiling
from mapveil.maps.frame import is_raster, no_raster

_ON_EARTH: Final = {".geojson": "GeoJSON", ".json": "GeoJSON", ".gpkg": "GeoPackage", ".pmtiles": "PMTiles"}


def check_fits(path: str | PathLike[str], tiling: Tiling | str) -> None:
    """Refuse a file whose format cannot hold the cells.

    Parameters
    ----------
    path : path-like
        The file; its suffix names the format.
    tiling : Tiling or str
        The cells, or their specification where the region is not known yet: a region on Earth.

    Raises
    ------
    InputError
        A GeoTIFF of cells that are no pixels, or GeoJSON, GeoPackage or PMTiles of a region without georeference.
    """
    suffix = Path(path).suffix.lower()
    spec, on_earth = (tiling, True) if isinstance(tiling, str) else (tiling.spec, tiling.region.georeferenced)
    if suffix in (".tif", ".tiff") and not is_raster(tiling):
        raise no_raster(spec, f"{path}: GeoTIFF")
    if suffix in _ON_EARTH and not on_earth:
        raise no_georeference(f"{path}: {_ON_EARTH[suffix]}")
