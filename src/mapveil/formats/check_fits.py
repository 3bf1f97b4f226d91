"""Formats that can hold a map's cells, decided before a release is charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from mapveil.formats.geojson import no_georeference
from mapveil.geo.tiling import Tiling
from mapveil.maps.frame import is_raster, no_raster
from mapveil_client.errors import InputError, one_line

_ON_EARTH: Final = {".geojson": "GeoJSON", ".json": "GeoJSON", ".gpkg": "GeoPackage", ".pmtiles": "PMTiles"}


_MOST_COLUMNS: Final = 1_900  # of windows in a GeoPackage: SQLite has 2,000 in a table


def check_fits(path: str | PathLike[str], tiling: Tiling | str, windows: Sequence[str] = ()) -> None:
    """Refuse a file whose format cannot hold the cells.

    Parameters
    ----------
    path : path-like
        The file; its suffix names the format.
    tiling : Tiling or str
        The cells, or their specification where the region is not known yet: a region on Earth.
    windows : sequence of str
        Names of the windows of a series, each of which is a column.

    Raises
    ------
    InputError
        A GeoTIFF of cells that are no pixels; GeoJSON, GeoPackage or PMTiles of a region without georeference; a
        GeoPackage of more windows than it has columns, or of names that it takes for one.
    """
    suffix = Path(path).suffix.lower()
    spec, on_earth = (tiling, True) if isinstance(tiling, str) else (tiling.spec, tiling.region.georeferenced)
    if suffix in (".tif", ".tiff") and not is_raster(tiling):
        raise no_raster(spec, f"{path}: GeoTIFF")
    if suffix in _ON_EARTH and not on_earth:
        raise no_georeference(f"{path}: {_ON_EARTH[suffix]}")
    if suffix == ".gpkg":
        instead = "; GeoParquet (.parquet) and CSV (.csv) hold them"
        if len(windows) > _MOST_COLUMNS:
            raise InputError(
                f"{path}: a GeoPackage holds {_MOST_COLUMNS} windows at most, got {len(windows)}{instead}"
            )
        # Of SQLite, letters of ASCII alone have two cases, as those of bytes do.
        alike = Counter(name.encode().lower() for name in windows)
        if twice := [name for name in windows if alike[name.encode().lower()] > 1]:
            raise InputError(
                f"{path}: a GeoPackage takes {one_line(', '.join(twice), 100)} for one name of a window{instead}"
            )
