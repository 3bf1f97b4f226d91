"""Fastest routes under a private map of the traffic: one function for the command and for Python."""

from dataclasses import replace
from typing import Final

from mapveil.maps.density_map import DensityMap
from mapveil.navigation.congestion import congestion_named, junction_cells
from mapveil.navigation.road_graph import RoadGraph
from mapveil.navigation.route_map import RouteMap, most_helped
from mapveil_client.errors import InputError, ParameterError

Ends = tuple[tuple[float, float], tuple[float, float]]
"""Longitude and latitude of origin and destination, degrees."""

_REACH_M: Final = 2000.0  # an end farther from every junction is outside the roads, metres


def routes(
    graph: RoadGraph,
    traffic: DensityMap,
    ends: Ends | None = None,
    *,
    active: float | None = None,
    congestion: str = "volume",
    capacity: float = 50.0,
    delay: float = 3.0,
) -> RouteMap:
    """Find the fastest routes with and without the traffic of a private map. Run by: anybody with the map.

    Parameters
    ----------
    graph : RoadGraph
        The roads, in the region of the map.
    traffic : DensityMap
        Users by cell, of one time window.
    ends : ((float, float), (float, float)), optional
        Longitude and latitude of origin and destination, degrees; by default an example that the traffic delays.
    active : float, optional
        Number of users on the road, to which the map is scaled; the map's total by default.
    congestion : str
        ``"volume"``: the delay grows with the users of a cell; ``"step"``: it is fixed beyond ``capacity``.
    capacity : float
        Users of a cell at a time that its roads carry.
    delay : float
        Delay beyond ``capacity`` with ``"step"``, seconds.

    Raises
    ------
    ParameterError
        A number outside its range, or an unknown model.
    InputError
        The map has no users to scale, or an end is outside the roads.
    """
    model = congestion_named(congestion, capacity, delay)
    values = traffic.values.clip(min=0)
    if active is not None:
        if not 0 < active < float("inf"):
            raise ParameterError(f"active must be above 0, got {active:g}")
        if not values.sum() > 0:
            raise InputError("the map of the traffic has no users to scale to active (--active)")
        traffic = replace(traffic, values=values * (active / values.sum()))
    cell = junction_cells(graph, traffic.tiling)
    delay_s = model.delay(traffic.values[cell[graph.head]], graph.seconds)
    between = most_helped(graph, graph.seconds, delay_s) if ends is None else nearest_ends(graph, ends)
    about = {"congestion": congestion, "capacity": capacity, "active": active}
    return RouteMap.between(graph, traffic, graph.seconds, delay_s, between, parameters=about)


def nearest_ends(graph: RoadGraph, ends: Ends) -> tuple[int, int]:
    """The junctions nearest to two locations; an ``InputError`` where one is outside the roads, or both are one."""
    node, far = graph.nearest_nodes(*zip(*ends, strict=True))
    for (lon, lat), metres in zip(ends, far.tolist(), strict=True):
        if not metres <= _REACH_M:
            raise InputError(f"{lon:g},{lat:g} is outside the roads of {graph.source}: {metres:.0f} m away")
    if node[0] == node[1]:
        raise InputError(
            f"origin and destination (--from, --to) are at one junction of {graph.source}; choose locations "
            "farther apart"
        )
    return int(node[0]), int(node[1])
