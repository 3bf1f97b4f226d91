"""The registry of formats: which function writes which suffix."""

from __future__ import annotations

import importlib
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.maps.released import ReleasedMap

WRITERS: Final = {
    ".tif": "formats.geotiff:write_geotiff",
    ".tiff": "formats.geotiff:write_geotiff",
    ".parquet": "formats.geoparquet:write_geoparquet",
    ".geojson": "formats.geojson:write_geojson",
    ".json": "formats.geojson:write_geojson",
    ".csv": "formats.csv:write_csv",
    ".png": "pictures.picture:write_png",
    ".html": "pictures.page:write_page",
}
"""``room.module:function`` by suffix; a function is imported when it is needed."""


def write(released: ReleasedMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write a map in the format that the suffix names; a CSV's metadata lie in ``NAME.csv-metadata.json``.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    path : path-like
        Ends in one of the map's ``suffixes``.
    title : str, optional
        Head of a picture or page; the kind of map by default.

    Raises
    ------
    InputError
        Another suffix, cells that the format cannot hold, or a file that cannot be written.
    MissingExtra
        The format needs an extra that is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in released.suffixes:
        known = ", ".join(released.suffixes)
        raise InputError(f"{path}: the suffix must be one of {known}, got {suffix or 'none'}")
    module, _, name = WRITERS[suffix].partition(":")
    writer: Any = getattr(importlib.import_module(f"mapveil.{module}"), name)
    writer(released, path, **({"title": title} if suffix in (".png", ".html") else {}))
