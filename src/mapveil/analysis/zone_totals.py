r"""Users in zones, from the measurements of a released map: estimates, exact intervals of the noise, and brackets.

A zone that cuts a leaf (a finest measured group of cells) asks for something that nobody measured: where in the leaf
people are. So three things are kept apart. The *estimate* and its interval weigh a cut leaf by the fraction of its
cells in the zone: the interval holds for that weighted sum, over the noise alone. The *bracket* goes from the leaves
wholly inside to all that the zone touches. ``shown`` is where the map, which is a model below the leaves, puts people.

.. math:: \hat q = w^T \hat x, \qquad \hat q \pm t, \qquad \Pr\Big[\Big|\sum_k a_k \eta_k\Big| > t\Big] \le \alpha

where: w are the fractions of the leaves, :math:`\hat x` the least-squares estimates of their users, a the coefficients
of the noisy sums and t is exact for the law of their noise (:mod:`mapveil.privacy.weighted_noise`) where groups do not
follow from earlier noisy sums; where they do, ``python -m benchmarks.zone_coverage`` measures its coverage. Asking is
post-processing of what epsilon already paid for: it costs nothing. Intervals come from the noisy sums, so a bound may
be negative; only the displayed estimate is raised to 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from mapveil.geo.zones import Zones
from mapveil.inference.linear_totals import LinearTotal, Total, half_widths, placed_fraction
from mapveil.inference.nested_sums import NestedSums
from mapveil.inference.zone_results import ZoneTotals
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA, EstimatedUsers
from mapveil.maps.zone_fractions import zone_fractions
from mapveil.privacy.claim import TrustModel
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, check

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_WHOLE: Final = 1e-9  # of a leaf
_NAMED: Final = 5  # zones in a remark

_sums: WeakKeyDictionary[DensityMap, NestedSums] = WeakKeyDictionary()


def sums_of(heat: DensityMap) -> NestedSums:
    """The noisy sums of a map as a tree; made once for each map.

    Raises
    ------
    InputError
        The map has no measurements that a zone's total could be made of; the message says why.
    """
    if heat not in _sums:
        _sums[heat] = _sums_of(heat)
    return _sums[heat]


def _sums_of(heat: DensityMap) -> NestedSums:
    def refuse(why: str) -> InputError:
        return InputError(f"this map ({heat.method}) cannot be asked for totals: {why}")

    if heat.guarantee.model is TrustModel.RANDOM_FEATURES:
        raise refuse(
            "random Fourier features are no sums over cells, so no exact law of a zone's error is known"
        )
    if any(isinstance(each, EstimatedUsers) for each in heat.measurements):
        raise refuse("it is estimated from randomized reports, and files hold no covariance of that estimate")
    if not heat.measurements:
        raise refuse(
            "it carries no measurements; files written by this version of Mapveil do, unless its method has none"
        )
    if max(each.noisy.size for each in heat.measurements) == 1 < heat.tiling.size:
        raise refuse("of its noisy sums only the number of all users is one over cells")
    inside = heat.tiling.lattice().inside
    if inside is None:
        inside = np.ones(heat.tiling.size, dtype=np.bool_)
    places = None
    if sum(each.noisy.size > 1 for each in heat.measurements) > 1:
        lon, lat = heat.tiling.centres()
        stretch = np.cos(np.radians(lat.mean())) if heat.tiling.region.georeferenced else 1.0
        places = np.column_stack((lon * stretch, lat))
    try:
        return NestedSums(heat.measurements, inside, places)
    except InputError as error:
        raise refuse(str(error)) from None


class Asked(NamedTuple):
    """A map and zones, overlaid."""

    heat: DensityMap
    sums: NestedSums
    zones: Zones
    weights: csr_array  # of the leaves, shape (zones, leaves)
    shown: FloatArray
    covered: FloatArray

    @classmethod
    def of(cls, heat: DensityMap, zones: Any, **read: Any) -> Self:
        """Overlay; ``read`` goes to :meth:`mapveil.geo.zones.Zones.read`.

        Raises
        ------
        InputError
            The map cannot be asked, the zones cannot be used, or none lies in the map.
        """
        from scipy.sparse import csr_array

        sums, given = sums_of(heat), Zones.read(zones, **read)
        fractions, covered = zone_fractions(given, heat.tiling)
        there = covered > 0
        if not there.any():
            raise InputError(
                f"no zone lies in the map's region {heat.tiling.region}; are longitude and latitude swapped?"
            )
        if not there.all():
            outside = [name for name, kept in zip(given.names, there.tolist(), strict=True) if not kept]
            more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
            note = f"left out, for nothing is known of zones outside the map: {', '.join(outside[:_NAMED])}{more}"
            given, fractions, covered = given.take(there, note), fractions[there], covered[there]
        cells = fractions.tocoo()
        zone, cell = cells.coords
        kept = sums.leaf[cell] >= 0
        leaf = sums.leaf[cell[kept]]
        parts = cells.data[kept] / sums.cells[leaf]
        weights = csr_array((parts, (zone[kept], leaf)), shape=(len(given), sums.cells.size))
        weights.sum_duplicates()
        weights.data[weights.data > 1 - _WHOLE] = 1.0
        return cls(heat, sums, given, weights, fractions @ heat.values, covered)

    @property
    def inside(self) -> csr_array:
        """Weights of the leaves wholly inside."""
        return _indicator(self.weights, self.weights.data == 1.0)

    @property
    def touched(self) -> csr_array:
        """Weights of all leaves that a zone touches."""
        return _indicator(self.weights, np.ones(self.weights.data.size, dtype=np.bool_))

    def total(self, zone: int) -> Total:
        """The total of one zone."""

        def of(weights: csr_array) -> tuple[tuple[NestedSums, csr_array], ...]:
            return ((self.sums, weights[zone : zone + 1]),)

        inside, touched = LinearTotal(of(self.inside)), LinearTotal(of(self.touched))
        facts = float(self.shown[zone]), float(self.covered[zone])
        return Total(of(self.weights), inside, touched, *facts)


def total(heat: DensityMap, zone: Any, *, repair: bool = False) -> Total:
    """The users of one zone. Run by: anybody who holds the map; costs no privacy.

    Parameters
    ----------
    heat : DensityMap
        A map with measurements.
    zone : polygon, mapping or frame
        One polygon, as for :meth:`mapveil.geo.zones.Zones.read`; several count as one zone where they do not overlap.
    repair : bool
        Repair an invalid polygon.

    Raises
    ------
    InputError
        The map cannot be asked, the zone cannot be used, or none of it lies in the map.
    """
    asked = Asked.of(heat, zone, repair=repair)
    check(len(asked.zones) == 1, "zone", "one zone; totals() takes several", len(asked.zones))
    return asked.total(0)


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
    return totals_of(Asked.of(heat, zones, **read), alpha)


def totals_of(asked: Asked, alpha: float = INTERVAL_ALPHA) -> ZoneTotals:
    """The totals of an overlay."""
    sums = asked.sums
    estimate, inside, touched = (
        np.asarray(weights @ sums.estimate) for weights in (asked.weights, asked.inside, asked.touched)
    )
    errors = list(sums.errors(asked.weights))
    width = half_widths([each.noise for each in errors], alpha)
    deviation = np.sqrt([each.variance for each in errors])
    facts = placed_fraction(estimate, inside), asked.shown, asked.covered
    return ZoneTotals(
        asked.zones, alpha, estimate, estimate - width, estimate + width, deviation, inside, touched, *facts
    )


def _indicator(weights: csr_array, held: Any) -> csr_array:
    made = weights.copy()
    made.data = held.astype(np.float64)
    return made
