"""A coverage map as files: GeoTIFF bands, and tables of cells as GeoParquet, GeoJSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.formats.cell_table import CELLS_AT_ONCE, cell_names, cell_outlines
from mapveil.formats.flow_table import write_csv
from mapveil.formats.geojson import feature_lines
from mapveil.formats.geoparquet import METADATA_KEY, bbox_field, bbox_of, geo_record
from mapveil.formats.geotiff import write_bands
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.maps.signal_map import SignalMap


def write_signal_geotiff(signal: SignalMap, path: str | PathLike[str]) -> None:
    """Write one band for each of the map's layers: strength first; see :func:`mapveil.formats.geotiff.write_bands`.

    Raises
    ------
    InputError
        The cells are no raster, or the file cannot be written.
    MissingExtra
        rasterio is not installed.
    """
    write_bands(signal, signal.layers(), path)


def write_signal_geoparquet(signal: SignalMap, path: str | PathLike[str]) -> None:
    """Write one row a cell: its code, name, layers, polygon (WGS84) and bounding box; null where nothing is known.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    import pyarrow as pa
    import shapely
    from pyarrow import parquet

    layers = signal.layers()
    schema = pa.schema(
        [
            pa.field("cell", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            *(pa.field(layer.name, pa.float64()) for layer in layers),
            pa.field("geometry", pa.binary()),
            bbox_field(),
        ],
        metadata={
            METADATA_KEY: signal.metadata_json().encode(),
            b"geo": json.dumps(geo_record(signal.tiling)).encode(),
        },
    )
    with (
        atomic_path(path) as place,
        parquet.ParquetWriter(place, schema, compression="zstd", version="2.6") as file,
    ):
        for cells in _chunks(signal.tiling.size):
            names = cell_names(signal.tiling, cells)
            polygons = cell_outlines(signal.tiling, cells)
            columns = [
                pa.array(cells),
                pa.nulls(cells.size, pa.string()) if names is None else pa.array(names),
                *(
                    pa.array(column, mask=np.isnan(column))
                    for layer in layers
                    for column in [layer.values[cells]]
                ),
                pa.array(shapely.to_wkb(polygons), type=pa.binary()),
                bbox_of(polygons),
            ]
            file.write_table(pa.Table.from_arrays(columns, schema=schema))


def write_signal_geojson(signal: SignalMap, path: str | PathLike[str]) -> None:
    """Write one feature a cell with its layers as properties, the metadata as the foreign member ``mapveil``.

    Raises
    ------
    InputError
        The region has no georeference, or the file cannot be written.
    """
    if not signal.tiling.region.georeferenced:
        raise InputError(
            "GeoJSON holds places on Earth, and this map has no georeference; "
            "GeoTIFF (.tif), GeoParquet (.parquet) and CSV (.csv) can do without"
        )
    layers = signal.layers()
    with atomic_path(path) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        file.write('{"type":"FeatureCollection","mapveil":' + signal.metadata_json() + ',"features":[')
        separator = "\n"
        for cells in _chunks(signal.tiling.size):
            columns = {layer.name: layer.values[cells] for layer in layers}
            names, polygons = cell_names(signal.tiling, cells), cell_outlines(signal.tiling, cells)
            file.write(separator + feature_lines(cells, names, polygons, columns))
            separator = ",\n"
        file.write("\n]}\n")


def write_signal_csv(signal: SignalMap, path: str | PathLike[str]) -> None:
    """Write one row a cell: code, name, centre in degrees, layers; and the metadata beside it.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    import pyarrow as pa

    cells = np.arange(signal.tiling.size, dtype=np.int64)
    names, centres = cell_names(signal.tiling, cells), signal.tiling.centres()
    columns = {"cell": pa.array(cells)}
    if names is not None:
        columns["name"] = pa.array(names)
    columns["lon"], columns["lat"] = (pa.array(np.round(each, 8)) for each in (centres.lon, centres.lat))
    for layer in signal.layers():
        columns[layer.name] = pa.array(layer.values, mask=np.isnan(layer.values))
    write_csv(pa.table(columns), signal.metadata_json(), path)


def _chunks(size: int) -> Iterator[npt.NDArray[np.int64]]:
    for start in range(0, size, CELLS_AT_ONCE):
        yield np.arange(start, min(start + CELLS_AT_ONCE, size), dtype=np.int64)
