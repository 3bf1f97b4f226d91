"""Where a study of routes takes place: roads, travel times predicted from past trips, and vehicles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.analysis.trips import Trajectories, Trips, has_destinations, read_trajectories, read_trips
from mapveil.geo.grid import Grid
from mapveil.geo.read_points import open_table
from mapveil.navigation.congestion import congestion_named
from mapveil.navigation.read_roads import read_roads
from mapveil.navigation.road_graph import RoadGraph
from mapveil.synthetic import SEA_BOX
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.fleet import Fleet, fleet_from_trips, synthetic_fleet
from simulations.traffic.positions import select_trips
from simulations.traffic.synthetic_roads import synthetic_roads
from simulations.traffic.trajectory_roads import roads_from_trajectories
from simulations.traffic.travel_times import predict_times, traversals
from simulations.traffic.world import World, make_world

if TYPE_CHECKING:
    from mapveil.geo.region import Region
    from mapveil.geo.tables import Table
    from mapveil.geo.tiling import Tiling


_CELL_M: Final = 200.0  # of junctions made from trajectories: about the way a car goes in 15 s
_SLOWER: Final = 0.5
_HALVINGS: Final = 8
_WIDEST: Final = 256.0


class Scene(NamedTuple):
    """What a study needs before anybody drives."""

    graph: RoadGraph
    predicted: FloatArray  # seconds of each road as predicted from the past, shape (roads,)
    fleet: Fleet
    region: Region
    notes: tuple[str, ...]  # what a reader must know


def make_scene(
    source: Any = None,
    roads: str = "auto",
    region: Region | None = None,
    *,
    user: str | None = None,
    trip: str | None = None,
    vehicles: int = 3000,
    period_s: float = 3600.0,
    seed: int = 1,
) -> Scene:
    """Set the scene; it reads true trips, so nothing of it is private.

    Of a table of positions, the earlier half of the trips predicts travel times (and makes the roads, where these are
    ``"trajectories"``), and vehicles go where the later half went. Of a table of ends there is no past: roads take
    what they take when empty. ``roads`` is a file, ``"trajectories"``, ``"synthetic"``, or ``"auto"``: trajectories
    where ``source`` holds them. A region is needed unless all is synthetic.
    """
    past, driven, name = None, None, ""
    if source is not None:
        table = open_table(source)
        past, driven = _halves(table, user, trip)
        driven = driven or read_trips(table, user=user, trip=trip)
        name = Path(table.name).name
    if roads == "auto":
        roads = "trajectories" if past is not None else "synthetic"
    if region is None:
        if source is not None or roads != "synthetic":
            raise ParameterError("a region is needed; expected W,S,E,N in degrees, or a polygon file")
        from mapveil.geo.region import Region

        region = Region.from_bbox(*SEA_BOX)
    notes: tuple[str, ...] = ("vehicles are simulated: the promise is to each of them",)
    if source is not None:
        notes = (f"a study of the true trips of {name}: nothing is promised to the people in it",)
    if roads == "trajectories":
        if past is None:
            raise ParameterError(
                "roads of trajectories need a table of positions with user, trip id and time; expected "
                "synthetic or a file of roads"
            )
        graph = _of_trajectories(past, region)
        notes = (*notes, f"the roads are those that trips of {name} took")
    elif roads == "synthetic":
        graph = synthetic_roads(region, seed=seed)
    else:
        graph = read_roads(roads)
    graph = graph.within(region).largest_component()
    predicted = graph.seconds if past is None else predict_times(graph, traversals(graph, past))
    if driven is None:
        fleet = synthetic_fleet(graph, vehicles, period_s=period_s, seed=seed)
    else:
        fleet = fleet_from_trips(driven, graph, vehicles, period_s=period_s, seed=seed)
    return Scene(graph, predicted, fleet, region, notes)


def congested_world(
    scene: Scene,
    tiling: Tiling,
    kind: str = "volume",
    *,
    capacity: float | None = None,
    delay_s: float = 3.0,
    window_s: float = 300.0,
) -> World:
    """The traffic of a scene.

    ``capacity`` is in users of a cell at a time; by default such that trips on the predicted routes take half as long
    again as predicted (or half of the worst they could, if that is less), whatever the number of vehicles.
    """
    routes = scene.graph.routes(scene.fleet.origin, scene.fleet.destination, scene.predicted)

    def world(users: float) -> World:
        return make_world(
            scene.graph,
            scene.fleet,
            tiling,
            scene.predicted,
            congestion_named(kind, users, delay_s),
            window_s=window_s,
            routes=routes,
        )

    return _usual_world(world) if capacity is None else world(capacity)


def _usual_world(make: Callable[[float], World]) -> World:
    """By bisection of the capacity's logarithm: trips are the slower the smaller it is."""
    free = make(1e9)
    high = max(float(free.users.max()), 1e-6)
    low = high / _WIDEST
    worst = make(low).slowdown
    goal = 1 + min(_SLOWER, (worst - 1) / 2)
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        made = make(middle)
        if made.slowdown > goal:
            low = middle
        else:
            high = middle
    return make(high)


def _halves(
    source: Table, user: str | None, trip: str | None
) -> tuple[Trajectories, Trips] | tuple[None, None]:
    """The earlier half of the trips with their positions, and the ends of the later; nothing for a table of ends."""
    if has_destinations(source):
        return None, None
    read = read_trajectories(source, user=user, trip=trip)
    if read.count < 2:
        raise InputError(f"{read.source}: holds one trip; expected two or more")
    order = np.argsort(read.seconds[read.start[:-1]], kind="stable")
    half = read.count // 2
    past, later = (select_trips(read, np.sort(part)) for part in (order[:half], order[half:]))
    return past, later.ends()


def _of_trajectories(past: Trajectories, region: Region) -> RoadGraph:
    rows, columns = (max(1, round(side / _CELL_M)) for side in (region.height_m, region.width_m))
    return roads_from_trajectories(past, Grid(region, rows=rows, columns=columns))
