r"""Users in zones, from the measurements of a released map: estimates, intervals of the noise, and brackets.

A zone that cuts a leaf (a finest measured group of cells) asks for something that nobody measured: where in the leaf
people are. So three things are kept apart. The *estimate* and its interval weigh a cut leaf by the fraction of its
cells in the zone, and in a window of a series by the fraction of its users of all windows: the interval holds for that
weighted sum, over the noise alone. The *bracket* goes from the leaves wholly inside to all that the zone touches, and
is shown instead of the interval where the model places more than half of an estimate. ``shown`` is where the map, which
is a model below the leaves, puts people.

.. math:: \hat q = w^T \hat x, \qquad \hat q \pm t, \qquad \Pr\Big[\Big|\sum_k a_k \eta_k\Big| > t\Big] \le \alpha

where: w are the fractions of the leaves, :math:`\hat x` the least-squares estimates of their users, a the coefficients
of the noisy sums, :math:`\eta_k` their noises, :math:`1 - \alpha` the coverage (.95 by default) and t the half width of
the interval, which is exact for the law of their noise (:mod:`mapveil.privacy.weighted_noise`) where a map has one
measurement of cells; of several, groups and weights may follow from noisy sums, and
``python -m benchmarks.zone_coverage`` measures the coverage. Asking is post-processing of what epsilon already paid
for: it costs nothing. Intervals come from the noisy sums, so a bound may be negative; only the displayed estimate is
raised to 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.geo.zones import Zones
from mapveil.inference.linear_totals import (
    LinearSums,
    Total,
    half_widths,
    half_widths_of_chosen,
    placed_fraction,
)
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.inference.zone_results import ZoneTotals
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def total(heat: DensityMap, zone: Any, *, repair: bool = False) -> Total:
    """The users of one zone. Run by: anybody who holds the map; costs no privacy.

    Parameters
    ----------
    heat : DensityMap
        A map with measurements.
    zone : polygon, mapping or frame
        One polygon or multipolygon, whose parts do not overlap; as for :meth:`mapveil.geo.zones.Zones.read`.
    repair : bool
        Repair an invalid polygon.

    Raises
    ------
    InputError
        The map cannot be asked, the zone cannot be used, or none of it lies in the map.
    """
    overlay = ZoneOverlay.of(heat, zone, repair=repair)
    check(len(overlay.zones) == 1, "zone", "one zone; totals() takes several", len(overlay.zones))
    return overlay.total(0)


def totals(heat: DensityMap, zones: Any, *, alpha: float = INTERVAL_ALPHA, **read: Any) -> ZoneTotals:
    """The users of every zone. Run by: anybody who holds the map; costs no privacy.

    Parameters
    ----------
    heat : DensityMap
        A map with measurements.
    zones
        Polygons, a frame, GeoJSON or a file; see :meth:`mapveil.geo.zones.Zones.read`, also for ``read``.
    alpha : float
        Largest probability, over the noise, that one given zone's interval misses; from 1e-12 to 0.5.

    Raises
    ------
    InputError
        The map cannot be asked, or the zones cannot be used.
    """
    return totals_of(ZoneOverlay.of(heat, zones, **read), alpha)


def totals_of(overlay: ZoneOverlay, alpha: float = INTERVAL_ALPHA) -> ZoneTotals:
    """The totals of an overlay."""
    weights = overlay.weights, overlay.inside, overlay.touched
    return weighted_totals(overlay.zones, overlay.sums, weights, overlay.shown, overlay.covered, alpha)


def weighted_totals(
    zones: Zones,
    sums: LinearSums,
    weights: tuple[csr_array, csr_array, csr_array],
    shown: FloatArray,
    covered: FloatArray,
    alpha: float,
) -> ZoneTotals:
    """Totals of weighted leaves: of their fractions in each zone, of leaves wholly inside, and of all touched."""
    estimate, inside, touched = (np.asarray(each @ sums.estimate) for each in weights)
    errors = [list(sums.errors(each)) for each in weights]
    width, below, above = (half_widths([one.noise for one in each], alpha) for each in errors)
    deviation = np.sqrt([each.variance for each in errors[0]])
    facts = placed_fraction(estimate, inside), shown, covered, inside - below, touched + above
    return ZoneTotals(
        zones, alpha, estimate, estimate - width, estimate + width, deviation, inside, touched, *facts
    )


def moved(found: ZoneTotals, overlay: ZoneOverlay) -> ZoneTotals:
    """The totals of another overlay, whose weights and laws of noise are those of the overlay of ``found``."""
    weights = overlay.weights, overlay.inside, overlay.touched
    estimate, inside, touched = (np.asarray(each @ overlay.sums.estimate) for each in weights)
    return found._replace(
        estimate=estimate,
        low=estimate - (found.estimate - found.low),
        high=estimate + (found.high - found.estimate),
        inside=inside,
        touched=touched,
        placed=placed_fraction(estimate, inside),
        shown=overlay.shown,
        certain_low=inside - (found.inside - found.certain_low),
        certain_high=touched + (found.certain_high - found.touched),
    )


def widened(found: ZoneTotals, overlay: ZoneOverlay, chosen: IntArray) -> ZoneTotals:
    """The totals, with the intervals of the zones that their estimates chose widened.

    See :func:`mapveil.inference.linear_totals.half_widths_of_chosen`.
    """
    width, below, above = (
        half_widths_of_chosen([each.noise for each in overlay.sums.errors(weights)], found.alpha, chosen)
        for weights in (overlay.weights, overlay.inside, overlay.touched)
    )
    return found._replace(
        low=found.estimate - width,
        high=found.estimate + width,
        certain_low=found.inside - below,
        certain_high=found.touched + above,
    )
