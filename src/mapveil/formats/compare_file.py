"""The columns, bands and geometries of a map's file, against those that Mapveil writes of the map it is read as.

A map is read back from its users and its measurements; all other columns follow from these. They are written once more
and compared.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.formats.geopackage import BLOCKS, LAYER
from mapveil.formats.geotiff import open_geotiff
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    import pyarrow

    from mapveil.maps.released import ReleasedMap

_RELATIVE: Final = 1e-6  # between a number and the same number written once more
_DEGREES: Final = 2e-8  # between corners, which are rounded to 1e-8
_GEOMETRY: Final = "geometry"
_BROKEN: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, RuntimeError)

Column = npt.NDArray[Any]


class ComparedColumns(NamedTuple):
    """Names of columns of a file."""

    changed: tuple[str, ...]  # those that are missing, or not those of its map
    unknown: tuple[str, ...]  # those that such a map does not have


def compare_columns(released: ReleasedMap, file: Path) -> ComparedColumns:
    """Compare the columns of a file with those of the map that was read from it.

    Parameters
    ----------
    released : ReleasedMap
        The map as it was read.
    file : Path
        Its .parquet, .csv, .geojson, .json, .gpkg or .tif file.

    Raises
    ------
    InputError
        A column cannot be read.
    MissingExtra
        The format needs an extra that is not installed.
    """
    import pyarrow as pa
    from shapely.errors import ShapelyError

    try:
        found, expected = _both(released, file)
    except (*_BROKEN, pa.ArrowException, ShapelyError) as error:
        raise InputError(f"{file}: its columns cannot be read ({type(error).__name__})") from error
    changed = (name for name in expected if name not in found or not _same(found[name], expected[name]))
    return ComparedColumns(tuple(changed), tuple(name for name in found if name not in expected))


def _both(released: ReleasedMap, file: Path) -> tuple[dict[str, Column], dict[str, Column]]:
    suffix = file.suffix.lower()
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / f"map{suffix}"
        if suffix in (".geojson", ".json"):
            left_out = bool(json.loads(file.read_bytes())["mapveil"].get("empty_cells_left_out"))
            released.to_geojson(again, skip_empty=left_out)
        else:
            released.save(again)
        read = _READERS[suffix]
        return read(file), read(again)


def _same(one: Column, other: Column) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "fiub" and other.dtype.kind in "fiub":
        a, b = one.astype(np.float64), other.astype(np.float64)
        return bool(np.isclose(a, b, rtol=_RELATIVE, atol=_RELATIVE, equal_nan=True).all())
    if one.size and hasattr(one[0], "geom_type"):
        import shapely

        with np.errstate(over="ignore"):  # of corners that a damaged byte put anywhere
            return bool(shapely.equals_exact(one, other, tolerance=_DEGREES).all())
    return bool((one == other).all())


def _of_table(table: pyarrow.Table, layer: str = "") -> dict[str, Column]:
    import pyarrow as pa
    import shapely

    columns: dict[str, Column] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_struct(column.type):
            columns |= {
                f"{name}.{each.name}": column.field(at).to_numpy(zero_copy_only=False)
                for at, each in enumerate(column.type)
            }
            continue
        values = column.to_numpy(zero_copy_only=False)
        binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        columns[f"{layer}{name}"] = shapely.from_wkb(values) if binary else values
    return columns


def _of_parquet(file: Path) -> dict[str, Column]:
    from pyarrow import parquet

    with file.open("rb") as opened:
        return _of_table(parquet.ParquetFile(opened).read())


def _of_csv(file: Path) -> dict[str, Column]:
    from pyarrow import csv

    return _of_table(csv.read_csv(file))


def _of_geojson(file: Path) -> dict[str, Column]:
    import pyarrow as pa
    import shapely

    content = file.read_text("utf-8")
    rows = [each["properties"] for each in json.loads(content)["features"]]
    shapes = shapely.get_parts(shapely.from_geojson(content))
    return {**_of_table(pa.Table.from_pylist(rows)), _GEOMETRY: shapes}


def _of_geopackage(file: Path) -> dict[str, Column]:
    module = require("pyogrio", "geo")
    columns: dict[str, Column] = {}
    for layer in (LAYER, BLOCKS):
        if layer in module.list_layers(file)[:, 0]:
            _, table = module.raw.read_arrow(file, layer=layer)
            columns |= _of_table(table, "" if layer == LAYER else f"{layer}.")
    return columns


def _of_geotiff(file: Path) -> dict[str, Column]:
    with open_geotiff(file) as opened:
        bands = {str(name): pixels for name, pixels in zip(opened.descriptions, opened.read(), strict=True)}
        return {**bands, "georeference": np.array(opened.transform), "CRS": np.array([str(opened.crs)])}


_READERS: Final[dict[str, Callable[[Path], dict[str, Column]]]] = {
    ".parquet": _of_parquet,
    ".csv": _of_csv,
    ".geojson": _of_geojson,
    ".json": _of_geojson,
    ".gpkg": _of_geopackage,
    ".tif": _of_geotiff,
    ".tiff": _of_geotiff,
}
"""The columns of a file by name; those of the layer of blocks begin with its name."""
