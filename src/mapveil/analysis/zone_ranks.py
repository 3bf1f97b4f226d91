r"""Ranks of zones that hold together, and zones that are called above a number.

A zone's rank set goes from one more than the number of zones that are called busier to the number of zones that are
not called quieter. Calls are by intervals of all pairwise differences that hold simultaneously with probability
1 - alpha: each has coverage :math:`1 - \alpha / \binom{Z}{2}` for Z zones, by the law of that difference.

Zones are called above or below a number where the tail beyond their estimate is at most :math:`\alpha / Z`
(Bonferroni): one of the two one-sided hypotheses holds for each zone. The law that stands for estimates from reports
bounds both tails together, so there each tail counts twice.

A zone that cuts measured cells is called only if bounds agree that hold for all zones together, wherever in those cells
the users are.

Intervals of the zones that are named are widened (:func:`mapveil.analysis.zone_totals.widened`).

Source: Klein, Wright, Wieczorek, "A joint confidence region for an overall ranking of populations" (2020).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from mapveil.analysis.zone_totals import totals_of, widened
from mapveil.inference.linear_totals import LEAST_ALPHA, half_widths, without_rounding
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.inference.zone_results import RankedZones, ZonesAbove, ZoneTotals
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.privacy.weighted_noise import WeightedNoise, half_width, tail
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import check, check_whole

_CRUMB: Final = 1e-9  # of rounding: a fraction of a zone's users
_MARGIN: Final = 1.1
_LONG: Final = WeightedNoise(np.array([1e-4]), np.array([1e-4]), np.array([0.5]))
"""Half a Laplace variable, of variance 1: far out, no noise of that variance has a longer tail."""


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
    found, calls = totals_of(asked, alpha), asked.for_calls()
    cut, low, high = _wherever(asked, found, alpha)
    deviation = np.sqrt([error.variance for error in calls.sums.errors(calls.weights)])
    each = max(alpha / max(number * (number - 1) // 2, 1), LEAST_ALPHA)
    order = np.argsort(-found.estimate, kind="stable")
    # Deviations beyond which no noise strays more often than ``each``; near, a Gaussian strays further.
    far = _MARGIN * max(half_width(_LONG, each), NormalDist().inv_cdf(1 - each / 2))
    first, last = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for at, zone in enumerate(order[:count].tolist()):
        apart = found.estimate - found.estimate[zone]
        reach = far * (deviation + deviation[zone])
        near = np.flatnonzero(np.abs(apart) <= reach)
        near = near[near != zone]
        differences = without_rounding(calls.weights[near] - calls.weights[np.full(near.size, zone)])
        apart[near] = differences @ calls.sums.estimate
        width = half_widths([error.noise for error in calls.sums.errors(differences)], each)
        called = np.abs(apart) > reach
        called[near] = np.abs(apart[near]) > width
        called &= ~(cut | cut[zone]) | (low > high[zone]) | (high < low[zone])
        first[at] = 1 + int((called & (apart > 0)).sum())
        last[at] = number - int((called & (apart < 0)).sum())
    return RankedZones(widened(found, asked, order[:count]), order[:count], first, last)


def above(
    heat: DensityMap, zones: Any, limit: float, *, alpha: float = INTERVAL_ALPHA, **read: Any
) -> ZonesAbove:
    """The zones that are called above a number of users, or below. Run by: anybody; costs no privacy.

    Parameters
    ----------
    heat : DensityMap
        A map with measurements.
    zones, read
        As for :func:`mapveil.analysis.zone_totals.totals`.
    limit : float
        Number of users.
    alpha : float
        Largest probability, over the noise, that any zone is called above or below wrongly.
    """
    return above_of(ZoneOverlay.of(heat, zones, **read), limit, alpha)


def above_of(asked: ZoneOverlay, limit: float, alpha: float = INTERVAL_ALPHA) -> ZonesAbove:
    """The zones of an overlay that are called above a number."""
    check(math.isfinite(limit) and limit >= 0, "limit", "a number of users of at least 0", limit)
    found = totals_of(asked, alpha)
    apart = found.estimate - limit
    tails = 2 if asked.of_reports else 1
    p = np.array(
        [
            tails * float(tail(error.noise, np.array([abs(x)]))[0])
            for error, x in zip(asked.for_calls().sums.errors(asked.weights), apart.tolist(), strict=True)
        ]
    )
    cut, low, high = _wherever(asked, found, alpha)
    called = (p <= alpha / p.size) & (~cut | (low > limit) | (high < limit))
    found = widened(found, asked, np.flatnonzero(called))
    return ZonesAbove(found, limit, called & (apart > 0), called & (apart < 0))


def _wherever(
    asked: ZoneOverlay, found: ZoneTotals, alpha: float
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """The zones that cut measured cells, and bounds of all zones together, wherever users are in those cells."""
    cut = found.placed > _CRUMB
    sure = totals_of(asked, max(alpha / max(cut.size, 1), LEAST_ALPHA)) if cut.any() else found
    low, high = np.where(cut, sure.certain_low, sure.low), np.where(cut, sure.certain_high, sure.high)
    return cut, low, high
