r"""Ranks of zones that hold together, and zones that are surely above a number.

A zone's rank set goes from one more than the number of zones that are surely busier to the number of zones that are
not surely quieter. "Surely" is by intervals of all pairwise differences that hold simultaneously with probability
1 - alpha: each has coverage :math:`1 - \alpha / \binom{Z}{2}` for Z zones, by the exact law of that difference.

Source: Klein, Wright, Wieczorek, "A joint confidence region for an overall ranking of populations" (2020), for rank
sets; Holm, "A simple sequentially rejective multiple test procedure" (1979), for the thresholds.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from mapveil.analysis.zone_totals import totals_of
from mapveil.inference.linear_totals import half_widths
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.inference.zone_results import RankedZones, ZonesAbove
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.privacy.weighted_noise import tail
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import check, check_whole

_LEAST_ALPHA: Final = 1e-12
_MARGIN: Final = 1.1


def top(
    heat: DensityMap, count: int, zones: Any, *, alpha: float = INTERVAL_ALPHA, **read: Any
) -> RankedZones:
    """The zones with the most users, and the ranks that each may have. Run by: anybody; costs no privacy.

    Parameters
    ----------
    heat : DensityMap
        A map with measurements.
    count : int
        Number of zones to rank, from 1.
    zones, read
        As for :func:`mapveil.analysis.zone_totals.totals`.
    alpha : float
        Largest probability, over the noise, that any rank set misses.
    """
    return top_of(ZoneOverlay.of(heat, zones, **read), count, alpha)


def top_of(asked: ZoneOverlay, count: int, alpha: float = INTERVAL_ALPHA) -> RankedZones:
    """The busiest zones of an overlay."""
    number = len(asked.zones)
    check_whole(count, "count (--top)", 1, max(number, 1))
    found = totals_of(asked, alpha)
    each = max(alpha / max(number * (number - 1) // 2, 1), _LEAST_ALPHA)
    order = np.argsort(-found.estimate, kind="stable")
    # Deviations of a sum of Laplace variables beyond which none strays more often than ``each``: one variable's.
    far = _MARGIN * math.log(1 / each) / math.sqrt(2)
    first, last = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for at, zone in enumerate(order[:count].tolist()):
        apart = found.estimate - found.estimate[zone]
        reach = far * (found.deviation + found.deviation[zone])
        near = np.flatnonzero(np.abs(apart) <= reach)
        near = near[near != zone]
        differences = asked.weights[near] - asked.weights[np.full(near.size, zone)]
        width = half_widths([error.noise for error in asked.sums.errors(differences)], each)
        surely = np.abs(apart) > reach
        surely[near] = np.abs(apart[near]) > width
        first[at] = 1 + int((surely & (apart > 0)).sum())
        last[at] = number - int((surely & (apart < 0)).sum())
    return RankedZones(found, order[:count], first, last)


def above(
    heat: DensityMap, zones: Any, limit: float, *, alpha: float = INTERVAL_ALPHA, **read: Any
) -> ZonesAbove:
    """The zones that surely have more users than a number. Run by: anybody; costs no privacy.

    Parameters
    ----------
    heat : DensityMap
        A map with measurements.
    zones, read
        As for :func:`mapveil.analysis.zone_totals.totals`.
    limit : float
        Number of users.
    alpha : float
        Largest probability, over the noise, that any zone is called above or below wrongly (Holm).
    """
    return above_of(ZoneOverlay.of(heat, zones, **read), limit, alpha)


def above_of(asked: ZoneOverlay, limit: float, alpha: float = INTERVAL_ALPHA) -> ZonesAbove:
    """The zones of an overlay that are surely above a number."""
    check(math.isfinite(limit) and limit >= 0, "limit", "a number of users of at least 0", limit)
    found = totals_of(asked, alpha)
    apart = found.estimate - limit
    # One of the two one-sided hypotheses of a zone holds, so each may have alpha / zones: Holm over zones.
    p = np.array(
        [
            float(tail(error.noise, np.array([abs(x)]))[0])
            for error, x in zip(asked.sums.errors(asked.weights), apart.tolist(), strict=True)
        ]
    )
    sure = _holm(p, alpha)
    return ZonesAbove(found, limit, sure & (apart > 0), sure & (apart < 0))


def _holm(p: FloatArray, alpha: float) -> BoolArray:
    """The hypotheses that Holm's procedure rejects."""
    order = np.argsort(p)
    held = p[order] <= alpha / np.arange(p.size, 0, -1)
    sure = np.zeros(p.size, dtype=np.bool_)
    sure[order[: int(np.argmin(np.append(held, False)))]] = True
    return sure
