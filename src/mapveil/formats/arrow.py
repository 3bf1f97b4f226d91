"""A map as a stream of Arrow batches, for pyarrow, Polars, DuckDB and whatever else reads the PyCapsule interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mapveil.formats.geoparquet import METADATA_KEY
from mapveil.formats.table import Chunk, chunks
from mapveil.geo.projected import projector
from mapveil_client.plane import DEGREES_CRS

if TYPE_CHECKING:
    import pyarrow

    from mapveil.maps.released import ReleasedMap

_EXTENSION: Final = b"ARROW:extension:"


def arrow_stream(released: ReleasedMap) -> pyarrow.RecordBatchReader:
    """Make a stream of a map's rows, one per cell or line: codes, names, numbers and ``geometry``.

    The geometry is WKB, marked as ``geoarrow.wkb`` in WGS84 degrees; readers that do not know the mark see bytes. The
    schema's metadata hold those of the map under ``mapveil``. Memory is bounded by a chunk of geometries.
    """
    import pyarrow as pa

    crs = {"crs": DEGREES_CRS, "crs_type": "authority_code"} if released.tiling.region.georeferenced else {}
    mark = {_EXTENSION + b"name": b"geoarrow.wkb", _EXTENSION + b"metadata": json.dumps(crs).encode()}
    about = {METADATA_KEY: released.metadata_json().encode()}
    walk = chunks(released)
    first = next(walk)
    fields = [pa.field(name, column.type) for name, column in first.columns.items()]
    schema = pa.schema([*fields, pa.field("geometry", pa.binary(), metadata=mark)], metadata=about)
    return pa.RecordBatchReader.from_batches(schema, _batches(first, walk, schema))


def _batches(first: Chunk, walk: Iterator[Chunk], schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa
    import shapely

    chunk: Chunk | None = first
    while chunk is not None:
        geometry = pa.array(shapely.to_wkb(chunk.geometry), type=pa.binary())
        yield pa.RecordBatch.from_arrays([*chunk.columns.values(), geometry], schema=schema)
        # A reader such as DuckDB asks from threads of its own, in which PROJ must not be called.
        chunk = projector().submit(next, walk, None).result()
