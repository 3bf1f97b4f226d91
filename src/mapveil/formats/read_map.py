"""Read a released map back from its file."""

import json
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mapveil.formats.geoparquet import METADATA_KEY
from mapveil.formats.geotiff import METADATA_TAG
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.maps.density_map import DensityMap
from mapveil.maps.frame import require_frame
from mapveil.maps.provenance import Provenance
from mapveil.maps.round_cost import RoundCost
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, require


class NotAMap(InputError):
    """A path that is not a map which Mapveil wrote; it may be a table or a raster."""


def read_map(path: str | PathLike[str]) -> DensityMap:
    """Read a map from a GeoTIFF or GeoParquet file that Mapveil wrote. Run by: anybody.

    Nothing in the file proves that its guarantee was kept. The map carries no measurements, as no export does; bounds
    stay in the file's own columns.

    Parameters
    ----------
    path : path-like
        A .tif, .tiff or .parquet file.

    Raises
    ------
    NotAMap
        Another suffix, no such file, or not written by Mapveil.
    InputError
        The file is not readable, or its metadata are broken.
    MissingExtra
        A GeoTIFF, and rasterio is not installed.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in {".tif", ".tiff", ".parquet"}:
        raise NotAMap(f"{path}: maps are read from .tif, .tiff or .parquet files")
    if not file.is_file():
        raise NotAMap(f"{path}: no such file; a map that Mapveil wrote is needed")
    text, values = _read_parquet(file) if suffix == ".parquet" else _read_geotiff(file)
    try:
        metadata = json.loads(text)
        if metadata.get("kind") == "signal":
            raise InputError(f"{path}: must be a map of users, got a map of signal strength")
        return _map_of(metadata, values)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: its metadata is not a map's ({type(error).__name__}: {error})") from error


def _read_parquet(file: Path) -> tuple[str, FloatArray]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # A file object, so that a folder of this name or "key=value" in the path means nothing.
        with file.open("rb") as opened:
            source = parquet.ParquetFile(opened)
            text = (source.schema_arrow.metadata or {}).get(METADATA_KEY)
            values = next((name for name in ("users", "rss_dbm") if name in source.schema_arrow.names), None)
            if text is None or values is None or "cell" not in source.schema_arrow.names:
                raise NotAMap(f"{file}: not a map that Mapveil wrote: its metadata are missing")
            table = source.read(["cell", values])
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: not readable as Parquet ({str(error).splitlines()[0]})") from error
    order = np.argsort(table["cell"].to_numpy())
    return text.decode(), np.asarray(table[values].to_numpy(), dtype=np.float64)[order]


def _read_geotiff(file: Path) -> tuple[str, FloatArray]:
    rasterio = require("rasterio", "geo")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(file) as opened:
                text = opened.tags().get(METADATA_TAG)
                pixels = opened.read(1)
    except rasterio.errors.RasterioError as error:
        raise InputError(f"{file}: not readable as GeoTIFF ({str(error).splitlines()[0]})") from error
    if text is None:
        raise NotAMap(f"{file}: not a map that Mapveil wrote: its metadata are missing")
    return text, np.asarray(pixels, dtype=np.float64)


def _map_of(metadata: dict[str, Any], values: FloatArray) -> DensityMap:
    tiling = tiling_from_dict(metadata["tiling"])
    if values.ndim == 2:
        frame = require_frame(tiling, "GeoTIFF")
        if values.shape != (frame.rows, frame.columns):
            raise ValueError(f"{values.shape} pixels where its tiling has {(frame.rows, frame.columns)}")
        values = frame.cells(values)
    return DensityMap(
        values=values,
        tiling=tiling,
        guarantee=Guarantee.from_dict(metadata["guarantee"]),
        method=metadata["method"],
        parameters=metadata["parameters"],
        notes=tuple(metadata["notes"]),
        outside=float(metadata["outside"]),
        rounds=tuple(RoundCost(**each) for each in metadata.get("rounds", ())),
        version=metadata["version"],
        provenance=Provenance(**metadata["provenance"]),
        noise_floor=float(metadata.get("noise_floor_per_km2", 0.0)),
    )
