"""Vehicles of a simulated rush hour: where each goes, and when it departs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapveil.analysis.trips import Trips
from mapveil.navigation.road_graph import RoadGraph
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError


@dataclass(frozen=True, eq=False, repr=False)
class Fleet:
    """Vehicles, one trip each: junctions (different ones), and seconds from the beginning, shape (vehicles,)."""

    origin: IntArray
    destination: IntArray
    departure: FloatArray

    @property
    def size(self) -> int:
        """Number of vehicles."""
        return int(self.origin.size)

    def __repr__(self) -> str:
        return f"Fleet({self.size} vehicles)"


def fleet_from_trips(
    trips: Trips,
    graph: RoadGraph,
    vehicles: int,
    *,
    period_s: float = 3600.0,
    nearest_m: float = 500.0,
    seed: int = 1,
) -> Fleet:
    """Vehicles that go where trips of a table went, drawn with replacement, departing evenly over ``period_s`` seconds.

    Trips with an end farther than ``nearest_m`` metres from every junction are left out.
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
    """Vehicles between a few centres and anywhere: most end near a centre, as in a morning."""
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


def _check(vehicles: int, period_s: float) -> None:
    if vehicles < 1 or not (np.isfinite(period_s) and period_s > 0):
        raise ParameterError(
            f"vehicles must be at least 1, period_s above 0 seconds, got {vehicles!r} and {period_s!r}"
        )
