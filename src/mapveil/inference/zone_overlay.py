"""The overlay of zones and a released map: what its noisy sums say of each zone, and what its model shows there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from mapveil.geo.zones import Zones
from mapveil.inference.linear_totals import LinearTotal, Total
from mapveil.inference.nested_sums import NestedSums
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import EstimatedUsers, Measurement
from mapveil.maps.series_map import SeriesMap
from mapveil.maps.zone_fractions import zone_fractions
from mapveil.privacy.claim import TrustModel
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError

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
        made = _sums_of(heat, heat.values)
        most = max(each.noisy.size for each in heat.measurements)
        if most == 1 < heat.tiling.size and heat.placement is None:
            raise _refusal(
                heat,
                "all its cells were measured as one block, so no noisy sum tells how many of its users are in a zone; "
                "a release with more epsilon or more users, or by the method multiscale, is measured in more blocks",
            )
        _sums[heat] = made
    return _sums[heat]


def everybody(heat: DensityMap) -> LinearTotal:
    """The users of all cells together, also of a map that was measured in one block. Costs no privacy.

    Raises
    ------
    InputError
        As :func:`sums_of`.
    """
    from scipy.sparse import csr_array

    sums = _sums_of(heat, heat.values)
    return LinearTotal(((sums, csr_array(np.ones((1, sums.cells.size)))),))


def _refusal(heat: DensityMap, why: str) -> InputError:
    return InputError(f"this map ({heat.method}) cannot be asked for totals: {why}")


def _sums_of(heat: DensityMap, shown: FloatArray | None) -> NestedSums:
    if heat.guarantee.model is TrustModel.RANDOM_FEATURES:
        raise _refusal(
            heat, "random Fourier features are no sums over cells, so no exact law of a zone's error is known"
        )
    if not heat.measurements:
        raise _refusal(heat, f"it carries no measurements: {heat.unmeasured}")
    reports = [each for each in heat.measurements if isinstance(each, EstimatedUsers)]
    if not all(each.independent for each in reports):
        raise _refusal(
            heat, "the covariance of its estimates is not known; olh-h, olh, subset and unary can be asked"
        )
    inside = heat.tiling.lattice().inside
    if inside is None:
        inside = np.ones(heat.tiling.size, dtype=np.bool_)
    # Which nodes reports are about is public: no noise chose them.
    adaptive = not reports and sum(each.noisy.size > 1 for each in heat.measurements) > 1
    windows: tuple[tuple[Measurement, ...], ...] = ()
    if reports and isinstance(heat, SeriesMap):
        windows = tuple(heat.window(at).measurements for at in range(len(heat)))
    try:
        return NestedSums(heat.measurements, inside, shown, adaptive=adaptive, windows=windows)
    except InputError as error:
        raise _refusal(heat, str(error)) from None


class ZoneOverlay(NamedTuple):
    """A map and zones, overlaid."""

    heat: DensityMap
    sums: NestedSums
    zones: Zones
    weights: csr_array  # of the leaves, shape (zones, leaves): fraction of each one's users, by cells or by a placement
    areas: csr_array  # fraction of each leaf's cells, shape (zones, leaves)
    fractions: csr_array  # of the cells, shape (zones, cells)
    shown: FloatArray
    covered: FloatArray

    @classmethod
    def of(
        cls,
        heat: DensityMap,
        zones: Any,
        *,
        progress: Callable[[str, float], None] = lambda step, done: None,
        **read: Any,
    ) -> Self:
        """Overlay, told how far that is; ``read`` goes to :meth:`mapveil.geo.zones.Zones.read`.

        Raises
        ------
        InputError
            The map cannot be asked, the zones cannot be used, or none lies in the map.
        """
        from scipy.sparse import csr_array

        sums, given = sums_of(heat), Zones.read(zones, **read)
        fractions, covered = zone_fractions(given, heat.tiling, progress)
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
        cell = np.flatnonzero(sums.leaf >= 0)
        leaf = sums.leaf[cell]
        shape = heat.tiling.size, sums.cells.size
        each = 1 / sums.cells[leaf]
        areas = weights = fractions @ csr_array((each, (cell, leaf)), shape=shape)
        areas.data[areas.data > 1 - _WHOLE] = 1.0
        if heat.placement is not None:
            placed = np.maximum(heat.placement[cell], 0.0)
            held = np.bincount(leaf, placed, sums.cells.size)[leaf]
            each = np.divide(placed, held, out=each, where=held > 0)
            weights = fractions @ csr_array((each, (cell, leaf)), shape=shape)
            weights.data[weights.data > 1 - _WHOLE] = 1.0
        return cls(heat, sums, given, weights, areas, fractions, fractions @ heat.values, covered)

    @classmethod
    def of_blocks(cls, heat: DensityMap, zones: Zones, block: IntArray) -> Self:
        """Overlay zones that are blocks of whole measured cells, by the block of each cell of the map, -1 in none.

        Outlines would do the same but for the rounding of their corners.
        """
        from scipy.sparse import csr_array

        sums, cell = sums_of(heat), np.flatnonzero(block >= 0)
        leaf, at = np.unique(sums.leaf[cell], return_index=True)
        shape = len(zones), sums.cells.size
        weights = csr_array((np.ones(leaf.size), (block[cell[at]], leaf)), shape=shape)
        fractions = csr_array((np.ones(cell.size), (block[cell], cell)), shape=(len(zones), heat.tiling.size))
        shown = np.asarray(fractions @ heat.values)
        return cls(heat, sums, zones, weights, weights, fractions, shown, np.ones(len(zones)))

    def at(self, heat: DensityMap) -> Self:
        """The overlay of the same zones and another map of the tiling; cheap where the measured cells are the same."""
        sums = sums_of(heat)
        if heat.placement is not self.heat.placement or not np.array_equal(sums.leaf, self.sums.leaf):
            return type(self).of(heat, self.zones)
        return self._replace(heat=heat, sums=sums, shown=self.fractions @ heat.values)

    @property
    def of_reports(self) -> bool:
        """Whether the noise is that of estimates from randomized reports."""
        return any(isinstance(each, EstimatedUsers) for each in self.heat.measurements)

    def for_calls(self) -> Self:
        """The overlay whose errors hold far out in their tails, for calls about many zones at once.

        The variance of an estimate from reports follows the users that the map shows. Where noise hides users it is too
        small, so calls take that of the fullest node everywhere.
        """
        return self._replace(sums=_sums_of(self.heat, None)) if self.of_reports else self

    @property
    def inside(self) -> csr_array:
        """Weights of the leaves wholly inside."""
        return _indicator(self.areas, self.areas.data == 1.0)

    @property
    def touched(self) -> csr_array:
        """Weights of all leaves that a zone touches."""
        return _indicator(self.areas, np.ones(self.areas.data.size, dtype=np.bool_))

    def total(self, zone: int) -> Total:
        """The total of one zone."""

        def of(weights: csr_array) -> tuple[tuple[NestedSums, csr_array], ...]:
            return ((self.sums, weights[zone : zone + 1]),)

        inside, touched = LinearTotal(of(self.inside)), LinearTotal(of(self.touched))
        facts = float(self.shown[zone]), float(self.covered[zone])
        return Total(of(self.weights), inside, touched, *facts)


def _indicator(weights: csr_array, held: Any) -> csr_array:
    made = weights.copy()
    made.data = held.astype(np.float64)
    return made
