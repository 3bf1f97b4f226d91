"""A map as GeoParquet 1.1: one row per cell, whatever the cells' shape, or per line."""

from __future__ import annotations

import io
import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.formats.content_hash import file_record, record_json
from mapveil.formats.measurement_record import MEASUREMENTS_KEY, as_kept
from mapveil.formats.table import Chunk, chunks

if TYPE_CHECKING:
    import pyarrow

    from mapveil.maps.released import ReleasedMap

METADATA_KEY: Final = b"mapveil"
"""Key of the file's schema metadata that holds the map's whole metadata as JSON."""

_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")


def write_geoparquet(released: ReleasedMap, path: str | PathLike[str]) -> None:
    """Write the map's table: codes, names and numbers, ``geometry`` (WKB, WGS84) and ``bbox``.

    A number is null where it is not known: bounds without measurements, density without georeference. A line within
    one cell has no length. The measurements lie in the schema's metadata. Memory is bounded by the map and a chunk of
    geometries.
    """
    with atomic_path(path) as place:
        _write(released, place)


def geoparquet_bytes(released: ReleasedMap) -> bytes:
    """The file of :func:`write_geoparquet`, in memory: a map that nobody may see yet lies in no temporary file."""
    held = io.BytesIO()
    _write(released, held)
    return held.getvalue()


def _write(released: ReleasedMap, place: Path | io.BytesIO) -> None:
    from pyarrow import parquet

    released = as_kept(released)
    metadata = _schema_metadata(released)
    walk = (_table(chunk, metadata) for chunk in chunks(released))
    first = next(walk)
    with parquet.ParquetWriter(place, first.schema, compression="zstd", version="2.6") as file:
        file.write_table(first)
        for table in walk:
            file.write_table(table)


def _schema_metadata(released: ReleasedMap) -> dict[bytes, bytes]:
    metadata, measured = file_record(released)
    return {
        METADATA_KEY: record_json(metadata).encode(),
        b"geo": json.dumps(_geo_record(released)).encode(),
        **({MEASUREMENTS_KEY.encode(): measured.encode()} if measured else {}),
    }


def _table(chunk: Chunk, metadata: dict[bytes, bytes]) -> pyarrow.Table:
    import pyarrow as pa
    import shapely

    geometry = pa.array(shapely.to_wkb(chunk.geometry), type=pa.binary())
    columns = {**chunk.columns, "geometry": geometry, "bbox": _bbox(chunk.geometry)}
    fields = [pa.field(name, column.type, nullable=name != "cell") for name, column in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields, metadata=metadata))


def _bbox(shapes: npt.NDArray[np.object_]) -> pyarrow.StructArray:
    """The bounds of geometries: the covering of GeoParquet 1.1."""
    import pyarrow as pa
    import shapely

    fields = [pa.field(name, pa.float64(), nullable=False) for name in _CORNERS]
    bounds = shapely.bounds(shapes).reshape(-1, 4)
    return pa.StructArray.from_arrays([pa.array(bounds[:, corner]) for corner in range(4)], fields=fields)


def _geo_record(released: ReleasedMap) -> dict[str, Any]:
    """The ``geo`` record of the GeoParquet 1.1 specification; a CRS left out means WGS84 degrees."""
    region, rows = released.tiling.region, released.rows()
    cells = rows is None
    column: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": ["LineString"] if rows and rows.start.size > 1 else [],
        **({"orientation": "counterclockwise"} if cells else {}),
        "covering": {"bbox": {name: ["bbox", name] for name in _CORNERS}},
    }
    if not region.georeferenced:
        column["crs"] = None
    elif cells:
        column["bbox"] = list(region.bbox)
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
