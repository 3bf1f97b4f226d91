"""A road graph: junctions, the directed roads between them, and the fastest routes.

The graph must be public: a map of roads reveals nobody, but a graph made from trajectories reveals those who drove.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.plane import EqualAreaCylinder

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.spatial import cKDTree

    from mapveil.geo.region import Region


_LEAST_SECONDS: Final = 0.05
_CHUNK_ENTRIES: Final = 1 << 24


class Shapes(NamedTuple):
    """The course of each road, both ends included, WGS84 degrees."""

    start: IntArray  # of each road among the corners, and the end; shape (roads + 1,)
    lon: FloatArray
    lat: FloatArray

    def of(self, roads: IntArray) -> Shapes:
        """The courses of some roads."""
        length = np.diff(self.start)[roads]
        start = np.concatenate([[0], np.cumsum(length)])
        at = np.repeat(self.start[roads] - start[:-1], length) + np.arange(int(start[-1]))
        return Shapes(start, self.lon[at], self.lat[at])


class Routes(NamedTuple):
    """Routes through the graph, one after the other."""

    start: IntArray  # of each route among the nodes, and the end; shape (routes + 1,)
    node: IntArray

    def nodes(self, route: int) -> IntArray:
        """The junctions of one route, first and last included."""
        return self.node[self.start[route] : self.start[route + 1]]

    @property
    def lengths(self) -> IntArray:
        """Junctions of each route, shape (routes,)."""
        return np.diff(self.start)


@dataclass(frozen=True, eq=False)
class RoadGraph:
    """Junctions and roads. Of several roads between two junctions the fastest is kept; loops are left out.

    Parameters
    ----------
    lon, lat : ndarray of float64, shape (nodes,)
        Junctions, WGS84 degrees.
    tail, head : ndarray of int64, shape (roads,)
        First and last junction of each road; one direction each.
    length_m : ndarray of float64, shape (roads,)
        Length, metres.
    seconds : ndarray of float64, shape (roads,)
        Time on the empty road, seconds.
    shapes : Shapes, optional
        Courses of the roads; straight lines by default.
    source : str
        Name of the graph in messages.

    Raises
    ------
    InputError
        There is no road, a road without a junction at either end, or one with a negative length or time.

    Examples
    --------
    >>> square = RoadGraph(np.array([0.0, 0.01, 0.01]), np.array([0.0, 0.0, 0.01]), np.array([0, 1, 0]),
    ...                    np.array([1, 2, 2]), np.array([1113.0, 1106, 1570]), np.array([60.0, 60, 150]))
    >>> square.route(0, 2).tolist()
    [0, 1, 2]
    """

    lon: FloatArray
    lat: FloatArray
    tail: IntArray
    head: IntArray
    length_m: FloatArray
    seconds: FloatArray
    shapes: Shapes | None = None
    source: str = "roads"
    _key: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        nodes, tail, head = self.lon.size, np.asarray(self.tail), np.asarray(self.head)
        if tail.size == 0 or nodes < 2:
            raise InputError(f"{self.source}: no roads")
        if min(tail.min(), head.min()) < 0 or max(tail.max(), head.max()) >= nodes:
            raise InputError(f"{self.source}: the ends of a road must be junctions, 0 to {nodes - 1}")
        for name, values in (("length", self.length_m), ("time", self.seconds)):
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise InputError(f"{self.source}: the {name} of a road must be at least 0")
        seconds = np.maximum(self.seconds, _LEAST_SECONDS)
        order = np.lexsort((seconds, head, tail))
        key = tail[order] * nodes + head[order]
        kept = order[np.concatenate([[True], np.diff(key) != 0])]
        kept = kept[tail[kept] != head[kept]]
        if kept.size == 0:
            raise InputError(f"{self.source}: no road between two different junctions")
        for name, values in {
            "tail": tail[kept].astype(np.int64),
            "head": head[kept].astype(np.int64),
            "length_m": np.asarray(self.length_m, dtype=np.float64)[kept],
            "seconds": np.asarray(seconds, dtype=np.float64)[kept],
            "shapes": None if self.shapes is None else self.shapes.of(kept),
            "_key": tail[kept].astype(np.int64) * nodes + head[kept],
        }.items():
            object.__setattr__(self, name, values)

    @property
    def nodes(self) -> int:
        """Number of junctions."""
        return int(self.lon.size)

    @property
    def roads(self) -> int:
        """Number of roads, one direction each."""
        return int(self.tail.size)

    def road_between(self, tail: npt.ArrayLike, head: npt.ArrayLike) -> IntArray:
        """The road from one junction to another, -1 where there is none."""
        key = np.asarray(tail, dtype=np.int64) * self.nodes + np.asarray(head, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._key, key), self.roads - 1)
        return np.where(self._key[at] == key, at, -1)

    def matrix(self, seconds: FloatArray | None = None) -> csr_array:
        """The roads as a sparse matrix of seconds, shape (nodes, nodes)."""
        from scipy.sparse import csr_array

        weight = self.seconds if seconds is None else np.maximum(seconds, _LEAST_SECONDS)
        first = np.searchsorted(self.tail, np.arange(self.nodes + 1))
        return csr_array((weight, self.head, first), shape=(self.nodes, self.nodes))

    def route(self, origin: int, destination: int, seconds: FloatArray | None = None) -> IntArray:
        """The junctions of the fastest route, both ends included; see :meth:`routes`. Run by: the client."""
        return self.routes(np.array([origin]), np.array([destination]), seconds).nodes(0)

    def routes(self, origins: IntArray, destinations: IntArray, seconds: FloatArray | None = None) -> Routes:
        """The fastest routes between many pairs of junctions, by one search (Dijkstra) from each destination.

        Parameters
        ----------
        origins, destinations : ndarray of int64, shape (routes,)
            Junctions.
        seconds : ndarray of float64, shape (roads,), optional
            Time on each road; on the empty road by default.

        Raises
        ------
        InputError
            Two junctions have no route.
        """
        from scipy.sparse.csgraph import dijkstra

        for ends in (origins, destinations):
            if ends.size and not (ends.min() >= 0 and ends.max() < self.nodes):
                raise ParameterError(f"the ends of a route must be junctions, 0 to {self.nodes - 1}")
        found: list[tuple[IntArray, IntArray]] = []
        goals, goal = np.unique(destinations, return_inverse=True)
        by_goal = np.argsort(goal, kind="stable")
        size = max(1, _CHUNK_ENTRIES // self.nodes)
        reverse = self.matrix(seconds).T.tocsr()
        for first in range(0, goals.size, size):
            # Towards a goal every junction has one next one: a search backwards from each goal.
            sources = goals[first : first + size]
            after = np.asarray(dijkstra(reverse, indices=sources, return_predecessors=True)[1])
            low, high = np.searchsorted(goal[by_goal], [first, first + size])
            who = by_goal[low:high]
            found.append(_walk(origins[who], destinations[who], goal[who] - first, after, who))
        route = np.concatenate([who for who, _ in found]) if found else np.zeros(0, dtype=np.int64)
        node = np.concatenate([nodes for _, nodes in found]) if found else np.zeros(0, dtype=np.int64)
        if (node < 0).any():
            raise InputError(f"{self.source}: no route between two of the junctions asked for")
        order = np.argsort(route, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(route, minlength=origins.size))])
        return Routes(start, node[order])

    def durations(self, routes: Routes, seconds: FloatArray | None = None) -> FloatArray:
        """Seconds of each route, shape (routes,), where each road takes ``seconds`` (or is empty)."""
        weight = self.seconds if seconds is None else seconds
        took = np.zeros(routes.node.size + 1)
        at = np.delete(np.arange(routes.node.size), routes.start[1:] - 1)
        took[at + 1] = weight[self.road_between(routes.node[at], routes.node[at + 1])]
        along = np.cumsum(took)
        return np.asarray(along[routes.start[1:] - 1] - along[routes.start[:-1]])

    @cached_property
    def plane(self) -> FloatArray:
        """The junctions in metres of an equal-area cylinder around their middle, shape (nodes, 2)."""
        return np.stack(self._projection.project(self.lon, self.lat), axis=1)

    @cached_property
    def _projection(self) -> EqualAreaCylinder:
        return EqualAreaCylinder(
            float(self.lat.min() + self.lat.max()) / 2, float(self.lon.min() + self.lon.max()) / 2
        )

    @cached_property
    def _tree(self) -> cKDTree:
        from scipy.spatial import cKDTree

        return cKDTree(self.plane)

    def nearest_nodes(self, lon: npt.ArrayLike, lat: npt.ArrayLike) -> tuple[IntArray, FloatArray]:
        """The nearest junction of each place (degrees), and its distance in metres."""
        at = np.stack(self._projection.project(np.asarray(lon), np.asarray(lat)), axis=-1)
        far, near = self._tree.query(at)
        return np.asarray(near, dtype=np.int64), np.asarray(far, dtype=np.float64)

    def within(self, region: Region) -> RoadGraph:
        """The roads both of whose ends lie in a region; an error where there are none."""
        inside = region.contains(self.lon, self.lat)
        kept = inside[self.tail] & inside[self.head]
        if not kept.any():
            raise InputError(f"{self.source}: no road lies in the region {region}")
        used = np.zeros(self.nodes, dtype=np.bool_)
        used[self.tail[kept]] = used[self.head[kept]] = True
        return self if kept.all() and used.all() else self._part(used, np.flatnonzero(kept))

    def largest_component(self) -> RoadGraph:
        """The largest strongly connected component; an error where it is a single junction."""
        from scipy.sparse.csgraph import connected_components

        _, part = connected_components(self.matrix(), connection="strong")
        kept = part == np.argmax(np.bincount(part))
        if kept.all():
            return self
        roads = np.flatnonzero(kept[self.tail] & kept[self.head])
        if roads.size == 0:
            raise InputError(f"{self.source}: no two junctions can be reached from each other")
        return self._part(kept, roads)

    def _part(self, junctions: npt.NDArray[np.bool_], roads: IntArray) -> RoadGraph:
        number = np.cumsum(junctions) - 1
        return replace(
            self,
            lon=self.lon[junctions],
            lat=self.lat[junctions],
            tail=number[self.tail[roads]],
            head=number[self.head[roads]],
            length_m=self.length_m[roads],
            seconds=self.seconds[roads],
            shapes=None if self.shapes is None else self.shapes.of(roads),
        )

    def courses(self) -> Shapes:
        """The roads' courses, straight lines where none are known."""
        if self.shapes is not None:
            return self.shapes
        ends = np.stack([self.tail, self.head], axis=1).ravel()
        return Shapes(np.arange(self.roads + 1) * 2, self.lon[ends], self.lat[ends])

    def __repr__(self) -> str:
        return f"RoadGraph({self.source}: {self.nodes} junctions, {self.roads} roads)"


def _walk(
    origins: IntArray, destinations: IntArray, row: IntArray, after: npt.NDArray[np.int32], who: IntArray
) -> tuple[IntArray, IntArray]:
    """All routes at once, junction by junction; -1 where there is no next one."""
    routes, nodes = [who], [origins]
    at, left = origins, np.flatnonzero(origins != destinations)
    while left.size:
        step = after[row[left], at[left]].astype(np.int64)
        step = np.where(step < 0, -1, step)
        routes.append(who[left])
        nodes.append(step)
        at = at.copy()
        at[left] = step
        left = left[(step >= 0) & (step != destinations[left])]
    return np.concatenate(routes), np.concatenate(nodes)
