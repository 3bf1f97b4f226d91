"""Read a road graph: GraphML (such as osmnx writes), or an extract of OpenStreetMap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.navigation.road_graph import RoadGraph, Shapes
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from mapveil.geo.region import Region


ROAD_SUFFIXES: Final = (".graphml", ".osm", ".osm.pbf", ".pbf", ".osm.bz2", ".osm.gz")
"""Suffixes of files that can be read."""

CLASS_SPEEDS: Final[Mapping[str, float]] = {
    "motorway": 110, "motorway_link": 60, "trunk": 90, "trunk_link": 50, "primary": 60, "primary_link": 45,
    "secondary": 50, "secondary_link": 40, "tertiary": 45, "tertiary_link": 35, "unclassified": 40,
    "residential": 30, "road": 30, "living_street": 15, "service": 15,
}  # fmt: skip
"""Speed on an open road of each class of OpenStreetMap that cars may use, km/h."""

_OTHERWISE: Final = 40.0
_PER_HOUR: Final = {"mph": 1.609344, "knots": 1.852}
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(mph|knots)?")
_ONE_WAY: Final = {"yes": 1, "true": 1, "1": 1, "-1": -1, "reverse": -1, "reversible": 0, "alternating": 0}
_NO_CARS: Final = {"no", "private", "agricultural", "forestry", "delivery", "emergency"}


def read_roads(path: str | PathLike[str], region: Region | None = None) -> RoadGraph:
    """Read the roads that cars may use: their largest strongly connected component. Needs the extra ``routes``.

    Parameters
    ----------
    path : path-like
        GraphML: nodes with ``x``, ``y`` (or ``lon``, ``lat``) in degrees, edges with ``length`` in metres and, where
        known, ``travel_time`` in seconds, ``speed_kph``, ``maxspeed``, ``highway`` or ``geometry`` (WKT). Or an
        extract of OpenStreetMap: .osm, .osm.pbf, .osm.bz2.
    region : Region, optional
        Keep only the junctions inside.

    Raises
    ------
    InputError
        No such file, another format, a broken file, or no roads in it.
    MissingExtra
        The extra ``routes`` is not installed.
    """
    file = Path(path)
    name = file.name.lower()
    if not name.endswith(ROAD_SUFFIXES):
        raise InputError(f"{file}: a file of roads must end in {', '.join(ROAD_SUFFIXES)}")
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    graph = _of_graphml(file) if name.endswith(".graphml") else _of_openstreetmap(file)
    if region is not None:
        graph = graph.within(region)
    return graph.largest_component()


def _of_graphml(file: Path) -> RoadGraph:
    networkx = require("networkx", "routes")
    from xml.etree.ElementTree import ParseError

    try:
        read = networkx.read_graphml(file)
    except (ParseError, networkx.NetworkXError, ValueError, KeyError, OSError) as error:
        raise InputError(f"{file}: not readable as GraphML ({str(error).splitlines()[0]})") from error
    number = {node: at for at, node in enumerate(read.nodes)}
    places = [_place(file, node, data) for node, data in read.nodes(data=True)]
    lon, lat = np.array(places, dtype=np.float64).reshape(-1, 2).T
    one_way = bool(read.is_directed())
    tail, head, length, seconds, courses = [], [], [], [], []
    for first, last, data in read.edges(data=True):
        a, b = number[first], number[last]
        course = _course(data.get("geometry"), (lon[a], lat[a]), (lon[b], lat[b]))
        metres = _positive(data.get("length")) or _metres(course)
        speed = _positive(data.get("speed_kph")) or road_speed_kmh(data.get("maxspeed"), data.get("highway"))
        time = _positive(data.get("travel_time")) or metres / speed * 3.6
        for begin, end, points in ((a, b, course), (b, a, course[::-1]))[: 1 if one_way else 2]:
            tail.append(begin)
            head.append(end)
            length.append(metres)
            seconds.append(time)
            courses.append(points)
    return _graph(file, lon, lat, tail, head, length, seconds, courses)


def _place(file: Path, node: Any, data: Mapping[str, Any]) -> tuple[float, float]:
    for x, y in (("x", "y"), ("lon", "lat"), ("longitude", "latitude")):
        try:
            lon, lat = float(data[x]), float(data[y])
        except (KeyError, TypeError, ValueError):
            continue
        if abs(lon) <= 180 and abs(lat) <= 90:
            return lon, lat
    raise InputError(f"{file}: node {node} has no x and y in degrees (WGS84); save the graph unprojected")


def _course(wkt: Any, first: tuple[float, float], last: tuple[float, float]) -> FloatArray:
    if wkt:
        import shapely

        try:
            return np.asarray(shapely.get_coordinates(shapely.from_wkt(str(wkt))), dtype=np.float64)
        except shapely.errors.ShapelyError:
            pass  # a course that cannot be read is drawn straight
    return np.array([first, last], dtype=np.float64)


def _positive(value: Any) -> float | None:
    """The first number of a text, where it is above zero."""
    found = re.search(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", str(value)) if value is not None else None
    return float(found[0]) if found and float(found[0]) > 0 else None


def _metres(course: FloatArray) -> float:
    from pyproj import Geod

    return max(float(Geod(ellps="WGS84").line_length(course[:, 0], course[:, 1])), 0.1)


def road_speed_kmh(limit: str | None, kind: str | None) -> float:
    """Kilometres an hour from the tags ``maxspeed`` and ``highway``, by the first number of a list.

    Examples
    --------
    >>> road_speed_kmh("30 mph", None), road_speed_kmh("PT:urban", "primary"), road_speed_kmh(None, "path")
    (48.28032, 60, 40.0)
    """
    found = _NUMBER.search(str(limit)) if limit else None
    if found and float(found[1]) > 0:
        return float(found[1]) * _PER_HOUR.get(found[2] or "", 1.0)
    classes = re.findall(r"[a-z_]+", str(kind)) if kind else []
    return next((CLASS_SPEEDS[name] for name in classes if name in CLASS_SPEEDS), _OTHERWISE)


def _of_openstreetmap(file: Path) -> RoadGraph:
    osmium = require("osmium", "routes")
    refs: list[int] = []
    places: list[tuple[float, float]] = []
    start, speed, ways = [0], [], []
    try:
        reader = osmium.FileProcessor(str(file), osmium.osm.NODE | osmium.osm.WAY).with_locations()
        for way in reader.with_filter(osmium.filter.EntityFilter(osmium.osm.WAY)):
            direction = _drivable(way.tags)
            if direction is None:
                continue
            known = [(node.ref, node.lon, node.lat) for node in way.nodes if node.location.valid()]
            if len(known) < 2:
                continue
            refs += [ref for ref, _, _ in known]
            places += [(lon, lat) for _, lon, lat in known]
            start.append(len(refs))
            speed.append(road_speed_kmh(way.tags.get("maxspeed"), way.tags.get("highway")))
            ways.append(direction)
    except RuntimeError as error:
        raise InputError(
            f"{file}: not readable as OpenStreetMap data ({str(error).splitlines()[0]})"
        ) from error
    if not refs:
        raise InputError(f"{file}: no road that cars may use; extract the ways with a tag highway")
    return _split(file, *map(np.array, (refs, places, start, speed, ways)))


def _drivable(tags: Any) -> int | None:
    """1 one way, -1 the other way, 0 both; None where cars may not go."""
    kind = tags.get("highway")
    if kind not in CLASS_SPEEDS or tags.get("area") == "yes":
        return None
    if any(tags.get(key) in _NO_CARS for key in ("access", "motor_vehicle", "motorcar")):
        return None
    implied = 1 if kind == "motorway" or tags.get("junction") in ("roundabout", "circular") else 0
    return _ONE_WAY.get(tags.get("oneway", ""), implied)


def _split(
    file: Path, refs: IntArray, places: FloatArray, start: IntArray, speed: FloatArray, ways: IntArray
) -> RoadGraph:
    """Roads between junctions: points that several ways share, and ends of ways."""
    from pyproj import Geod

    node, times = np.unique(refs, return_inverse=True)[1], np.unique(refs, return_counts=True)[1]
    cut = times[node] > 1
    cut[start[:-1]] = cut[start[1:] - 1] = True
    _, _, apart = Geod(ellps="WGS84").inv(*places[:-1].T, *places[1:].T)
    apart = np.append(apart, 0.0)
    apart[start[1:] - 1] = 0.0  # from way to way
    along = np.concatenate([[0.0], np.cumsum(apart)])
    way = np.repeat(np.arange(start.size - 1), np.diff(start))
    at = np.flatnonzero(cut)
    first, last = at[:-1], at[1:]
    same = way[first] == way[last]
    first, last = first[same], last[same]
    length = np.maximum(along[last] - along[first], 0.1)
    direction, kmh = ways[way[first]], speed[way[first]]
    ahead, back = np.flatnonzero(direction >= 0), np.flatnonzero(direction <= 0)
    used, ends = np.unique(node[np.concatenate([first, last])], return_inverse=True)
    begin, end = ends[: first.size], ends[first.size :]
    where = np.zeros((int(node.max()) + 1, 2))
    where[node] = places
    courses = [places[a : b + 1] for a, b in zip(first[ahead], last[ahead], strict=True)]
    courses += [places[a : b + 1][::-1] for a, b in zip(first[back], last[back], strict=True)]
    both = np.concatenate([ahead, back])
    tail, head = np.concatenate([begin[ahead], end[back]]), np.concatenate([end[ahead], begin[back]])
    seconds = length[both] / kmh[both] * 3.6
    return _graph(file, where[used, 0], where[used, 1], tail, head, length[both], seconds, courses)


def _graph(
    file: Path,
    lon: FloatArray,
    lat: FloatArray,
    tail: npt.ArrayLike,
    head: npt.ArrayLike,
    length: npt.ArrayLike,
    seconds: npt.ArrayLike,
    courses: list[FloatArray],
) -> RoadGraph:
    corners = np.concatenate(courses) if courses else np.zeros((0, 2))
    start = np.cumsum([0, *(len(course) for course in courses)], dtype=np.int64)
    shapes = Shapes(start, corners[:, 0], corners[:, 1])
    first, last = (np.asarray(each, dtype=np.int64) for each in (tail, head))
    metres, times = (np.asarray(each, dtype=np.float64) for each in (length, seconds))
    return RoadGraph(lon, lat, first, last, metres, times, shapes, file.name)
