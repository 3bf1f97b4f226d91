"""A map as a GeoJSON feature collection (RFC 7946)."""

from __future__ import annotations

import json
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.formats.content_hash import file_record, record_json
from mapveil.formats.measurement_record import MEASUREMENTS_KEY, as_kept
from mapveil.formats.table import Chunk, chunks
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import pyarrow

    from mapveil.maps.released import ReleasedMap


def write_geojson(released: ReleasedMap, path: str | PathLike[str], *, skip_empty: bool = False) -> None:
    """Write one feature per cell or line, a line of text each, and the metadata as the foreign member ``mapveil``.

    The measurements are the foreign member ``mapveil_measurements``.

    Properties are the columns of the map's table, null where there is none; ``name`` where cells have one. With
    ``skip_empty``, cells whose estimate is exactly zero are left out, and the metadata says so.

    Raises
    ------
    InputError
        The region has no georeference.
    """
    if not released.tiling.region.georeferenced:
        raise no_georeference("GeoJSON")
    released = as_kept(released)
    left_out = {"empty_cells_left_out": skip_empty} if released.rows() is None else {}
    metadata, measured = file_record(released, **left_out)
    with atomic_path(path) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        file.write('{"type":"FeatureCollection","mapveil":' + record_json(metadata))
        if measured:
            file.write(f',"{MEASUREMENTS_KEY}":"{measured}"')
        file.write(',"features":[')
        separator = "\n"
        for chunk in chunks(released, skip_empty=skip_empty):
            if chunk.geometry.size:
                file.write(separator + features(chunk))
                separator = ",\n"
        file.write("\n]}\n")


def no_georeference(what: str) -> InputError:
    """The error of a format that holds places on Earth only."""
    return InputError(
        f"{what} holds places on Earth, and this map has no georeference; "
        "GeoTIFF (.tif), GeoParquet (.parquet) and CSV (.csv) can do without"
    )


def features(chunk: Chunk) -> str:
    """Features as text, one a line, joined column by column: a Python loop would take minutes."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import shapely

    columns = {name: _json(column) for name, column in chunk.columns.items()}
    if "name" in columns and chunk.columns["name"].null_count == len(chunk.geometry):
        del columns["name"]
    pieces: list[Any] = ['{"type":"Feature"']
    if "cell" in columns:
        pieces += [',"id":', columns["cell"]]
    pieces += [',"geometry":', pa.array(shapely.to_geojson(chunk.geometry), pa.string())]
    separator = ',"properties":{'
    for name, texts in columns.items():
        pieces += [f"{separator}{json.dumps(name, ensure_ascii=False)}:", texts]
        separator = ","
    return ",\n".join(pc.binary_join_element_wise(*pieces, "}}", "").to_pylist())


def _json(column: pyarrow.Array) -> pyarrow.Array:
    """A column as JSON texts; JSON knows no infinity: a bound that is not there is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type):
        return pa.array([json.dumps(text, ensure_ascii=False) for text in column.to_pylist()], pa.string())
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        column = pa.array(values, mask=~np.isfinite(values))
    return pc.fill_null(pc.cast(column, pa.string()), "null")
