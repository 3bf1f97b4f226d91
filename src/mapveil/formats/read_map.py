"""Read a released map back from its file."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.content_hash import ChangedContent, check_content
from mapveil.formats.flow_record import SEPARATOR, flow_sums_of
from mapveil.formats.geopackage import read_geopackage
from mapveil.formats.geoparquet import METADATA_KEY
from mapveil.formats.geotiff import METADATA_TAG, open_geotiff
from mapveil.formats.measurement_record import MEASUREMENTS_KEY, measurements_of
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.windows import Windows
from mapveil.maps.density_map import DensityMap
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.maps.frame import require_frame
from mapveil.maps.proportion_map import LabelMeasurement, ProportionMap
from mapveil.maps.provenance import Provenance
from mapveil.maps.released import ReleasedMap
from mapveil.maps.round_cost import RoundCost
from mapveil.maps.series_map import PLACED_BY_ALL, SeriesMap
from mapveil.maps.window_estimates import WindowEstimates
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    import pyarrow

_OF_WINDOW: Final = "users "  # how columns of windows begin
_BAND_OF_WINDOW: Final = "Users, "
_COLUMNS: Final = (
    "cell",
    "users",
    "rss_dbm",
    "origin",
    "destination",
    "trips",
    "deviation",
    "unbiased",
    "p_value",
)
NOT_READ_BACK: Final = {
    ".html": "a page answers in a browser, under 'Ask for a total'",
    ".png": "a picture carries no values of cells",
    ".pmtiles": "vector tiles carry the blocks of a picture",
}
"""Suffixes of files that Mapveil writes and does not read back, with the reason."""
_BROKEN: Final = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError),
    RecursionError,  # JSON that is nested too deeply
    RuntimeError,  # pyproj's, of a CRS
    MemoryError,
)
_MOST_LEFT_OUT: Final = 1 << 26  # cells of a map whose empty cells are left out: half a gigabyte
_GEOJSON_HEAD: Final = b'{"type":"FeatureCollection","mapveil":'


class HoldsFlows(InputError):
    """A file that Mapveil wrote, of flows instead of a map of users."""


class NotAMap(InputError):
    """A path that is not a map which Mapveil wrote; it may be a table or a raster."""


def read_map(path: str | PathLike[str]) -> DensityMap:
    """Read a map from a GeoTIFF, GeoParquet, GeoJSON, GeoPackage or CSV file that Mapveil wrote. Run by: anybody.

    Nothing in the file proves that its guarantee was kept. The map has its measurements again; a file without any was
    written before files carried them, or by a method that has none.

    Parameters
    ----------
    path : path-like
        A .tif, .tiff, .parquet, .geojson, .json or .gpkg file, or a .csv with its metadata beside it.

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
    if suffix not in {".tif", ".tiff", *_TABLES}:
        why = f"; {NOT_READ_BACK[suffix]}" if suffix in NOT_READ_BACK else ""
        raise NotAMap(
            f"{path}: maps are read from .tif, .tiff, .parquet, .geojson, .json, .gpkg or .csv files{why}"
        )
    if not file.is_file():
        raise NotAMap(f"{path}: no such file; a map that Mapveil wrote is needed")
    text, values, measured = _read(file, _TABLES.get(suffix, _read_geotiff))
    if _kind(text) == "flows":
        raise HoldsFlows(f"{path}: must be a map of users, got flows")
    if not isinstance(values, np.ndarray):
        columns = set(values.column_names)
        if "cell" not in columns or columns.isdisjoint(("users", "rss_dbm")):
            raise NotAMap(f"{file}: not a map that Mapveil wrote: its cells are missing")
    try:
        metadata = json.loads(text)
        if metadata.get("kind") == "signal":
            raise InputError(f"{path}: must be a map of users, got a map of signal strength")
        measured = metadata.get(MEASUREMENTS_KEY, measured)
        heat = _map_of(metadata, values, measured)
        check_content(heat, metadata, measured)
        _check_told(heat)
    except ChangedContent as error:
        raise ChangedContent(f"{path}: {error}") from None
    except _BROKEN as error:
        raise InputError(f"{path}: its metadata is not a map's ({type(error).__name__}: {error})") from error
    if isinstance(heat, SeriesMap):
        return heat
    labelled = any(isinstance(each, LabelMeasurement) for each in heat.measurements)
    return ProportionMap.of(heat) if labelled else heat


