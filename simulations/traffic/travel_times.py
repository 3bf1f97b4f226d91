r"""Travel times predicted from trips of the past.

A trip is put on the graph by its nearest junctions, and the time between two of them is shared out along the fastest
way in proportion to what its roads take when empty. Of the ratios r of observed to empty time, a road's prediction is

.. math:: \hat s = s\, \frac{\kappa\, \bar r + \sum_j r_j}{\kappa + n}

where: s is its time when empty, :math:`r_j` are its n observed ratios, :math:`\bar r` is all observed time over all
empty time, and :math:`\kappa = \sigma^2 / \tau^2` is the variance of ratios within a road over that between roads
(one-way random effects). A road without trips takes :math:`s \bar r`. The time of a route is the sum over its roads:
the Markov chain of the paper, whose states are places and whose steps do not remember more than the last one.

Source: Wang et al. (2022), appendix C.1, for predictions from past trips.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from mapveil.analysis.trips import Trajectories
from mapveil.navigation.road_graph import RoadGraph
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from simulations.traffic.positions import trip_of_positions

_RATIOS: Final = (0.2, 8.0)  # of observed to empty time: beyond, a trip stood or the way was another


class Traversals(NamedTuple):
    """Roads that trips took, and how long each took."""

    road: IntArray  # shape (traversals,)
    seconds: FloatArray


def traversals(
    graph: RoadGraph, trajectories: Trajectories, *, nearest_m: float = 150.0, longest_step_s: float = 180.0
) -> Traversals:
    """Put public trips on the graph.

    Positions farther than ``nearest_m`` metres from every junction and steps of more than ``longest_step_s`` seconds
    are left out.
    """
    if not (nearest_m > 0 and longest_step_s > 0):
        raise ParameterError(
            f"nearest_m and longest_step_s must be above 0, got {nearest_m!r} and {longest_step_s!r}"
        )
    node, far = graph.nearest_nodes(trajectories.lon, trajectories.lat)
    near = far <= nearest_m
    node, trip, seconds = node[near], trip_of_positions(trajectories)[near], trajectories.seconds[near]
    entered = np.concatenate([[True], (np.diff(node) != 0) | (np.diff(trip) != 0)])[: node.size]
    node, trip, seconds = node[entered], trip[entered], seconds[entered]
    took = np.diff(seconds)
    step = (np.diff(trip) == 0) & (took > 0) & (took <= longest_step_s)
    first, last, took = node[:-1][step], node[1:][step], took[step]
    # A pair of junctions has one fastest way, however often it was taken.
    pair, which = np.unique(first * graph.nodes + last, return_inverse=True)
    routes = graph.routes(pair // graph.nodes, pair % graph.nodes)
    after = np.ones(routes.node.size, dtype=np.bool_)
    after[routes.start[1:] - 1] = False
    begin = np.flatnonzero(after)
    road = graph.road_between(routes.node[begin], routes.node[begin + 1])
    count = routes.lengths - 1
    start = np.concatenate([[0], np.cumsum(count)])
    empty = np.add.reduceat(graph.seconds[road], start[:-1]) if road.size else np.zeros(0)
    ratio = took / empty[which]
    plausible = np.flatnonzero((ratio >= _RATIOS[0]) & (ratio <= _RATIOS[1]))
    length = count[which[plausible]]
    at = np.repeat(start[which[plausible]], length) + (
        np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    )
    taken = road[at]
    return Traversals(taken, graph.seconds[taken] * np.repeat(ratio[plausible], length))


def predict_times(graph: RoadGraph, past: Traversals) -> FloatArray:
    """Predicted seconds of every road, shape (roads,); see the module's header. Without trips, those of empty roads."""
    if past.road.size == 0:
        return graph.seconds.copy()
    ratio = past.seconds / graph.seconds[past.road]
    times = np.bincount(past.road, minlength=graph.roads)
    total = np.bincount(past.road, ratio, graph.roads)
    seen = times > 0
    overall = float(past.seconds.sum() / graph.seconds[past.road].sum())
    mean = np.divide(total, times, out=np.full(graph.roads, overall), where=seen)
    within = float(((ratio - mean[past.road]) ** 2).sum())
    between = float((times * (mean - overall) ** 2).sum())
    roads, steps = int(seen.sum()), int(times.sum())
    kappa = np.inf
    if roads > 1 and steps > roads:
        sigma = within / (steps - roads)
        effective = (steps - float((times.astype(np.float64) ** 2).sum()) / steps) / (roads - 1)
        tau = (between / (roads - 1) - sigma) / effective
        kappa = sigma / tau if tau > 0 else np.inf
    elif roads > 1:
        kappa = 1.0  # one step a road says nothing of how much they vary
    if np.isinf(kappa):
        return np.asarray(graph.seconds * overall)
    weight = kappa + times
    known = np.divide(kappa * overall + total, weight, out=np.full(graph.roads, overall), where=weight > 0)
    return np.asarray(graph.seconds * known)
