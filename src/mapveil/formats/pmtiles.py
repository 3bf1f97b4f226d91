"""A map as PMTiles: vector tiles in one file, for maps on the web; no server but one of files is needed."""

from __future__ import annotations

import math
import tempfile
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.formats.block_table import block_table
from mapveil.formats.geojson import no_georeference
from mapveil.formats.table import Chunk, chunks
from mapveil_client.errors import require

if TYPE_CHECKING:
    from mapveil.maps.released import ReleasedMap

LAYER: Final = "map"
"""Name of the layer in the tiles."""

_PIXELS: Final = 16  # of the narrowest cell at the largest zoom, of 256 a tile
_MOST_ZOOM: Final = 16
_OUT: Final = 4  # zooms below that at which the map fills a tile
_TILE_BYTES: Final = 50_000_000  # GDAL leaves features out of larger tiles: none is left out
_TILE_ROWS: Final = 10_000_000


def write_pmtiles(released: ReleasedMap, path: str | PathLike[str]) -> None:
    """Write the layer ``map``: blocks that are told from zero, each with estimate and interval; else all cells.

    Blocks are what pictures draw; a map without noisy sums that can be tested, or of lines, has its cells or lines.
    Where nothing is told from zero the region is one polygon without a number. The promise in words is the file's
    description. Coordinates are rounded to 1/4,096 of a tile.

    Raises
    ------
    InputError
        The region has no georeference, or the file cannot be written.
    MissingExtra
        pyogrio is not installed.
    """
    import pyarrow as pa
    import shapely

    if not released.tiling.region.georeferenced:
        raise no_georeference("PMTiles")
    module = require("pyogrio", "geo")
    blocks = released.scene().blocks
    drawn = [block_table(released, blocks)] if blocks is not None else list(chunks(released))
    if not any(len(each.geometry) for each in drawn):
        drawn = [_nothing(released, drawn[0])]
    table = pa.concat_tables([_table(each) for each in drawn])
    least, most = _zooms(released, np.concatenate([shapely.bounds(each.geometry) for each in drawn]))
    options = {
        "NAME": released.title or f"Mapveil, {released.method}",
        "DESCRIPTION": released.guarantee.in_words(),
        "MINZOOM": str(least),
        "MAXZOOM": str(most),
        "MAX_SIZE": str(_TILE_BYTES),
        "MAX_FEATURES": str(_TILE_ROWS),
    }
    with atomic_path(path) as place, tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "map.pmtiles"
        module.write_arrow(
            table, made, layer=LAYER, driver="PMTiles", geometry_name="geometry", geometry_type="Unknown",
            crs="EPSG:4326", dataset_options=options,
        )  # fmt: skip
        place.write_bytes(made.read_bytes())


def _nothing(released: ReleasedMap, empty: Chunk) -> Chunk:
    """The whole region without a number: tiles cannot hold nothing, and the release is paid for."""
    import pyarrow as pa

    outline = np.array([released.tiling.region.outline()], dtype=np.object_)
    return Chunk({name: pa.nulls(1, column.type) for name, column in empty.columns.items()}, outline)


def _table(chunk: Chunk) -> Any:
    import pyarrow as pa
    import shapely

    return pa.table({**chunk.columns, "geometry": pa.array(shapely.to_wkb(chunk.geometry), type=pa.binary())})


def _zooms(released: ReleasedMap, bounds: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The zooms at which the whole map lies within a fraction of a tile, and at which its narrowest cell is seen."""
    west, south, east, north = released.tiling.region.bbox
    whole = math.floor(math.log2(360 / max(east - west, north - south, 1e-6)))
    if released.rows() is not None:
        narrow = (east - west) / 256
    else:
        narrow = float(np.quantile(bounds[:, 2] - bounds[:, 0], 0.01))
    deep = math.ceil(math.log2(_PIXELS * 360 / (256 * max(narrow, 1e-9))))
    most = min(max(deep, whole), _MOST_ZOOM)
    return max(min(whole - _OUT, most), 0), most