def read_flows(path: str | PathLike[str]) -> FlowMap:
    """Read flows from a GeoParquet, GeoJSON, GeoPackage or CSV file that Mapveil wrote. Run by: anybody.

    Nothing in the file proves that its guarantee was kept. Flows by a curator or by secure sums have their noisy sums
    again, and answer questions.

    Parameters
    ----------
    path : path-like
        A .parquet, .geojson, .json or .gpkg file, or a .csv with its metadata beside it.

    Raises
    ------
    NotAMap
        Another suffix, no such file, or not written by Mapveil.
    InputError
        The file is not readable, holds no flows, or its metadata are broken.
    """
    file = Path(path)
    read = _TABLES.get(file.suffix.lower())
    if read is None or not file.is_file():
        why = "no such file" if read else "flows are read from .parquet, .geojson, .json, .gpkg or .csv files"
        raise NotAMap(f"{path}: {why}")
    text, table, measured = _read(file, read)
    if _kind(text) != "flows":
        raise InputError(f"{path}: must be flows, got another map")
    try:
        metadata = json.loads(text)
        tiling = tiling_from_dict(metadata["tiling"])
        origin, destination = (table[name].to_numpy().astype(np.int64) for name in ("origin", "destination"))
        counted = "users" if "users" in table.column_names else "trips"
        deviation, unbiased, p_value = (
            table[name].to_numpy().astype(np.float64) if name in table.column_names else None
            for name in ("deviation", "unbiased", "p_value")
        )
        measured = metadata.get(MEASUREMENTS_KEY, measured)
        pooled, _, by_window = measured.partition(SEPARATOR)
        flows = FlowMap(
            origin,
            destination,
            table[counted].to_numpy().astype(np.float64),
            tiling,
            Guarantee.from_dict(metadata["guarantee"]),
            metadata["method"],
            deviation=deviation,
            unbiased=unbiased,
            p_value=p_value,
            unlisted=float(metadata["unlisted"]),
            title=metadata["title"],
            subtitle=metadata.get("subtitle", ""),
            parameters=metadata["parameters"],
            notes=tuple(metadata["notes"]),
            version=metadata["version"],
            provenance=Provenance(**metadata["provenance"]),
            sums=flow_sums_of(pooled, tiling.size),
        )
        if metadata.get("windows") is not None:
            flows = _flow_series(flows, metadata, table, by_window)
        check_content(flows, metadata, measured)
        _check_told(flows)
        return flows
    except ChangedContent as error:
        raise ChangedContent(f"{path}: {error}") from None
    except _BROKEN as error:
        raise InputError(
            f"{path}: its metadata is not that of flows ({type(error).__name__}: {error})"
        ) from error


def _flow_series(
    flows: FlowMap, metadata: dict[str, Any], table: pyarrow.Table, measured: str
) -> FlowSeriesMap:
    """The series of flows of all windows together, of a file's columns and of sums by window."""
    windows = Windows.from_dict(metadata["windows"])
    sums = flow_sums_of(measured, flows.tiling.size)
    unlisted = np.asarray(metadata["unlisted_by_window"], dtype=np.float64)
    columns = (table[f"{_OF_WINDOW}{name}"].to_numpy() for name in windows.names)
    by_window = np.array(list(columns), dtype=np.float64).reshape(windows.count, flows.size)
    held = () if sums is None else (*sums.blocks, *sums.margins)
    fits = all(isinstance(each, LabelMeasurement) and each.labels == windows.count for each in held)
    if sums is None or not fits or unlisted.shape != (windows.count,):
        raise ValueError("noisy sums that do not fit its windows")
    # Files list the flows in the order of a FlowMap.
    return FlowSeriesMap.of(flows, windows, by_window, unlisted, sums)


