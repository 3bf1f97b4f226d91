"""The ground under a map: land, lakes and borders at 1:10 million, and names of larger places, cut to a box.

Natural Earth (public domain), and GeoNames' places of 15,000 people and more (CC BY 4.0), lie in the package:
nothing is fetched. ``packaging/ground/make_ground.py`` made the file.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from shapely import STRtree

ATTRIBUTION: Final = "Ground: Natural Earth; place names: GeoNames, CC BY 4.0"
"""The line that goes with every drawing of the ground; GeoNames' licence asks for its half."""

_STEPS: Final = 10_000  # a degree, as the file counts
_FINEST: Final = 2_000  # fraction of the box's longer side below which no detail is kept


class Shapes(NamedTuple):
    """Rings or lines, WGS84 degrees."""

    lon: FloatArray  # of the corners, shape (corners,)
    lat: FloatArray
    start: IntArray  # of each ring or line in ``lon``, and the end; shape (shapes + 1,)


class PlaceNames(NamedTuple):
    """Named places, the most important first, WGS84 degrees; every array has shape (places,)."""

    lon: FloatArray
    lat: FloatArray
    name: tuple[str, ...]


class Ground(NamedTuple):
    """Land and water within a box.

    ``land`` and ``lakes`` are rings, to be filled by the even-odd rule: what is no land is sea.
    """

    box: tuple[float, float, float, float]  # west, south, east, north
    land: Shapes
    lakes: Shapes
    borders: Shapes  # between countries, lines
    places: PlaceNames


class _Drawn(NamedTuple):
    """A layer of the file, ready to be cut."""

    shapes: npt.NDArray[np.object_]  # polygons or lines of shapely
    tree: STRtree


def ground_of(box: tuple[float, float, float, float], most_places: int = 400) -> Ground:
    """Cut the ground to a box, without detail finer than a 2,000th of its longer side.

    Parameters
    ----------
    box : tuple of float
        West, south, east, north, degrees; what lies beyond 180 degrees is left out.
    most_places : int
        Number of places kept, those with the most people.
    """
    near = places_in(_places(), box)
    places = PlaceNames(near.lon[:most_places], near.lat[:most_places], near.name[:most_places])
    land, lakes, borders = (_cut(layer, box) for layer in ("land", "lakes", "borders"))
    return Ground(box, land, lakes, borders, places)


def places_in(places: PlaceNames, box: tuple[float, float, float, float]) -> PlaceNames:
    """The places within west, south, east, north."""
    west, south, east, north = box
    inside = (places.lon >= west) & (places.lon <= east) & (places.lat >= south) & (places.lat <= north)
    names = tuple(places.name[at] for at in np.flatnonzero(inside).tolist())
    return PlaceNames(places.lon[inside], places.lat[inside], names)


def cut_lines(shapes: Shapes, box: tuple[float, float, float, float]) -> Shapes:
    """The parts of lines, and of rings as lines, within west, south, east, north."""
    import shapely

    if shapes.lon.size == 0:
        return shapes
    corners = np.column_stack([shapes.lon, shapes.lat])
    line = np.repeat(np.arange(shapes.start.size - 1), np.diff(shapes.start))
    cut = shapely.clip_by_rect(np.asarray(shapely.linestrings(corners, indices=line), dtype=np.object_), *box)
    return shapes_of(np.asarray(cut, dtype=np.object_))


def shapes_of(parts: npt.NDArray[np.object_]) -> Shapes:
    """The rings of shapely's polygons, and its lines."""
    import shapely

    pieces = shapely.get_parts(parts)
    kind = shapely.get_type_id(pieces)
    rings = shapely.get_rings(pieces[kind == shapely.GeometryType.POLYGON])
    lines = pieces[(kind == shapely.GeometryType.LINESTRING) | (kind == shapely.GeometryType.LINEARRING)]
    every = np.concatenate([rings, lines])
    corners, at = shapely.get_coordinates(every, return_index=True)
    start = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(every)))]).astype(np.int64)
    return Shapes(corners[:, 0], corners[:, 1], start)


def _cut(name: str, box: tuple[float, float, float, float]) -> Shapes:
    import shapely

    layer = _layer(name)
    near = layer.shapes[np.sort(layer.tree.query(shapely.box(*box)))]
    cut = shapely.clip_by_rect(near, *box)
    tolerance = max(box[2] - box[0], box[3] - box[1]) / _FINEST
    return shapes_of(shapely.simplify(cut, tolerance, preserve_topology=False))


@cache
def _arrays() -> dict[str, npt.NDArray[Any]]:
    with (
        resources.as_file(resources.files("mapveil.geo").joinpath("ground.npz")) as path,
        np.load(path, allow_pickle=False) as file,
    ):
        return {name: file[name] for name in file.files}


@cache
def _layer(name: str) -> _Drawn:
    """Polygons of land or lakes, with their holes, or lines."""
    import shapely

    arrays = _arrays()
    first, count = arrays[f"{name}_first"], arrays[f"{name}_count"]
    planes = np.ascontiguousarray(arrays[f"{name}_steps"].transpose(0, 2, 1))
    steps = planes.reshape(2, -1).view("<i2").astype(np.int64)
    start = np.concatenate([[0], np.cumsum(count)])
    moves = np.zeros((start[-1], 2), dtype=np.int64)
    later = np.ones(start[-1], dtype=np.bool_)
    later[start[:-1]] = False
    moves[later] = steps.T
    run = np.cumsum(moves, axis=0)
    corners = (run + np.repeat(first - run[start[:-1]], count, axis=0)) / _STEPS
    line = np.repeat(np.arange(count.size), count)
    if name == "borders":
        shapes = shapely.linestrings(corners, indices=line)
    else:
        shapes = _polygons(shapely.linearrings(corners, indices=line))
    return _Drawn(shapes, shapely.STRtree(shapes))


def _polygons(rings: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """Polygons of rings: clockwise ones are outer, as shapefiles have them, others holes of the ring before."""
    import shapely

    hole = shapely.is_ccw(rings)
    polygon = np.cumsum(~hole) - 1
    outer = rings[~hole]
    made = np.asarray(shapely.polygons(outer), dtype=np.object_)
    for at in np.unique(polygon[hole]).tolist():
        made[at] = shapely.polygons(outer[at], holes=rings[hole & (polygon == at)])
    return np.asarray(shapely.make_valid(made), dtype=np.object_)


@cache
def _places() -> PlaceNames:
    """All places, the largest population first."""
    arrays = _arrays()
    lon, lat = arrays["places_at"] / _STEPS
    return PlaceNames(lon, lat, tuple(arrays["places_name"].tobytes().decode().split("\n")))
