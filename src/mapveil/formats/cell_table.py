"""A map as a table of cells, in chunks: what GeoParquet and GeoJSON write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.hexagons import Hexagons
from mapveil.geo.places import Places
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil_client.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap


CELLS_AT_ONCE: Final = 1 << 16
"""Cells whose outlines are held at once."""

_DECIMALS: Final = 8  # of a degree: a millimetre


class CellChunk(NamedTuple):
    """Some cells of a map; every array has shape (cells,)."""

    cells: IntArray
    names: list[str] | None  # H3 indices, quadkeys or the places' own; None where cells have none
    users: FloatArray
    users_per_km2: FloatArray | None  # None without georeference
    lower: FloatArray | None  # None without measurements
    upper: FloatArray | None
    layers: dict[str, FloatArray]  # by name
    polygons: npt.NDArray[np.object_]  # shapely, WGS84 degrees, outer rings counterclockwise


def cell_chunks(heat: DensityMap, *, skip_empty: bool = False) -> Iterator[CellChunk]:
    """Walk through the cells in the order of their codes; memory is bounded by the chunk.

    Parameters
    ----------
    heat : DensityMap
        The map.
    skip_empty : bool
        Leave out cells whose estimate is exactly zero.
    """
    interval = heat.interval()
    layers = heat.layers()
    density = heat.per_km2() if heat.tiling.region.georeferenced else None
    kept = np.flatnonzero(heat.values) if skip_empty else np.arange(heat.tiling.size, dtype=np.int64)
    for start in range(0, kept.size, CELLS_AT_ONCE):
        cells = kept[start : start + CELLS_AT_ONCE].astype(np.int64)
        yield CellChunk(
            cells,
            cell_names(heat.tiling, cells),
            heat.values[cells],
            None if density is None else density[cells],
            None if interval is None else interval.lower[cells],
            None if interval is None else interval.upper[cells],
            {layer.name: layer.values[cells] for layer in layers},
            cell_outlines(heat.tiling, cells),
        )


def cell_names(tiling: Tiling, cells: IntArray) -> list[str] | None:
    """H3 indices, quadkeys or the places' own names; None where cells have none."""
    if isinstance(tiling, Hexagons):
        return [f"{index:x}" for index in tiling.h3_ids[cells].tolist()]
    if isinstance(tiling, WebMercatorTiles):
        return [str(key) for key in tiling.quadkeys(cells)]
    if isinstance(tiling, Places) and tiling.names is not None:
        return [tiling.names[cell] for cell in cells.tolist()]
    return None


def cell_outlines(tiling: Tiling, cells: IntArray) -> npt.NDArray[np.object_]:
    """Polygons in WGS84 degrees to the millimetre, outer rings counterclockwise, shape (cells,)."""
    import shapely

    polygons = tiling.polygons(cells)
    oriented = polygons
    if (
        not (shapely.get_num_interior_rings(polygons) == 0).all()
        or not shapely.is_ccw(shapely.get_exterior_ring(polygons)).all()
    ):
        # normalize() turns outer rings clockwise and holes back; the formats want the other way round.
        oriented = shapely.reverse(shapely.normalize(polygons))
    return np.asarray(
        shapely.transform(oriented, lambda corners: np.round(corners, _DECIMALS)), dtype=np.object_
    )
