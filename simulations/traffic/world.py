"""What traffic really is in a simulation: a fleet on the ways that are fastest by prediction, and what it costs.

Users are counted window by window; what the users of a window cost is felt in the next one. Whoever asks for the
traffic of the last window that has passed is thus told, by an exact map, what roads take now.

Deviation: appendix C.1 of Wang et al. (2022) counts users within 4.7 m of a location of a route; here those of a cell
at a time, averaged over a window, because simulated vehicles are few and a map has cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.navigation.congestion import Congestion, junction_cells
from mapveil.navigation.road_graph import RoadGraph, Routes
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from simulations.traffic.fleet import Fleet


class Stays(NamedTuple):
    """Intervals of time cut at the ends of windows."""

    which: IntArray  # the interval of each piece
    window: IntArray
    seconds: FloatArray


@dataclass(frozen=True, eq=False)
class World:
    """The true traffic: given, not changed by those who are watched."""

    graph: RoadGraph
    tiling: Tiling
    cell: IntArray  # of each junction: a user on a road counts where it ends
    predicted: FloatArray  # seconds of each road as predicted from the past
    users: FloatArray  # in a cell at a time, mean of a window, shape (windows, cells)
    window_s: float
    congestion: Congestion
    slowdown: float  # mean trip time over the predicted mean

    @property
    def windows(self) -> int:
        """Number of windows."""
        return int(self.users.shape[0])

    def delays(self, users: FloatArray) -> FloatArray:
        """Further seconds of every road where so many users are in each cell, shape (roads,)."""
        return self.congestion.delay(users[self.cell[self.graph.head]], self.predicted)

    def delays_in(self, window: int) -> FloatArray:
        """Further seconds of every road in a window: what the users of the one before cost."""
        if not 0 < window <= self.windows:
            return np.zeros(self.graph.roads)
        return self.delays(self.users[window - 1])


def make_world(
    graph: RoadGraph,
    fleet: Fleet,
    tiling: Tiling,
    predicted: FloatArray,
    congestion: Congestion,
    *,
    window_s: float = 300.0,
    routes: Routes | None = None,
) -> World:
    """Let a fleet take the routes that are fastest by prediction (or ``routes``); count its users by cell and window.

    Every junction must lie in the region of the tiling.
    """
    if not (np.isfinite(window_s) and window_s > 0):
        raise ParameterError(f"window_s must be seconds above 0, got {window_s!r}")
    cell = junction_cells(graph, tiling)
    ways = graph.routes(fleet.origin, fleet.destination, predicted) if routes is None else routes
    at, last = ways.start[:-1].copy(), ways.start[1:] - 1
    inner = np.append(np.diff(np.repeat(np.arange(fleet.size), ways.lengths)) == 0, False)
    step = np.flatnonzero(inner)
    road = np.full(ways.node.size, -1, dtype=np.int64)
    road[step] = graph.road_between(ways.node[step], ways.node[step + 1])
    where = cell[graph.head]
    clock, window = fleet.departure.copy(), 0
    users = np.zeros((16, tiling.size))
    seconds = predicted
    while (at < last).any():
        end = (window + 1) * window_s
        while (now := np.flatnonzero((at < last) & (clock < end))).size:
            taken = road[at[now]]
            begin = clock[now]
            clock[now] = begin + seconds[taken]
            stays = split_by_window(begin, clock[now], window_s)
            while stays.window.max() >= users.shape[0]:
                users = np.concatenate([users, np.zeros_like(users)])
            np.add.at(users, (stays.window, where[taken[stays.which]]), stays.seconds / window_s)
            at[now] += 1
        seconds = predicted + congestion.delay(users[min(window, users.shape[0] - 1)][where], predicted)
        window += 1
    used = int(np.flatnonzero(users.any(axis=1))[-1]) + 1
    slowdown = float((clock - fleet.departure).sum() / graph.durations(ways, predicted).sum())
    return World(graph, tiling, cell, predicted, users[:used], float(window_s), congestion, slowdown)


def split_by_window(begin: FloatArray, end: FloatArray, window_s: float) -> Stays:
    """Cut intervals of time at the ends of windows; one of no length is one piece of none.

    Examples
    --------
    >>> split_by_window(np.array([250.0, 10.0]), np.array([650.0, 20.0]), 300.0)
    Stays(which=array([0, 0, 0, 1]), window=array([0, 1, 2, 0]), seconds=array([ 50., 300.,  50.,  10.]))
    """
    first, last = (np.floor(each / window_s).astype(np.int64) for each in (begin, end))
    count = last - first + 1
    which = np.repeat(np.arange(begin.size), count)
    window = first[which] + np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
    length = np.minimum(end[which], (window + 1) * window_s) - np.maximum(begin[which], window * window_s)
    return Stays(which, window, length)
