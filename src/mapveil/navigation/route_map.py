"""A map of routes: roads, the traffic on them from a private map, and the fastest routes with and without it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.navigation.road_graph import RoadGraph
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError


class Way(NamedTuple):
    """One route through the graph, with its times."""

    name: str
    nodes: IntArray  # junctions, both ends included
    free_s: float  # seconds as predicted, without the traffic
    traffic_s: float  # seconds with the traffic of the map


@dataclass(frozen=True, eq=False)
class RouteMap:
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

    Raises
    ------
    ParameterError
        The number of delays is not that of the roads.
    """

    graph: RoadGraph
    traffic: DensityMap
    delay_s: FloatArray
    ways: Sequence[Way] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.delay_s.shape != (self.graph.roads,):
            raise ParameterError(f"delays must have shape ({self.graph.roads},), got {self.delay_s.shape}")
        object.__setattr__(self, "notes", (*self.traffic.notes, *self.notes))

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

    @property
    def version(self) -> str:
        """The version of the software that made the traffic map."""
        return self.traffic.version

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
        graph, traffic, delay_s
            As for :class:`RouteMap`.
        predicted : ndarray of float64, shape (roads,)
            Seconds of each road without the traffic.
        ends : (int, int)
            Junctions: origin and destination.
        **about
            Further fields of :class:`RouteMap`.

        Raises
        ------
        InputError
            There is no route.
        """
        ways = []
        for name, seconds in (("as predicted", predicted), ("with the traffic", predicted + delay_s)):
            nodes = graph.route(*ends, seconds)
            road = graph.road_between(nodes[:-1], nodes[1:])
            times = (float(each[road].sum()) for each in (predicted, predicted + delay_s))
            ways.append(Way(name, nodes, *times))
        return cls(graph, traffic, delay_s, ways, **about)

    def metadata(self) -> dict[str, Any]:
        """The JSON-ready record that every export carries: the traffic map's, with roads and routes."""
        return {
            **self.traffic.metadata(),
            "method": self.method,
            "parameters": {**self.traffic.parameters, **self.parameters},
            "roads": {"source": self.graph.source, "junctions": self.graph.nodes, "roads": self.graph.roads},
            "ways": [
                {
                    "name": way.name,
                    "junctions": int(way.nodes.size),
                    "free_s": round(way.free_s, 1),
                    "traffic_s": round(way.traffic_s, 1),
                }
                for way in self.ways
            ],
            "notes": list(self.notes),
        }

    def metadata_json(self) -> str:
        """:meth:`metadata` as canonical JSON."""
        return json.dumps(self.metadata(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def course(self, way: Way) -> FloatArray:
        """The corners of a route, WGS84 degrees, shape (corners, 2)."""
        shapes = self.graph.courses()
        road = self.graph.road_between(way.nodes[:-1], way.nodes[1:])
        parts = [np.arange(shapes.start[one], shapes.start[one + 1]) for one in road.tolist()]
        if not parts:
            return np.array([[self.graph.lon[way.nodes[0]], self.graph.lat[way.nodes[0]]]])
        at = np.concatenate(parts)
        return np.stack([shapes.lon[at], shapes.lat[at]], axis=1)

    def __repr__(self) -> str:
        return f"RouteMap({self.graph!r}, {self.traffic.method}, {len(self.ways)} ways)\n{self.guarantee!r}"


def most_helped(
    graph: RoadGraph, predicted: FloatArray, delay_s: FloatArray, *, pairs: int = 120, seed: int = 1
) -> tuple[int, int]:
    """An example: of some pairs of junctions, the one for which knowing the traffic saves most time.

    The pairs are drawn from the roads alone: nobody's trip is shown. Run by: anybody with the map of the traffic.

    Parameters
    ----------
    graph : RoadGraph
        The roads.
    predicted, delay_s : ndarray of float64, shape (roads,)
        Seconds of each road without the traffic, and its delay by the traffic.
    pairs : int
        Number of pairs drawn.
    seed : int
        The same seed gives the same pair.
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
