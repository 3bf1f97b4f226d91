"""A map as GeoParquet 1.1: one row a cell, whatever the cells' shape."""

from __future__ import annotations

import json
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.formats.cell_table import CellChunk, cell_chunks

if TYPE_CHECKING:
    import pyarrow

    from mapveil.geo.tiling import Tiling
    from mapveil.maps.density_map import DensityMap

METADATA_KEY: Final = b"mapveil"
"""The key of the file's schema metadata that holds the map's whole metadata as JSON."""

_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")


def write_geoparquet(heat: DensityMap, path: str | PathLike[str]) -> None:
    """Write one row a cell: its code, polygon (WGS84), estimate, density, bounds and layers.

    Columns: ``cell`` int64; ``name``, its H3 index, quadkey or place; ``users``, ``users_per_km2``, ``lower``,
    ``upper`` and each layer's name float64; ``geometry``, WKB; ``bbox``, the covering of GeoParquet 1.1. Null where
    there is none: names of plain pixels, bounds without measurements, density without georeference. Memory is bounded
    by the map and a chunk of polygons.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    names = ("users", "users_per_km2", "lower", "upper", *(layer.name for layer in heat.layers()))
    numbers = [pa.field(name, pa.float64()) for name in names]
    schema = pa.schema(
        [
            pa.field("cell", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            *numbers,
            pa.field("geometry", pa.binary()),
            bbox_field(),
        ],
        metadata={
            METADATA_KEY: heat.metadata_json().encode(),
            b"geo": json.dumps(geo_record(heat.tiling)).encode(),
        },
    )
    with (
        atomic_path(path) as place,
        parquet.ParquetWriter(place, schema, compression="zstd", version="2.6") as file,
    ):
        for chunk in cell_chunks(heat):
            file.write_table(_table(chunk, schema))


def _table(chunk: CellChunk, schema: pyarrow.Schema) -> pyarrow.Table:
    import pyarrow as pa
    import shapely

    numbers = (chunk.users, chunk.users_per_km2, chunk.lower, chunk.upper)
    return pa.Table.from_arrays(
        [
            pa.array(chunk.cells),
            pa.nulls(chunk.cells.size, pa.string()) if chunk.names is None else pa.array(chunk.names),
            *(
                pa.nulls(chunk.cells.size, pa.float64()) if column is None else pa.array(column)
                for column in numbers
            ),
            *(pa.array(column, mask=np.isnan(column)) for column in chunk.layers.values()),
            pa.array(shapely.to_wkb(chunk.polygons), type=pa.binary()),
            bbox_of(chunk.polygons),
        ],
        schema=schema,
    )


def bbox_field() -> pyarrow.Field:
    """The column ``bbox``: the covering of GeoParquet 1.1."""
    import pyarrow as pa

    return pa.field("bbox", pa.struct([pa.field(name, pa.float64(), nullable=False) for name in _CORNERS]))


def bbox_of(polygons: npt.NDArray[np.object_]) -> pyarrow.StructArray:
    """The bounds of polygons, for :func:`bbox_field`."""
    import pyarrow as pa
    import shapely

    bounds = shapely.bounds(polygons)
    corners = [pa.array(bounds[:, corner]) for corner in range(4)]
    return pa.StructArray.from_arrays(corners, fields=list(bbox_field().type))


def geo_record(tiling: Tiling) -> dict[str, Any]:
    """The ``geo`` record of the GeoParquet 1.1 specification; a CRS left out means WGS84 degrees."""
    column: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": [],
        "orientation": "counterclockwise",
        "covering": {"bbox": {name: ["bbox", name] for name in _CORNERS}},
    }
    if tiling.region.georeferenced:
        column["bbox"] = list(tiling.region.bbox)
    else:
        column["crs"] = None
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
