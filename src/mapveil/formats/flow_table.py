"""Flows as tables: GeoParquet and GeoJSON of straight lines, and plain CSV; one row a flow, the largest first."""

from __future__ import annotations

import json
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.formats.geoparquet import METADATA_KEY
from mapveil.geo.places import Places
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import pyarrow

    from mapveil.maps.flow_map import FlowMap

CSV_METADATA_SUFFIX: Final = "-metadata.json"
"""Where the metadata of a CSV lie: beside it, as "CSV on the Web" has it."""

_DECIMALS: Final = 8  # of a degree: a millimetre


def flow_table(flows: FlowMap) -> pyarrow.Table:
    """One row a flow, without geometry.

    Columns: ``origin`` and ``destination`` int64, their names where cells have one, ``trips``, ``deviation``,
    ``length_m``, and the ends in degrees.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {"origin": flows.origin, "destination": flows.destination}
    names = flows.tiling.names if isinstance(flows.tiling, Places) else None
    if names is not None:
        known = np.array(names, dtype=np.object_)
        columns["origin_name"] = pa.array(known[flows.origin], type=pa.string())
        columns["destination_name"] = pa.array(known[flows.destination], type=pa.string())
    columns["trips"] = flows.trips
    if flows.deviation is not None:
        columns["deviation"] = flows.deviation
    columns["length_m"] = np.round(flows.lengths_m(), 1)
    for name, degrees in flows.ends._asdict().items():
        columns[name] = np.round(degrees, _DECIMALS)
    return pa.table(columns)


def write_flow_csv(flows: FlowMap, path: str | PathLike[str]) -> None:
    """Write :func:`flow_table` as CSV, and the metadata beside it.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    write_csv(flow_table(flows), flows.metadata_json(), path)


def write_csv(table: pyarrow.Table, metadata_json: str, path: str | PathLike[str]) -> None:
    """Write a table as CSV, and its metadata beside it in ``NAME.csv-metadata.json``.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    from pyarrow import csv

    # The promise first: a table without it must never lie there.
    with atomic_path(fspath(path) + CSV_METADATA_SUFFIX) as place:
        place.write_text(metadata_json + "\n", encoding="utf-8")
    with atomic_path(path) as place:
        csv.write_csv(table, place)


def write_flow_geoparquet(flows: FlowMap, path: str | PathLike[str]) -> None:
    """Write GeoParquet 1.1: :func:`flow_table` with a straight line (WGS84) from origin to destination.

    A flow within one cell is a line of no length. The metadata lie under the schema's key ``mapveil``.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    import pyarrow as pa
    import shapely
    from pyarrow import parquet

    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": ["LineString"] if flows.size else []}
    if not flows.tiling.region.georeferenced:
        column["crs"] = None
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    table = flow_table(flows)
    lines = pa.array(shapely.to_wkb(_lines(flows)), type=pa.binary())
    table = table.append_column("geometry", lines).replace_schema_metadata(
        {METADATA_KEY: flows.metadata_json().encode(), b"geo": json.dumps(geo).encode()}
    )
    with atomic_path(path) as place:
        parquet.write_table(table, place, compression="zstd", version="2.6")


def write_flow_geojson(flows: FlowMap, path: str | PathLike[str]) -> None:
    """Write a feature collection of straight lines (RFC 7946), the metadata as the foreign member ``mapveil``.

    Raises
    ------
    InputError
        The region has no georeference, or the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import shapely

    if not flows.tiling.region.georeferenced:
        raise InputError(
            "GeoJSON holds places on Earth, and these flows have no georeference; "
            "GeoParquet (.parquet) and CSV (.csv) can do without"
        )
    pieces: list[Any] = [
        '{"type":"Feature","geometry":',
        pa.array(shapely.to_geojson(_lines(flows)), pa.string()),
    ]
    separator = ',"properties":{'
    for name, column in zip((table := flow_table(flows)).column_names, table.columns, strict=True):
        texts = (
            pa.array([json.dumps(text, ensure_ascii=False) for text in column.to_pylist()], pa.string())
            if pa.types.is_string(column.type)
            else pc.cast(column, pa.string())
        )
        pieces += [f'{separator}"{name}":', texts]
        separator = ","
    lines = pc.binary_join_element_wise(*pieces, "}}", "").to_pylist() if flows.size else []
    with atomic_path(path) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        file.write('{"type":"FeatureCollection","mapveil":' + flows.metadata_json() + ',"features":[\n')
        file.write(",\n".join(lines))
        file.write("\n]}\n")


def _lines(flows: FlowMap) -> npt.NDArray[np.object_]:
    import shapely

    ends = np.round(np.stack(flows.ends, axis=1), _DECIMALS).reshape(-1, 2, 2)
    return np.asarray(shapely.linestrings(ends), dtype=np.object_)
