"""A map as a GeoJSON feature collection (RFC 7946)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.formats.cell_table import CellChunk, cell_chunks
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap


def write_geojson(heat: DensityMap, path: str | PathLike[str], *, skip_empty: bool = False) -> None:
    """Write one feature a cell, with the map's metadata as the foreign member ``mapveil``.

    Properties: ``cell``, ``users``, ``users_per_km2``, ``lower``, ``upper`` and the map's layers, null where there is
    none; and ``name`` where cells have one: H3 index, quadkey or place. One feature a line. Memory is bounded by the
    map and a chunk of features.

    Parameters
    ----------
    heat : DensityMap
        The map.
    path : path-like
        Where to write.
    skip_empty : bool
        Leave out cells whose estimate is exactly zero; the metadata then says so.

    Raises
    ------
    InputError
        The region has no georeference, or the file cannot be written.
    """
    if not heat.tiling.region.georeferenced:
        raise InputError(
            "GeoJSON holds places on Earth, and this map has no georeference; "
            "GeoTIFF (.tif) and GeoParquet (.parquet) can do without"
        )
    metadata = {**heat.metadata(), "empty_cells_left_out": skip_empty}
    head = json.dumps(metadata, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    with atomic_path(path) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        file.write('{"type":"FeatureCollection","mapveil":' + head + ',"features":[')
        separator = "\n"
        for chunk in cell_chunks(heat, skip_empty=skip_empty):
            file.write(separator + _features(chunk))
            separator = ",\n"
        file.write("\n]}\n")


def _features(chunk: CellChunk) -> str:
    columns = {name: getattr(chunk, name) for name in ("users", "users_per_km2", "lower", "upper")}
    return feature_lines(chunk.cells, chunk.names, chunk.polygons, {**columns, **chunk.layers})


def feature_lines(
    cells: npt.NDArray[np.int64],
    names: list[str] | None,
    polygons: npt.NDArray[np.object_],
    columns: Mapping[str, npt.NDArray[np.float64] | None],
) -> str:
    """Features of cells as text, one a line, joined column by column: a Python loop would take minutes.

    Parameters
    ----------
    cells : ndarray of int64, shape (cells,)
        Their codes.
    names : list of str, optional
        What they are called.
    polygons : ndarray of shapely polygons, shape (cells,)
        Their outlines.
    columns : mapping of str to ndarray of float64, shape (cells,)
        Properties by name; null where a number is not finite or the column is None.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import shapely

    codes = pc.cast(pa.array(cells), pa.string())
    outlines = pa.array(shapely.to_geojson(polygons), type=pa.string())
    pieces: list[Any] = ['{"type":"Feature","id":', codes, ',"geometry":', outlines]
    pieces += [',"properties":{"cell":', codes]
    if names is not None:
        pieces += [',"name":', pa.array([json.dumps(name, ensure_ascii=False) for name in names])]
    for name, column in columns.items():
        pieces += [f',"{name}":', _json_numbers(column, cells.size)]
    lines = pc.binary_join_element_wise(*pieces, "}}", "")
    return ",\n".join(lines.to_pylist())


def _json_numbers(column: npt.NDArray[np.float64] | None, size: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    # JSON knows no infinity: a bound that is not there is null.
    missing = np.ones(size, dtype=np.bool_) if column is None else ~np.isfinite(column)
    numbers = pa.array(np.zeros(size) if column is None else column, mask=missing)
    return pc.fill_null(pc.cast(numbers, pa.string()), "null")
