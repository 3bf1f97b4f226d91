"""A map of routes: roads, the traffic on them from a private map, and the fastest routes with and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.released import LINE_SUFFIXES, ReleasedMap
from mapveil.maps.scene import Layer, Lines, Rows, Scene, Shading
from mapveil.navigation.road_graph import RoadGraph
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

_FREE_S: Final = 1.0  # a road with less delay is drawn as free, seconds
_ON_PAGE: Final = 60_000  # roads


class Way(NamedTuple):
    """One route through the graph, with its times."""

    name: str
    nodes: IntArray  # junctions, both ends included
    free_s: float  # seconds as predicted, without the traffic
    traffic_s: float  # seconds with the traffic of the map


@dataclass(frozen=True, eq=False)
class RouteMap(ReleasedMap):
    """Roads, their delay by a private map of the traffic, and routes. Run by: the client, or anybody with the map.

    Post-processing: the guarantee is that of the traffic map; roads and ends of routes are public.

    Parameters
    ----------
    graph : RoadGraph
        The roads.
    traffic : DensityMap
        Users by cell, of one time window.
    delay_s : ndarray of float64, shape (roads,)
        Delay of each road by the traffic, seconds.
    ways : sequence of Way
        Routes, drawn on top.
    parameters : dict
        Parameters beside those of the traffic map, JSON-ready.
    notes : tuple of str
        Remarks for a reader, after those of the traffic map.
    """

    suffixes: ClassVar[tuple[str, ...]] = LINE_SUFFIXES

    graph: RoadGraph
    traffic: DensityMap
    delay_s: FloatArray
    ways: Sequence[Way] = ()

    def __post_init__(self) -> None:
        if self.delay_s.shape != (self.graph.roads,):
            raise ParameterError(f"delays must have shape ({self.graph.roads},), got {self.delay_s.shape}")
        object.__setattr__(self, "notes", (*dict.fromkeys((*self.traffic.notes, *self.notes)),))
        object.__setattr__(self, "version", self.traffic.version)
        object.__setattr__(self, "provenance", self.traffic.provenance)

    @property
    def tiling(self) -> Tiling:
        """The cells of the traffic map."""
        return self.traffic.tiling

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the traffic map."""
        return self.traffic.guarantee

    @property
    def method(self) -> str:
        """The method that estimated the traffic."""
        return f"{self.traffic.method}, traffic-aware routes"

    @classmethod
    def between(
        cls,
        graph: RoadGraph,
        traffic: DensityMap,
        predicted: FloatArray,
        delay_s: FloatArray,
        ends: tuple[int, int],
        **about: Any,
    ) -> RouteMap:
        """The fastest route as predicted, and the fastest with the traffic. Run by: the client.

        Parameters
        ----------
        graph, traffic, delay_s, **about
            Fields of :class:`RouteMap`.
        predicted : ndarray of float64, shape (roads,)
            Seconds of each road without the traffic.
        ends : (int, int)
            Origin and destination, junctions with a route between them.
        """
        ways = []
        for name, seconds in (("as predicted", predicted), ("with the traffic", predicted + delay_s)):
            nodes = graph.route(*ends, seconds)
            road = graph.road_between(nodes[:-1], nodes[1:])
            times = (float(each[road].sum()) for each in (predicted, predicted + delay_s))
            ways.append(Way(name, nodes, *times))
        return cls(graph, traffic, delay_s, ways, **about)

    def about(self) -> dict[str, Any]:
        """The traffic map's own metadata, with roads and routes."""
        return {
            **self.traffic.about(),
            "parameters": {**self.traffic.parameters, **self.parameters},
            "roads": {"junctions": self.graph.nodes, "roads": self.graph.roads},
            "ways": [
                {
                    "name": way.name,
                    "junctions": int(way.nodes.size),
                    "free_s": round(way.free_s, 1),
                    "traffic_s": round(way.traffic_s, 1),
                }
                for way in self.ways
            ],
        }

    def course(self, way: Way) -> FloatArray:
        """The corners of a route, WGS84 degrees, shape (corners, 2)."""
        road = self.graph.road_between(way.nodes[:-1], way.nodes[1:])
        if not road.size:
            return np.array([[self.graph.lon[way.nodes[0]], self.graph.lat[way.nodes[0]]]])
        shapes = self.graph.courses().of(road)
        return np.stack([shapes.lon, shapes.lat], axis=1)

    def rows(self) -> Rows:
        """One row per road, then one per way: its number or name, length, delay, and seconds of a way."""
        return self._rows(np.arange(self.graph.roads))

    def _rows(self, roads: IntArray) -> Rows:
        """The rows of some roads, and of all ways."""
        shapes, ways = self.graph.courses().of(roads), len(self.ways)
        courses = [self.course(way) for way in self.ways]
        corners = np.concatenate([np.stack([shapes.lon, shapes.lat], axis=1), *courses])
        ends = np.cumsum([*np.diff(shapes.start).tolist(), *map(len, courses)], dtype=np.int64)
        of_ways = [self.graph.road_between(way.nodes[:-1], way.nodes[1:]) for way in self.ways]
        metres = [float(self.graph.length_m[road].sum()) for road in of_ways]
        free, seconds = ([getattr(way, name) for way in self.ways] for name in ("free_s", "traffic_s"))
        delays = [slow - fast for slow, fast in zip(seconds, free, strict=True)]
        unknown = [None] * roads.size
        return Rows(
            {
                "road": [*roads.tolist(), *[None] * ways],
                "way": [*unknown, *(way.name for way in self.ways)],
                "length_m": np.round([*self.graph.length_m[roads].tolist(), *metres], 1),
                "delay_s": np.round([*self.delay_s[roads].tolist(), *delays], 1),
                "free_s": [*unknown, *np.round(free, 1).tolist()],
                "traffic_s": [*unknown, *np.round(seconds, 1).tolist()],
            },
            corners[:, 0],
            corners[:, 1],
            np.append(0, ends),
        )

    def scene(self, *, page: bool = False) -> Scene:
        """Roads by the delay on them, and the ways on top; a page has room for 60,000 roads."""
        graph, ways = self.graph, len(self.ways)
        order = np.argsort(-self.delay_s, kind="stable")[: _ON_PAGE if page else None]
        roads = np.sort(order)
        rows, blank = self._rows(roads), np.full(ways, np.nan)
        delay, speed = self.delay_s[roads], graph.length_m[roads] / graph.seconds[roads]
        cell = self.tiling.locate(graph.lon[graph.head], graph.lat[graph.head])[roads]
        users = np.where(cell < 0, np.nan, self.traffic.values[cell])
        minutes = [way.traffic_s / 60 for way in self.ways]
        lines = Lines(
            rows.lon,
            rows.lat,
            rows.start,
            {
                "Delay, s": rows.columns["delay_s"],
                "Way": [way or "" for way in rows.columns["way"]],
                "Minutes": np.append(np.full(roads.size, np.nan), minutes),
                "Estimated users in its cell": np.append(users, blank),
                "Length, m": rows.columns["length_m"],
            },
            weight=np.append(speed / speed.max(), blank),
            mark=np.append(np.full(roads.size, -1), np.arange(ways)),
            marks=tuple(
                f"{way.name}: {minute:.1f} min" for way, minute in zip(self.ways, minutes, strict=True)
            ),
            widths=(1.0, 3.5),
        )
        value = np.append(np.where(delay >= _FREE_S, delay, np.nan), blank)
        shading = Shading("log" if page else "linear")
        return Scene(
            title="Routes under private traffic",
            layers=(Layer("delay_s", "seconds of delay", "seconds of delay", value, shading),),
            lines=lines,
            reading="Roads are coloured by what the estimated traffic costs on them; pale ones cost less than a second."
            if page
            else "",
            made=(("Roads", f"{graph.nodes} junctions, {graph.roads} roads, one direction each"),),
            notes=self.notes,
        )

    def __repr__(self) -> str:
        return f"RouteMap({self.graph!r}, {self.traffic.method}, {len(self.ways)} ways)\n{self.guarantee!r}"


def most_helped(
    graph: RoadGraph, predicted: FloatArray, delay_s: FloatArray, *, pairs: int = 120, seed: int = 1
) -> tuple[int, int]:
    """An example: of ``pairs`` random pairs of junctions, the pair for which the traffic map saves most time.

    The pairs are drawn from the roads alone, not from trips. ``predicted`` and ``delay_s`` are as for
    :meth:`RouteMap.between`. Run by: anybody with the map of the traffic.
    """
    rng = np.random.default_rng(seed)
    origin = rng.integers(0, graph.nodes, pairs)
    destination = (origin + rng.integers(1, graph.nodes, pairs)) % graph.nodes
    seconds = predicted + delay_s
    blind = graph.durations(graph.routes(origin, destination, predicted), seconds)
    aware = graph.durations(graph.routes(origin, destination, seconds), seconds)
    # Where nothing is saved anywhere, the longest route.
    best = int(np.lexsort((aware, np.round(blind - aware, 3)))[-1])
    return int(origin[best]), int(destination[best])