def _check_told(released: ReleasedMap) -> None:
    """Tell what every page and command tells of a map's record, so that values of other types are refused here."""
    rows = [*released.provenance.rows(), *released.guarantee.promise.rows]
    texts = released.title, released.subtitle, released.method, released.version, *released.notes
    if not all(isinstance(each, str) for each in (*texts, *(text for row in rows for text in row))):
        raise TypeError("words that are no text")
    json.dumps((released.metadata(), rows), allow_nan=False, ensure_ascii=False).encode()
    released.tiling.region.outline()  # its CRS is one


def _read(file: Path, read: Callable[[Path], tuple[str, Any, str]]) -> tuple[str, Any, str]:
    """Metadata, content and measurements of a file, which is refused where its text is not UTF-8."""
    try:
        return read(file)
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not readable: its text is not UTF-8 ({error.reason})") from error
    except RecursionError as error:
        raise InputError(f"{file}: not readable: its text is nested too deeply") from error


def _kind(text: str) -> object:
    """The kind of map that a file's metadata names; None where they name none or cannot be read."""
    try:
        found: object = json.loads(text).get("kind")
    except (ValueError, AttributeError, RecursionError):
        return None
    return found


def _read_parquet(file: Path) -> tuple[str, pyarrow.Table, str]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # A file object, so that a folder of this name or "key=value" in the path means nothing.
        with file.open("rb") as opened:
            source = parquet.ParquetFile(opened)
            found = source.schema_arrow.metadata or {}
            text = found.get(METADATA_KEY)
            if text is None:
                raise NotAMap(f"{file}: not a map that Mapveil wrote: its metadata are missing")
            # Of these the columns that it has.
            names = source.schema_arrow.names
            table = source.read([*_COLUMNS, *(name for name in names if name.startswith(_OF_WINDOW))])
            return text.decode(), table, found.get(MEASUREMENTS_KEY.encode(), b"").decode("ascii", "replace")
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: not readable as Parquet ({str(error).splitlines()[0]})") from error


