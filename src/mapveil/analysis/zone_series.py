"""Totals of zones in every window of a series, with intervals. Asking is post-processing: it costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapveil.analysis.zone_totals import moved, totals_of
from mapveil.geo.zones import Zones
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.inference.zone_results import WINDOW_COLUMNS, WindowTotals
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.maps.series_map import SeriesMap


def totals_over_time(
    series: SeriesMap, zones: Any, *, alpha: float = INTERVAL_ALPHA, **read: Any
) -> WindowTotals:
    """The users of every zone in every window. Run by: anybody who holds the series; costs no privacy.

    Each interval holds for one zone in one window; a line that leaves its band somewhere is expected of many windows.

    Parameters
    ----------
    series : SeriesMap
        A series with measurements.
    zones
        Polygons, a frame, GeoJSON or a file; see :meth:`mapveil.geo.zones.Zones.read`, also for ``read``.
    alpha : float
        Largest probability, over the noise, that the interval of one zone in one window misses; from 1e-12 to 0.5.

    Raises
    ------
    InputError
        The series cannot be asked, or the zones cannot be used.
    """
    asked = Zones.read(zones, **read)
    overlay = first = ZoneOverlay.of(series.window(0), asked)
    found = [totals_of(first, alpha)]
    for at in range(1, len(series)):
        overlay = overlay.at(series.window(at))
        alike = overlay.weights is first.weights and overlay.sums.has_errors_of(first.sums)
        found.append(moved(found[0], overlay) if alike else totals_of(overlay, alpha))
    answers = {name: np.stack([getattr(each, name) for each in found], axis=1) for name in WINDOW_COLUMNS}
    return WindowTotals(found[0].zones, series.windows, alpha, **answers)
