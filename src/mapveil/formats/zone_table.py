"""Answers about zones as files: CSV, GeoParquet and GeoJSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.formats.csv import write_csv_table
from mapveil.formats.geojson import features
from mapveil.formats.table import Chunk

if TYPE_CHECKING:
    import pyarrow

    from mapveil.geo.zones import Zones

ZONE_SUFFIXES: Final = (".csv", ".parquet", ".geojson")
"""Suffixes that answers about zones can be written with."""


def write_zones(
    zones: Zones, columns: Mapping[str, Any], metadata: Mapping[str, Any], path: str | PathLike[str]
) -> None:
    """Write one row per zone, with its polygon but in CSV; the metadata lie where a map's do.

    Parameters
    ----------
    zones : Zones
        The zones, in the order of the columns.
    columns : mapping of str to array or list
        The answers, one entry per zone.
    metadata : mapping
        JSON-ready: the map that was asked, and how.
    path : path-like
        Ends in one of :data:`ZONE_SUFFIXES`.
    """
    import pyarrow as pa

    table = {name: _column(values) for name, values in columns.items()}
    record = json.dumps(metadata, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    suffix = Path(path).suffix.lower()
    if suffix == ".csv":
        write_csv_table(pa.table(table), record, path)
    elif suffix == ".geojson":
        text = features(Chunk(table, zones.polygons))
        with atomic_path(path) as place:
            head = '{"type":"FeatureCollection","mapveil":' + record + ',"features":[\n'
            place.write_text(head + text + "\n]}\n", encoding="utf-8", newline="\n")
    else:
        _write_parquet(zones, table, record, path)


def _column(values: Any) -> pyarrow.Array:
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return pa.array(values, mask=~np.isfinite(values))
    return pa.array(values)


def _write_parquet(
    zones: Zones, table: dict[str, pyarrow.Array], record: str, path: str | PathLike[str]
) -> None:
    import pyarrow as pa
    import shapely
    from pyarrow import parquet

    columns = {**table, "geometry": pa.array(shapely.to_wkb(zones.polygons), type=pa.binary())}
    geometry = {"encoding": "WKB", "geometry_types": ["Polygon", "MultiPolygon"]}
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}
    made = pa.table(columns).replace_schema_metadata(
        {b"mapveil_zones": record.encode(), b"geo": json.dumps(geo).encode()}
    )
    with atomic_path(path) as place:
        parquet.write_table(made, place, compression="zstd")
