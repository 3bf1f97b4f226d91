"""How good routes under private traffic are: other ways taken, time lost, epsilon spent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapveil.navigation.road_graph import Routes
from mapveil_client.arrays import IntArray
from simulations.traffic.drive import Drives


class RouteQuality(NamedTuple):
    """Means over all trips, unless a name says otherwise."""

    relative_levenshtein: float  # edits from the true route to the private one, over the true one's junctions
    time_deviation_min: float  # absolute difference of the trips' times, minutes
    minutes_longer: float  # how much longer than with exact traffic, minutes
    updates: float  # location updates of a trip
    most_updates: int  # of any trip
    total_epsilon: float  # updates times epsilon


def route_quality(exact: Drives, private: Drives, epsilon: float) -> RouteQuality:
    r"""Compare trips under private traffic with the same trips under an exact map of it. Run by: the evaluator.

    .. math:: \frac{1}{n} \sum_i \frac{\mathrm{lev}(r_i, \hat r_i)}{|r_i|}, \qquad
        \frac{1}{n} \sum_i |t_i - \hat t_i|, \qquad \frac{\epsilon}{n} \sum_i u_i

    where: :math:`r_i` is the route of trip i under exact traffic and :math:`t_i` the time it took, hats mark private
    traffic, :math:`|r_i|` is the number of the route's junctions, and :math:`u_i` the trip's updates.

    Source: Wang et al. (2022), appendix C.1, Figures 14 to 16.

    """
    edits = edit_distances(exact.routes, private.routes)
    apart = (private.seconds - exact.seconds) / 60
    return RouteQuality(
        float((edits / exact.routes.lengths).mean()),
        float(np.abs(apart).mean()),
        float(apart.mean()),
        float(private.updates.mean()),
        int(private.updates.max()),
        float(private.updates.mean() * epsilon),
    )


def edit_distances(first: Routes, second: Routes) -> IntArray:
    """Levenshtein distances of routes, pair by pair: junctions inserted, left out or replaced.

    All pairs at once, row by row of their tables: within a row, insertions are a running minimum.

    Examples
    --------
    >>> kitten = Routes(np.array([0, 6]), np.array([10, 8, 19, 19, 4, 13]))
    >>> sitting = Routes(np.array([0, 7]), np.array([18, 8, 19, 19, 8, 13, 6]))
    >>> edit_distances(kitten, sitting).tolist()
    [3]
    """
    rows, columns = first.lengths, second.lengths
    made = np.where(rows == 0, columns, 0)
    if rows.size == 0:
        return made
    # Long routes first: rows of the table shrink as short ones end.
    order = np.argsort(-rows, kind="stable")
    width = int(columns.max(initial=0))
    inside = np.arange(width) < columns[order, None]
    letters = np.full((rows.size, width), -1, dtype=np.int64)
    letters[inside] = second.node[(second.start[:-1][order, None] + np.arange(width))[inside]]
    ramp = np.arange(width + 1)
    table = np.tile(ramp, (rows.size, 1))
    for row in range(int(rows.max(initial=0))):
        left = int(np.searchsorted(-rows[order], -row, side="left"))  # pairs with more rows than this one
        letter = first.node[first.start[:-1][order[:left]] + row]
        above = table[:left]
        replaced = above[:, :-1] + (letters[:left] != letter[:, None])
        best = np.minimum(above[:, 1:] + 1, replaced)
        best = np.concatenate([np.full((left, 1), row + 1), best], axis=1)
        table[:left] = np.minimum.accumulate(best - ramp, axis=1) + ramp
        ended = np.flatnonzero(rows[order[:left]] == row + 1)
        made[order[ended]] = table[ended, columns[order[ended]]]
    return made
