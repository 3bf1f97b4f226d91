"""A map as a table with geometry, in chunks: what GeoParquet, GeoJSON and CSV write. Rows are cells, or lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.hexagons import Hexagons
from mapveil.geo.places import Places
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.geo.zone_cells import ZoneCells
from mapveil_client.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    import pyarrow

    from mapveil.geo.tiling import Tiling
    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import Rows

DECIMALS: Final = 8
"""Decimals of a degree in files: a millimetre."""

ROWS_AT_ONCE: Final = 1 << 16
"""Rows whose geometry is held at once."""

_ALWAYS: Final = ("users", "users_per_km2", "lower", "upper")
"""Columns of every map of users, null where unknown."""


class Chunk(NamedTuple):
    """Some rows of a map's table."""

    columns: dict[str, pyarrow.Array]  # ``cell`` and ``name`` come first where rows are cells
    geometry: npt.NDArray[np.object_]  # shapely, WGS84 degrees; outer rings counterclockwise


def chunks(released: ReleasedMap, *, skip_empty: bool = False) -> Iterator[Chunk]:
    """Walk through the rows of a map's table; memory is bounded by the map and a chunk of geometries.

    With ``skip_empty``, cells whose estimate is exactly zero are left out.
    """
    rows = released.rows()
    if rows is not None:
        yield Chunk(line_columns(rows), _lines(rows))
        return
    tiling, columns = released.tiling, columns_of(released)
    kept = np.flatnonzero(columns["users"]) if skip_empty else np.arange(tiling.size, dtype=np.int64)
    for start in range(0, kept.size, ROWS_AT_ONCE):
        cells = kept[start : start + ROWS_AT_ONCE]
        yield Chunk(cell_columns(tiling, columns, cells), cell_outlines(tiling, cells))


def columns_of(released: ReleasedMap) -> dict[str, FloatArray]:
    """Every number of a map's cells by name; NaN throughout for those of a map of users that are not known."""
    found = {layer.name: layer.values for layer in released.columns()}
    if "users" in found:
        return {**dict.fromkeys(_ALWAYS, np.full(released.tiling.size, np.nan)), **found}
    return found


def cell_columns(tiling: Tiling, columns: dict[str, FloatArray], cells: IntArray) -> dict[str, pyarrow.Array]:
    """Code, name and numbers of some cells, null where there is none."""
    import pyarrow as pa

    names = cell_names(tiling, cells)
    numbers = {
        name: pa.array(values[cells], mask=np.isnan(values[cells])) for name, values in columns.items()
    }
    called = pa.nulls(cells.size, pa.string()) if names is None else pa.array(names)
    return {"cell": pa.array(cells), "name": called, **numbers}


def line_columns(rows: Rows) -> dict[str, pyarrow.Array]:
    """The columns of lines, null where there is none."""
    import pyarrow as pa

    return {
        name: pa.array(column, type=pa.string() if name.endswith("name") or name == "way" else None)
        for name, column in rows.columns.items()
    }


def cell_names(tiling: Tiling, cells: IntArray) -> list[str] | None:
    """H3 indices, quadkeys or the places' own names; None where cells have none."""
    if isinstance(tiling, Hexagons):
        return [f"{index:x}" for index in tiling.h3_ids[cells].tolist()]
    if isinstance(tiling, WebMercatorTiles):
        return [str(key) for key in tiling.quadkeys(cells)]
    if isinstance(tiling, Places | ZoneCells) and tiling.names is not None:
        return [tiling.names[cell] for cell in cells.tolist()]
    return None


def cell_outlines(tiling: Tiling, cells: IntArray) -> npt.NDArray[np.object_]:
    """Polygons in WGS84 degrees to the millimetre, outer rings counterclockwise, shape (cells,)."""
    import shapely

    polygons = tiling.polygons(cells)
    whole = (shapely.get_num_interior_rings(polygons) == 0).all()
    if not (whole and shapely.is_ccw(shapely.get_exterior_ring(polygons)).all()):
        # normalize() turns outer rings clockwise and holes back; the formats want the other way round.
        polygons = shapely.reverse(shapely.normalize(polygons))
    rounded = shapely.transform(polygons, lambda corners: np.round(corners, DECIMALS))
    return np.asarray(rounded, dtype=np.object_)


def _lines(rows: Rows) -> npt.NDArray[np.object_]:
    import shapely

    corners = np.round(np.stack([rows.lon, rows.lat], axis=1), DECIMALS)
    line = np.repeat(np.arange(rows.start.size - 1), np.diff(rows.start))
    return np.asarray(shapely.linestrings(corners, indices=line), dtype=np.object_)
