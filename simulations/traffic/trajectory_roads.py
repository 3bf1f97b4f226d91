"""A road graph made from trajectories: the cells that trips passed, and the steps they took between them."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

import numpy as np

from mapveil.analysis.trips import Trajectories
from mapveil.geo.tiling import Tiling
from mapveil.navigation.road_graph import RoadGraph
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.positions import trip_of_positions

_FASTEST_MS: Final = 45.0  # 160 km/h: what is faster is a mistake of the positioning


def roads_from_trajectories(
    trajectories: Trajectories, tiling: Tiling, *, least_trips: int = 1, longest_step_s: float = 90.0
) -> RoadGraph:
    """Make roads of trips: a junction per cell, a road between cells that a trip passed one after the other.

    A road takes the median time of its steps. Not private: a road that one person drove becomes part of the map. Roads
    of fewer than ``least_trips`` trips and steps of more than ``longest_step_s`` seconds are left out.
    """
    if least_trips < 1 or not longest_step_s > 0:
        raise ParameterError(
            f"least_trips must be at least 1, longest_step_s above 0, got {least_trips!r} and {longest_step_s!r}"
        )
    cell = tiling.locate(trajectories.lon, trajectories.lat)
    trip, seconds = trip_of_positions(trajectories), trajectories.seconds
    # The first position in each run of one cell.
    entered = np.concatenate([[True], (np.diff(cell) != 0) | (np.diff(trip) != 0)])[: cell.size]
    cell, trip, seconds = cell[entered], trip[entered], seconds[entered]
    took = np.diff(seconds)
    step = (np.diff(trip) == 0) & (cell[:-1] >= 0) & (cell[1:] >= 0) & (took > 0) & (took <= longest_step_s)
    tail, head, took, trip = cell[:-1][step], cell[1:][step], took[step], trip[:-1][step]
    used = np.unique(np.concatenate([tail, head]))
    centres = tiling.centres(used)
    length = _metres(centres.lon, centres.lat, np.searchsorted(used, tail), np.searchsorted(used, head))
    real = length <= _FASTEST_MS * took
    tail, head, took, trip, length = (each[real] for each in (tail, head, took, trip, length))
    road, which = np.unique(tail * tiling.size + head, return_inverse=True)
    trips = np.bincount(
        np.unique(which * (int(trip.max(initial=0)) + 1) + trip) // (int(trip.max(initial=0)) + 1)
    )
    kept = np.flatnonzero(trips >= least_trips) if road.size else road
    if kept.size == 0:
        raise InputError(
            f"{trajectories.source}: no road was taken by {least_trips} or more trips in "
            f"{tiling.region}; expected larger cells, or fewer trips a road"
        )
    used, ends = np.unique(np.stack(np.divmod(road[kept], tiling.size)), return_inverse=True)
    begin, end = ends.reshape(2, -1)
    centres = tiling.centres(used)
    return RoadGraph(
        centres.lon,
        centres.lat,
        begin,
        end,
        _metres(centres.lon, centres.lat, begin, end),
        _medians(took, which, road.size)[kept],
        source=f"roads of {PurePath(trajectories.source).name}",
    ).largest_component()


def _metres(lon: FloatArray, lat: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    from pyproj import Geod

    return np.asarray(Geod(ellps="WGS84").inv(lon[first], lat[first], lon[last], lat[last])[2])


def _medians(values: FloatArray, group: IntArray, groups: int) -> FloatArray:
    """The median of each group, the lower of two middle values."""
    order = np.lexsort((values, group))
    size = np.bincount(group, minlength=groups)
    first = np.concatenate([[0], np.cumsum(size)])[:-1]
    return values[order][first + (size - 1) // 2]
