"""A map as a GeoPackage, and as a GeoDataFrame: one row per cell, whatever the cells' shape, or per line."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.formats.block_table import block_table, told_from_zero
from mapveil.formats.content_hash import file_record, record_json
from mapveil.formats.geojson import no_georeference
from mapveil.formats.measurement_record import MEASUREMENTS_KEY, as_kept
from mapveil.formats.qgis_style import STYLES, style_of, style_table
from mapveil.formats.table import Chunk, chunks
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow
    from geopandas import GeoDataFrame

    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import DrawnBlocks

LAYER: Final = "map"
"""Name of the layer, whose metadata hold those of the map under ``mapveil``."""

BLOCKS: Final = "blocks"
"""Name of the layer of blocks that are told from zero."""

_RECORD: Final = "mapveil"
_UNIT: Final = "users per km²"
_SQLITE: Final = b"SQLite format 3\0"
_WGS84: Final = "EPSG:4326"


def write_geopackage(released: ReleasedMap, path: str | PathLike[str]) -> None:
    """Write the layer ``map`` in WGS84: codes, names and numbers, null where there is none, and the metadata.

    Of a map whose noisy sums can be tested, ``told_from_zero`` says of each cell whether it lies in a block that they
    tell from zero, the layer ``blocks`` holds those, and ``layer_styles`` a style of both for QGIS. Descriptions of the
    layers state the promise.

    Memory is bounded by the map and a chunk of geometries.

    Raises
    ------
    InputError
        The region has no georeference, or the file cannot be written.
    MissingExtra
        pyogrio is not installed.
    """
    if not released.tiling.region.georeferenced:
        raise no_georeference("GeoPackage")
    module = require("pyogrio", "geo")
    released = as_kept(released)
    record, measured = file_record(released)
    metadata = {_RECORD: record_json(record)}
    if measured:
        metadata[MEASUREMENTS_KEY] = measured
    blocks = released.scene().blocks
    with atomic_path(path) as place:
        place.unlink()  # GDAL makes the file itself

        def write(chunk: Chunk, layer: str, title: str, **options: Any) -> None:
            described = {"IDENTIFIER": title, "DESCRIPTION": released.guarantee.in_words()}
            module.write_arrow(
                _table(chunk), place, layer=layer, driver="GPKG", geometry_name="geometry",
                geometry_type="Unknown", crs=_WGS84, layer_options=described, **options,
            )  # fmt: skip

        title = released.title or "Mapveil"
        for number, chunk in enumerate(chunks(released)):
            told = {} if blocks is None else {"told_from_zero": _told(chunk, blocks)}
            whole = Chunk({**chunk.columns, **told}, chunk.geometry)
            write(
                whole,
                LAYER,
                f"{title}: cells",
                append=number > 0,
                layer_metadata=None if number else metadata,
            )
        if blocks is not None:
            drawn = block_table(released, blocks)
            write(drawn, BLOCKS, f"{title}: blocks told from zero", append=True)
            density = np.asarray(drawn.columns["users_per_km2"].to_numpy(zero_copy_only=False))
            value = "users_per_km2"
            styles = {
                LAYER: style_of(f"if(told_from_zero, {value}, NULL)", density, _UNIT, outline=False),
                BLOCKS: style_of(value, density, _UNIT, outline=True),
            }
            table = style_table(styles, released.provenance.date)
            module.write_arrow(table, place, layer=STYLES, driver="GPKG", append=True)


def _told(chunk: Chunk, blocks: DrawnBlocks) -> pyarrow.Array:
    import pyarrow as pa

    return pa.array(told_from_zero(blocks, chunk.columns["cell"].to_numpy()))


def read_geopackage(
    file: Path, columns: list[str], *, prefix: str | None = None
) -> tuple[str | None, pyarrow.Table, str]:
    """Read the metadata (None where there are none), some columns and the measurements of a map's GeoPackage.

    Columns whose names begin with ``prefix`` are read too.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    module = require("pyogrio", "geo")
    with file.open("rb") as opened:
        if (
            opened.read(len(_SQLITE)) != _SQLITE
        ):  # else GDAL looks for other formats, some of which name further files
            raise InputError(f"{file}: not readable as GeoPackage (not an SQLite file)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # GDAL doubts a broken head before it fails
            if LAYER not in module.list_layers(file)[:, 0]:
                return None, None, ""
            about = module.read_info(file, layer=LAYER)
            metadata = about["layer_metadata"] or {}
            kept = [name for name in columns if name in about["fields"]]
            kept += [str(name) for name in about["fields"] if prefix is not None and name.startswith(prefix)]
            _, table = module.raw.read_arrow(file, layer=LAYER, columns=kept, read_geometry=False)
    except (module.errors.DataSourceError, module.errors.DataLayerError, OSError) as error:
        raise InputError(f"{file}: not readable as GeoPackage ({str(error).splitlines()[0]})") from error
    return metadata.get(_RECORD), table, metadata.get(MEASUREMENTS_KEY, "")


def as_geodataframe(released: ReleasedMap) -> GeoDataFrame:
    """Make a GeoDataFrame of a map's table in WGS84; ``attrs["mapveil"]`` holds the whole metadata.

    Raises
    ------
    InputError
        The region has no georeference.
    MissingExtra
        geopandas is not installed.
    """
    if not released.tiling.region.georeferenced:
        raise no_georeference("a GeoDataFrame")
    import pyarrow as pa

    module = require("geopandas", "geo")
    walked = list(chunks(released))
    table = pa.concat_tables([pa.table(chunk.columns) for chunk in walked])
    geometry = np.concatenate([chunk.geometry for chunk in walked])
    made: GeoDataFrame = module.GeoDataFrame(table.to_pandas(), geometry=geometry, crs=_WGS84)
    made.attrs[_RECORD] = released.metadata()
    return made


def _table(chunk: Chunk) -> pyarrow.Table:
    import pyarrow as pa
    import shapely

    geometry: Any = pa.array(shapely.to_wkb(chunk.geometry), type=pa.binary())
    return pa.table({**chunk.columns, "geometry": geometry})
