"""Reading a released map back from its file, as somebody who must check it does."""

from __future__ import annotations

import json
import warnings
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.errors import InputError, require
from mapveil.maps.density_map import DensityMap, Interval
from mapveil.maps.frame import require_frame
from mapveil.maps.geoparquet import METADATA_KEY
from mapveil.maps.geotiff import METADATA_TAG
from mapveil.privacy.guarantee import Guarantee

__all__ = ["SavedMap", "read_map"]

FloatArray = npt.NDArray[np.float64]


class SavedMap(NamedTuple):
    """What a file holds of a released map."""

    heat: DensityMap  # without its measurements, which no export carries
    interval: Interval | None  # the bounds that were written
    metadata: dict[str, Any]


def read_map(path: str | PathLike[str]) -> SavedMap:
    """Read a map from a GeoTIFF or GeoParquet file that Mapveil wrote. Run by: anybody.

    The file is believed: nothing in it proves that its guarantee was kept.

    Parameters
    ----------
    path : path-like
        A .tif, .tiff or .parquet file.

    Raises
    ------
    InputError
        Another suffix, no such file, not readable, or not written by Mapveil.
    MissingExtra
        A GeoTIFF, and rasterio is not installed.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in {".tif", ".tiff", ".parquet"}:
        raise InputError(f"{path}: maps are read from .tif, .tiff or .parquet files")
    if not file.is_file():
        raise InputError(f"{path}: no such file; a map that Mapveil wrote is accepted")
    text, bands = _read_parquet(file) if suffix == ".parquet" else _read_geotiff(file)
    try:
        metadata = json.loads(text)
        return _map_of(metadata, bands)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: its metadata is not a map's ({type(error).__name__}: {error})") from error


def _read_parquet(file: Path) -> tuple[str, list[FloatArray]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # A file object, so that a folder of this name or "key=value" in the path means nothing.
        with file.open("rb") as opened:
            table = parquet.read_table(opened)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: not readable as Parquet ({str(error).splitlines()[0]})") from error
    text = (table.schema.metadata or {}).get(METADATA_KEY)
    if text is None or not {"cell", "users", "lower", "upper"} <= set(table.column_names):
        raise InputError(f"{file}: not a map that Mapveil wrote; one with its metadata inside is accepted")
    order = np.argsort(table["cell"].to_numpy())
    names = ["users"] if table["lower"].null_count else ["users", "lower", "upper"]
    return text.decode(), [np.asarray(table[name].to_numpy(), dtype=np.float64)[order] for name in names]


def _read_geotiff(file: Path) -> tuple[str, list[FloatArray]]:
    rasterio = require("rasterio", "geo")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(file) as opened:
                text = opened.tags().get(METADATA_TAG)
                pixels = opened.read()
    except rasterio.errors.RasterioError as error:
        raise InputError(f"{file}: not readable as GeoTIFF ({str(error).splitlines()[0]})") from error
    if text is None:
        raise InputError(f"{file}: not a map that Mapveil wrote; one with its metadata inside is accepted")
    return text, list(pixels)


def _map_of(metadata: dict[str, Any], bands: list[FloatArray]) -> SavedMap:
    from mapveil.geo import tiling_from_dict

    tiling = tiling_from_dict(metadata["tiling"])
    if bands[0].ndim == 2:
        frame = require_frame(tiling, "GeoTIFF")
        bands = [np.asarray(frame.cells(band), dtype=np.float64) for band in bands]
    heat = DensityMap(
        values=bands[0],
        tiling=tiling,
        guarantee=Guarantee.from_dict(metadata["guarantee"]),
        method=metadata["method"],
        parameters=metadata["parameters"],
        notes=tuple(metadata["notes"]),
        elsewhere=float(metadata["elsewhere"]),
        version=metadata["version"],
    )
    return SavedMap(heat, Interval(bands[1], bands[2]) if len(bands) == 3 else None, metadata)
