"""Roads under private traffic, and ways through them: a map with exports and pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.software import software_version
from mapveil.navigation.road_graph import RoadGraph
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from os import PathLike


ROUTE_SUFFIXES: Final = (".geojson", ".json", ".png", ".html")
"""What :meth:`RouteMap.save` can write, by the suffix of the file."""

_DECIMALS: Final = 7


class Way(NamedTuple):
    """One way through the graph."""

    name: str
    nodes: IntArray  # junctions, both ends included
    free_s: float  # seconds as predicted, without the traffic
    traffic_s: float  # seconds with the traffic of the map


@dataclass(frozen=True, eq=False)
class RouteMap:
    """Roads, the traffic on them as a private map has it, and ways. Run by: the client, or anybody who holds the map.

    Post-processing: it promises what the map of the traffic promises; the roads and the ends of the ways are whose
    they are.

    Parameters
    ----------
    graph : RoadGraph
        The roads.
    traffic : DensityMap
        Users by cell, of one window.
    delay_s : ndarray of float64, shape (roads,)
        What the traffic costs on each road.
    ways : sequence of Way
        Drawn on top.
    parameters : dict
        Further ones than the traffic's, JSON-ready.
    results : sequence of dict
        Rows of an evaluation, JSON-ready.
    notes : tuple of str
        What a reader must know, beside the traffic's notes.

    Raises
    ------
    ParameterError
        As many delays as roads there must be.
    """

    graph: RoadGraph
    traffic: DensityMap
    delay_s: FloatArray
    ways: Sequence[Way] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    results: Sequence[dict[str, Any]] = ()
    notes: tuple[str, ...] = ()
    version: str = field(default_factory=software_version)

    def __post_init__(self) -> None:
        if self.delay_s.shape != (self.graph.roads,):
            raise ParameterError(
                f"delays have shape {self.delay_s.shape}; ({self.graph.roads},) is accepted for {self.graph!r}"
            )
        object.__setattr__(self, "notes", (*self.traffic.notes, *self.notes))

    @property
    def tiling(self) -> Tiling:
        """The cells of the traffic."""
        return self.traffic.tiling

    @property
    def guarantee(self) -> Guarantee:
        """What was promised to those in the traffic."""
        return self.traffic.guarantee

    @property
    def method(self) -> str:
        """How the traffic was estimated."""
        return f"{self.traffic.method}, traffic-aware routes"

    @classmethod
    def between(
        cls,
        graph: RoadGraph,
        traffic: DensityMap,
        predicted: FloatArray,
        delay_s: FloatArray,
        origin: int,
        destination: int,
        **about: Any,
    ) -> RouteMap:
        """The fastest way as predicted and the fastest with the traffic. Run by: the client.

        Parameters
        ----------
        graph, traffic, delay_s
            As for :class:`RouteMap`.
        predicted : ndarray of float64, shape (roads,)
            Seconds of each road without the traffic.
        origin, destination : int
            Junctions.
        **about
            Further fields of :class:`RouteMap`.

        Raises
        ------
        InputError
            There is no way.
        """
        ways = []
        for name, seconds in (("as predicted", predicted), ("with the traffic", predicted + delay_s)):
            nodes = graph.route(origin, destination, seconds)
            road = graph.road_between(nodes[:-1], nodes[1:])
            ways.append(
                Way(
                    name,
                    nodes,
                    float(predicted[road].sum()),
                    float((predicted + delay_s)[road].sum()),
                )
            )
        return cls(graph, traffic, delay_s, ways, **about)

    def metadata(self) -> dict[str, Any]:
        """The JSON-ready record that every export carries."""
        return {
            "software": "mapveil",
            "version": self.version,
            "method": self.method,
            "parameters": {**self.traffic.parameters, **self.parameters},
            "guarantee": self.guarantee.to_dict(),
            "guarantee_in_words": self.guarantee.in_words(),
            "tiling": self.tiling.to_dict(),
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
            "results": list(self.results),
            "notes": list(self.notes),
        }

    def metadata_json(self) -> str:
        """:meth:`metadata` as canonical JSON."""
        return json.dumps(self.metadata(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def course(self, way: Way) -> FloatArray:
        """The corners of a way, WGS84 degrees, shape (corners, 2)."""
        shapes = self.graph.courses()
        road = self.graph.road_between(way.nodes[:-1], way.nodes[1:])
        parts = [np.arange(shapes.start[one], shapes.start[one + 1]) for one in road.tolist()]
        if not parts:
            return np.array([[self.graph.lon[way.nodes[0]], self.graph.lat[way.nodes[0]]]])
        at = np.concatenate(parts)
        return np.stack([shapes.lon[at], shapes.lat[at]], axis=1)

    def to_geojson(self, path: str | PathLike[str]) -> None:
        """Write roads and ways as lines (RFC 7946), the metadata as the foreign member ``mapveil``.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        import shapely

        shapes = self.graph.courses()
        road = np.repeat(np.arange(self.graph.roads), np.diff(shapes.start))
        corners = np.round(np.stack([shapes.lon, shapes.lat], axis=1), _DECIMALS)
        lines = shapely.to_geojson(shapely.linestrings(corners, indices=road))
        features = [
            f'{{"type":"Feature","geometry":{line},"properties":{{"road":{number},"length_m":{length:.1f},'
            f'"delay_s":{delay:.1f}}}}}'
            for number, (line, length, delay) in enumerate(
                zip(lines, self.graph.length_m.tolist(), self.delay_s.tolist(), strict=True)
            )
        ]
        for way in self.ways:
            line = shapely.to_geojson(shapely.linestrings(np.round(self.course(way), _DECIMALS)))
            about = {"way": way.name, "free_s": round(way.free_s, 1), "traffic_s": round(way.traffic_s, 1)}
            features.append(f'{{"type":"Feature","geometry":{line},"properties":{json.dumps(about)}}}')
        with atomic_path(path) as place, place.open("w", encoding="utf-8", newline="\n") as file:
            file.write('{"type":"FeatureCollection","mapveil":' + self.metadata_json() + ',"features":[\n')
            file.write(",\n".join(features))
            file.write("\n]}\n")

    def save(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write the format that the suffix names: .geojson, .json, .png or .html.

        Raises
        ------
        InputError
            Another suffix, or a file that cannot be written.
        MissingExtra
            The format needs an extra that is not installed.
        """
        suffix = Path(path).suffix.lower()
        if suffix in (".png", ".html"):
            from mapveil.navigation.route_picture import write_route_page, write_route_png

            (write_route_png if suffix == ".png" else write_route_page)(self, path, title=title)
        elif suffix in ROUTE_SUFFIXES:
            self.to_geojson(path)
        else:
            raise InputError(f"{path}: no format has that suffix; accepted: {', '.join(ROUTE_SUFFIXES)}")

    def __repr__(self) -> str:
        return f"RouteMap({self.graph!r}, {self.traffic.method}, {len(self.ways)} ways)\n{self.guarantee!r}"


def most_helped(
    graph: RoadGraph, predicted: FloatArray, delay_s: FloatArray, *, pairs: int = 120, seed: int = 1
) -> tuple[int, int]:
    """Two junctions, of some pairs drawn at random, between which knowing the traffic saves most time: an example.

    Drawn from the roads alone: nobody's trip is shown. Run by: anybody who holds the map of the traffic.

    Parameters
    ----------
    graph : RoadGraph
        The roads.
    predicted, delay_s : ndarray of float64, shape (roads,)
        Seconds of each road without the traffic, and what the traffic adds.
    pairs : int
        How many pairs are drawn.
    seed : int
        The same seed gives the same pair.
    """
    rng = np.random.default_rng(seed)
    origin = rng.integers(0, graph.nodes, pairs)
    destination = (origin + rng.integers(1, graph.nodes, pairs)) % graph.nodes
    seconds = predicted + delay_s
    blind = graph.durations(graph.routes(origin, destination, predicted), seconds)
    aware = graph.durations(graph.routes(origin, destination, seconds), seconds)
    # Where nothing is saved anywhere, the longest way.
    best = int(np.lexsort((aware, np.round(blind - aware, 3)))[-1])
    return int(origin[best]), int(destination[best])
