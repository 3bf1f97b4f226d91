"""A simulated rush hour: vehicles with a way to go, and how many of them are where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mapveil.analysis.congestion import Congestion
from mapveil.analysis.road_graph import RoadGraph, Routes
from mapveil.analysis.trips import Trips
from mapveil.errors import InputError, ParameterError
from mapveil.geo.tiling import Tiling
from mapveil.local.devices import nearest_site
from mapveil.local.domain import Domain

__all__ = ["Fleet", "World", "fleet_from_trips", "make_world", "passing_times", "synthetic_fleet"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Fleet:
    """Vehicles, one trip each.

    Parameters
    ----------
    origin, destination : ndarray of int64, shape (vehicles,)
        Junctions, different ones.
    departure : ndarray of float64, shape (vehicles,)
        Seconds from the beginning.
    """

    origin: IntArray
    destination: IntArray
    departure: FloatArray

    @property
    def size(self) -> int:
        """Number of vehicles."""
        return int(self.origin.size)

    def __repr__(self) -> str:
        return f"Fleet({self.size} vehicles)"


@dataclass(frozen=True, eq=False)
class World:
    """What traffic really is: given, not changed by those who are watched.

    Parameters
    ----------
    graph : RoadGraph
        The roads.
    tiling : Tiling
        The cells that traffic is counted in.
    cell : ndarray of int64, shape (nodes,)
        The cell of each junction.
    predicted : ndarray of float64, shape (roads,)
        Seconds of each road as predicted from the past.
    users : ndarray of float64, shape (windows, cells)
        Users who are in a cell at some time of a window.
    window_s : float
        Length of a window.
    congestion : Congestion
        What users cost.
    """

    graph: RoadGraph
    tiling: Tiling
    cell: IntArray
    predicted: FloatArray
    users: FloatArray
    window_s: float
    congestion: Congestion

    @property
    def windows(self) -> int:
        """Number of windows."""
        return int(self.users.shape[0])

    def delays(self, users: FloatArray) -> FloatArray:
        """Further seconds of every road where so many users are in each cell, shape (roads,)."""
        return self.congestion.delay(users[self.cell[self.graph.head]], self.predicted)


def fleet_from_trips(
    trips: Trips,
    graph: RoadGraph,
    vehicles: int,
    *,
    period_s: float = 3600.0,
    nearest_m: float = 500.0,
    seed: int = 1,
) -> Fleet:
    """Vehicles that go where trips of a table went, drawn with replacement, departing evenly over a period.

    Run by: a simulation.

    Parameters
    ----------
    trips : Trips
        Of public or agreed data.
    graph : RoadGraph
        The roads.
    vehicles : int
        How many.
    period_s : float
        Seconds between the first and the last departure.
    nearest_m : float
        Trips with an end farther than this from every junction are left out.
    seed : int
        The same seed gives the same fleet.

    Raises
    ------
    InputError
        No trip has two different ends on the graph.
    ParameterError
        A parameter is outside its range.
    """
    _check(vehicles, period_s)
    (origin, far), (destination, also) = (
        graph.nearest_nodes(*ends) for ends in (trips.ends[:2], trips.ends[2:])
    )
    usable = np.flatnonzero((far <= nearest_m) & (also <= nearest_m) & (origin != destination))
    if usable.size == 0:
        raise InputError(f"{trips.source}: no trip begins and ends within {nearest_m:g} m of {graph.source}")
    rng = np.random.default_rng(seed)
    chosen = usable[rng.integers(0, usable.size, vehicles)]
    return Fleet(origin[chosen], destination[chosen], np.sort(rng.uniform(0.0, period_s, vehicles)))


def synthetic_fleet(
    graph: RoadGraph, vehicles: int, *, period_s: float = 3600.0, centres: int = 3, seed: int = 1
) -> Fleet:
    """Vehicles between a few centres and anywhere: most end near a centre, as in a morning. Run by: a simulation.

    Parameters
    ----------
    graph : RoadGraph
        The roads.
    vehicles, period_s, seed
        As for :func:`fleet_from_trips`.
    centres : int
        How many centres.
    """
    _check(vehicles, period_s)
    rng = np.random.default_rng(seed)
    plane = graph.plane
    middle = plane[rng.integers(0, graph.nodes, centres)]
    reach = np.ptp(plane, axis=0).mean() / 10
    pull = np.exp(-np.hypot(*(plane[:, None] - middle[None]).transpose(2, 0, 1)) / reach).sum(axis=1) + 0.02
    origin = rng.integers(0, graph.nodes, vehicles)
    destination = rng.choice(graph.nodes, vehicles, p=pull / pull.sum())
    destination = np.where(destination == origin, (destination + 1) % graph.nodes, destination)
    return Fleet(origin, destination, np.sort(rng.uniform(0.0, period_s, vehicles)))


def make_world(
    graph: RoadGraph,
    fleet: Fleet,
    tiling: Tiling,
    predicted: FloatArray,
    congestion: Congestion,
    *,
    window_s: float = 300.0,
) -> World:
    """Count the users of every cell and window: a fleet that takes the fastest ways as predicted. Run by: a simulation.

    Parameters
    ----------
    graph : RoadGraph
        The roads.
    fleet : Fleet
        Everybody on them.
    tiling : Tiling
        Cells to count in; every junction must lie in their region.
    predicted : ndarray of float64, shape (roads,)
        Seconds of each road.
    congestion : Congestion
        What users cost.
    window_s : float
        Length of a window, seconds.

    Raises
    ------
    InputError
        A junction lies outside the tiling's region.
    ParameterError
        The window is not above 0 seconds.
    """
    if not (np.isfinite(window_s) and window_s > 0):
        raise ParameterError(f"window_s is {window_s!r}; seconds above 0 are accepted")
    outside = ~tiling.region.contains(graph.lon, graph.lat)
    if outside.any():
        raise InputError(
            f"{graph.source}: {int(outside.sum())} junctions lie outside {tiling.region}; a region around all of "
            "them, or fewer roads, are accepted"
        )
    # Nobody can be reported in a cell whose centre lies outside a polygon: the nearest site stands for it.
    cell, domain = tiling.locate(graph.lon, graph.lat), Domain(tiling)
    away = ~np.isin(cell, domain.cells)
    cell[away] = domain.cells[nearest_site(domain, graph.lon[away], graph.lat[away])]
    routes = graph.routes(fleet.origin, fleet.destination, predicted)
    clock = passing_times(graph, routes, predicted, fleet.departure)
    window = (clock / window_s).astype(np.int64)
    windows = int(window.max()) + 1
    vehicle = np.repeat(np.arange(fleet.size), routes.lengths)
    # A vehicle that passes two junctions of a cell in one window is one user.
    seen = np.unique((vehicle * windows + window) * tiling.size + cell[routes.node])
    place = seen % (windows * tiling.size)
    users = np.bincount(place, minlength=windows * tiling.size).reshape(windows, tiling.size)
    return World(graph, tiling, cell, predicted, users.astype(np.float64), float(window_s), congestion)


def passing_times(graph: RoadGraph, routes: Routes, seconds: FloatArray, departure: FloatArray) -> FloatArray:
    """When each route is at each of its junctions, shape of ``routes.node``; roads take ``seconds`` each."""
    took = np.zeros(routes.node.size)
    inner = np.ones(routes.node.size, dtype=np.bool_)
    inner[routes.start[:-1]] = False
    at = np.flatnonzero(inner)
    took[at] = seconds[graph.road_between(routes.node[at - 1], routes.node[at])]
    total = np.cumsum(took)
    return np.asarray(total + np.repeat(departure - total[routes.start[:-1]], routes.lengths))


def _check(vehicles: int, period_s: float) -> None:
    if vehicles < 1 or not (np.isfinite(period_s) and period_s > 0):
        raise ParameterError(
            f"vehicles is {vehicles!r}, period_s {period_s!r}; at least 1, and seconds above 0, are accepted"
        )