def _read_geojson(file: Path) -> tuple[str, pyarrow.Table, str]:
    import pyarrow as pa

    try:
        content = file.read_bytes()
        if not content.startswith(_GEOJSON_HEAD):
            raise NotAMap(f"{file}: not a map that Mapveil wrote: its metadata are missing")
        record = json.loads(content)
        rows = [each["properties"] for each in record["features"]]
        return json.dumps(record["mapveil"]), pa.Table.from_pylist(rows), record.get(MEASUREMENTS_KEY, "")
    except (ValueError, KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: not readable as GeoJSON ({str(error).splitlines()[0]})") from error


def _read_geopackage(file: Path) -> tuple[str, pyarrow.Table, str]:
    text, table, measured = read_geopackage(file, list(_COLUMNS), prefix=_OF_WINDOW)
    if text is None:
        raise NotAMap(f"{file}: not a map that Mapveil wrote: its metadata are missing")
    return text, table, measured


def _read_csv(file: Path) -> tuple[str, pyarrow.Table, str]:
    import pyarrow as pa
    from pyarrow import csv

    beside = Path(f"{file}{CSV_METADATA_SUFFIX}")
    if not beside.is_file():
        raise NotAMap(f"{file}: not a map that Mapveil wrote: {beside.name} is missing")
    try:
        table = csv.read_csv(file)
        _ = table.column_names  # decoded here, so that names which are not UTF-8 are refused here
        return beside.read_text("utf-8"), table, ""
    except (ValueError, OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: not readable as CSV ({str(error).splitlines()[0]})") from error


def _read_geotiff(file: Path) -> tuple[str, FloatArray, str]:
    rasterio = require("rasterio", "geo")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with open_geotiff(file) as opened:
                text = opened.tags().get(METADATA_TAG)
                measured = opened.tags(ns=MEASUREMENTS_KEY).get("base64", "")
                bands = [1, *(at for at, name in enumerate(opened.descriptions, 1) if _band_of_window(name))]
                pixels = opened.read(bands)
    except rasterio.errors.RasterioError as error:
        # The bytes were opened in memory, under a name that says nothing to a user.
        reason = re.sub(r"/vsimem/[^' ]*", file.name, str(error).splitlines()[0])
        raise InputError(f"{file}: not readable as GeoTIFF ({reason})") from error
    if text is None:
        raise NotAMap(f"{file}: not a map that Mapveil wrote: its metadata are missing")
    return text, np.asarray(pixels, dtype=np.float64), measured


def _map_of(metadata: dict[str, Any], found: FloatArray | pyarrow.Table, measured: str) -> DensityMap:
    tiling = tiling_from_dict(metadata["tiling"])
    measurements = measurements_of(measured, tiling.size)
    if any(each.groups.size != tiling.size for each in measurements):
        raise ValueError("measurements of another number of cells")
    if not isinstance(found, np.ndarray):
        most = _MOST_LEFT_OUT if metadata.get("empty_cells_left_out") else len(found)
        if not len(found) <= tiling.size <= most:
            raise ValueError(f"{len(found)} cells where its tiling has {tiling.size}")
        values, cells = np.zeros(tiling.size), found["cell"].to_numpy()
        if np.unique(cells).size < cells.size or not ((cells >= 0) & (cells < tiling.size)).all():
            raise ValueError("cells that are not its tiling's, or twice there")
        values[cells] = found["users"].to_numpy()
    else:
        frame = require_frame(tiling, "GeoTIFF")
        if found.shape[1:] != (frame.rows, frame.columns):
            raise ValueError(f"{found.shape[1:]} pixels where its tiling has {(frame.rows, frame.columns)}")
        values = frame.cells(found[0])
    if not np.isfinite(values).all():
        raise ValueError("users that are no numbers")
    repeated = str(metadata.get("stand_in", ""))
    heat = DensityMap(
        values=values,
        tiling=tiling,
        guarantee=Guarantee.from_dict(metadata["guarantee"]),
        method=metadata["method"],
        title=metadata["title"],
        subtitle=metadata.get("subtitle", ""),
        parameters=metadata["parameters"],
        measurements=() if repeated else measurements,
        stand_in=repeated,
        repeated=measurements if repeated else (),
        notes=tuple(metadata["notes"]),
        outside=float(metadata["outside"]),
        rounds=tuple(RoundCost(**each) for each in metadata.get("rounds", ())),
        version=metadata["version"],
        provenance=Provenance(**metadata["provenance"]),
        noise_floor=float(metadata.get("noise_floor_per_km2", 0.0)),
    )
    if metadata.get("windows") is not None:
        return _series_of(heat, metadata, found)
    # A file of one window of a series: in a block its users lie as in all windows.
    return replace(heat, placement=values) if heat.method == PLACED_BY_ALL else heat


def _series_of(heat: DensityMap, metadata: dict[str, Any], found: FloatArray | pyarrow.Table) -> SeriesMap:
    """The series of a map of all windows, with measurements by window, and of a file's columns or bands."""
    windows = Windows.from_dict(metadata["windows"])
    by_window = np.zeros((windows.count, heat.tiling.size))
    if isinstance(found, np.ndarray):
        frame = require_frame(heat.tiling, "GeoTIFF")
        if found.shape[0] != 1 + windows.count:
            raise ValueError(f"{found.shape[0] - 1} bands of windows where it has {windows.count} windows")
        for at, pixels in enumerate(found[1:]):
            by_window[at] = frame.cells(pixels)
    else:
        cells = found["cell"].to_numpy()
        for at, name in enumerate(windows.names):
            by_window[at, cells] = found[f"{_OF_WINDOW}{name}"].to_numpy()
    each = tuple(one for one in heat.measurements if isinstance(one, LabelMeasurement | WindowEstimates))
    if any(one.labels != windows.count for one in each):
        raise ValueError("measurements that do not fit its windows")
    pooled = tuple(one for one in heat.measurements if one not in each)
    return SeriesMap.of(replace(heat, measurements=pooled), windows, by_window, each)


def _band_of_window(name: str | None) -> bool:
    return name is not None and name.startswith(_BAND_OF_WINDOW)


_TABLES: Final[dict[str, Callable[[Path], tuple[str, Any, str]]]] = {
    ".parquet": _read_parquet,
    ".geojson": _read_geojson,
    ".json": _read_geojson,
    ".csv": _read_csv,
    ".gpkg": _read_geopackage,
}
