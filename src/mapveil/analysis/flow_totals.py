r"""Users between sets of zones, from the noisy sums of released flows: estimates and intervals of the noise.

Each user counts 1 over all their trips, so that sums of trips are sums of the users' parts.

Questions are answered by least squares over all noisy sums of the release at once: of origins, of destinations and of
blocks (:mod:`mapveil.inference.crossed_sums`). Trips from, or to, a set of zones are measured, so that their interval
is exact:

.. math:: \hat q = a^T y, \qquad \hat q \pm t, \qquad \Pr\Big[\Big|\sum_k a_k \eta_k\Big| > t\Big] \le \alpha

where: y are the noisy sums, :math:`\eta` their noises (:mod:`mapveil.privacy.weighted_noise`) and a the coefficients of
least variance. Blocks that cross a zone and others tell of the zone only what they tell of all of these together. Trips
from some zones to some others are a weighted sum of leaves, the finest measured blocks of origins and destinations,
each by the fraction of its shown flows that is asked about, the unlisted ones spread evenly over the unlisted pairs of
zones; a leaf that the question cuts is placed, not measured, and the total's ``inside`` and ``touched`` bracket the
truth (:mod:`mapveil.analysis.zone_totals`). In flows of several rounds blocks follow from earlier noisy sums, and
``tests/analysis/test_flow_totals.py`` measures the coverage; those of a window follow from the flows of all windows,
whose noise is independent. Post-processing: costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import numpy as np

from mapveil.analysis.zone_changes import check_alike, compared, unlike_notes
from mapveil.analysis.zone_totals import weighted_totals
from mapveil.geo.zones import Zones
from mapveil.inference.crossed_sums import CrossedSums, Margin
from mapveil.inference.linear_totals import LinearSums, LinearTotal, Total
from mapveil.inference.nested_sums import NestedSums
from mapveil.inference.zone_results import ByEnd, Null, ZoneChanges, ZoneTotals
from mapveil.maps.flow_map import FlowMap, ZoneNames
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.maps.flow_sums import FlowSums
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import deinterleave

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_held: WeakKeyDictionary[FlowSums, LinearSums] = WeakKeyDictionary()

_WHOLE: Final = 1e-9  # of a leaf


def flow_total(
    flows: FlowMap, origins: ZoneNames | None = None, destinations: ZoneNames | None = None
) -> Total:
    """Users between sets of zones, each of whom counts 1 over all their trips. Run by: anybody; costs no privacy.

    Parameters
    ----------
    flows : FlowMap
        Flows with noisy sums.
    origins, destinations : int, str or iterable of either, optional
        Numbers or names of zones; all by default.

    Raises
    ------
    InputError
        The flows carry no noisy sums.
    ParameterError
        No such zone, or none.
    """
    sums = _sums_of(flows)
    chosen = [_chosen(flows, each) for each in (origins, destinations)]
    asked = np.isin(flows.origin, np.flatnonzero(chosen[0])) & np.isin(
        flows.destination, np.flatnonzero(chosen[1])
    )
    shown = float(flows.trips[asked].sum())
    possible = sums.place >= 0
    whole = [bool(each[possible].all()) for each in chosen]
    held = _all_sums(flows)
    if isinstance(held, CrossedSums) and any(whole) and not all(whole):
        end = 0 if whole[1] else 1
        found = LinearTotal(((held, _row(held, held.starts[end] + np.flatnonzero(chosen[end] & possible))),))
        return Total(found.parts, found, found, shown, 1.0)
    weights = _fractions(flows, asked, sums, _pairs_between(sums, *chosen))
    parts, inside, touched = (
        LinearTotal(((held, _row(held, np.flatnonzero(each), each[each > 0])),)) for each in weights
    )
    return Total(parts.parts, inside, touched, shown, 1.0)


def end_totals(flows: FlowMap, *, alpha: float = INTERVAL_ALPHA) -> ByEnd[ZoneTotals]:
    """Users from every zone, and users to every zone. Run by: anybody who holds the flows; costs no privacy.

    Parameters
    ----------
    flows : FlowMap
        Flows with noisy sums.
    alpha : float
        Largest probability, over the noise, that one given interval misses; from 1e-12 to 0.5.

    Raises
    ------
    InputError
        The flows carry no noisy sums.
    """
    zones = _zones(flows)
    made = []
    for end, (held, weights) in enumerate(_every_end(flows)):
        inside, touched = weights.copy(), weights.copy()
        inside.data = (weights.data > 1 - _WHOLE).astype(np.float64)
        touched.data = np.ones(weights.data.size)
        shown = np.bincount((flows.origin, flows.destination)[end], flows.trips, len(zones))
        asked = weights, inside, touched
        made.append(weighted_totals(zones, held, asked, shown.astype(np.float64), np.ones(len(zones)), alpha))
    return ByEnd(*made)


def end_changes(
    before: FlowMap, after: FlowMap, *, fdr: float = 0.05, null: Null = "rate"
) -> ByEnd[ZoneChanges]:
    """Compare the users from and to every zone of two releases. Run by: anybody who holds them; costs no privacy.

    Outflows and inflows are called together, at one false discovery rate.

    Parameters
    ----------
    before, after : FlowMap
        Flows between the same zones, with one unit and made by one method, from different tables or noise.
    fdr, null
        As for :func:`mapveil.analysis.zone_changes.changes`.

    Raises
    ------
    InputError
        The flows cannot be compared, or carry no noisy sums.
    ParameterError
        Another null hypothesis, or a rate outside its range.
    """
    both = [_sums_of(each) for each in (before, after)]
    check_alike(before, after, (both[0].blocks + both[0].margins, both[1].blocks + both[1].margins))
    if before.tiling.to_dict() != after.tiling.to_dict():
        raise InputError("the flows are between different zones; release both with one list of zones")
    zones, noises, first, second = _zones(before), [], [], []
    for (one, weights), (two, others) in zip(_every_end(before), _every_end(after), strict=True):
        first.append(np.asarray(weights @ one.estimate))
        second.append(np.asarray(others @ two.estimate))
        errors = zip(one.errors(weights), two.errors(others), strict=True)
        noises += [a.noise.joined(b.noise) for a, b in errors]
    zones = replace(zones, notes=(*zones.notes, *unlike_notes(before, after)))
    twice = Zones(np.tile(zones.polygons, 2), zones.names * 2)
    found = compared(twice, np.concatenate(first), np.concatenate(second), noises, fdr=fdr, null=null)
    size = len(zones)
    names = [name for name, value in found._asdict().items() if isinstance(value, np.ndarray)]
    halves = (
        found._replace(zones=zones, **{name: getattr(found, name)[half] for name in names})
        for half in (slice(size), slice(size, None))
    )
    return ByEnd(*halves)


def _sums_of(flows: FlowMap) -> FlowSums:
    if flows.sums is None:
        raise InputError(
            f"these flows ({flows.method}) carry no noisy sums; flows from randomized reports have none"
        )
    return flows.sums


def _zones(flows: FlowMap) -> Zones:
    """The zones with their polygons; numbers where they have no names."""
    numbers = (str(each) for each in range(flows.tiling.size))
    return Zones(flows.tiling.polygons(), flows.zone_names or tuple(numbers))


def _every_end(flows: FlowMap) -> Iterator[tuple[LinearSums, csr_array]]:
    """Noisy sums, and the weights of their estimates in the trips from every zone; then in those to it."""
    from scipy.sparse import csr_array

    sums = _sums_of(flows)
    held = _all_sums(flows)
    if isinstance(held, CrossedSums):
        zone = np.flatnonzero(sums.place >= 0)
        for start in held.starts[:2]:
            shape = sums.place.size, held.estimate.size
            yield held, csr_array((np.ones(zone.size), (zone, start + zone)), shape=shape)
        return
    leaves, zone_at = sums.leaves, np.full(1 << sums.leaves.depth, -1)
    zone_at[sums.place[sums.place >= 0]] = np.flatnonzero(sums.place >= 0)
    down = leaves.depth - leaves.level
    leaf = np.repeat(np.arange(leaves.size), 1 << down)
    along = np.arange(leaf.size) - np.repeat(np.cumsum(1 << down) - (1 << down), 1 << down)
    for first in deinterleave(leaves.code):
        found = zone_at[(first << down)[leaf] + along]
        kept = (found >= 0) & (sums.pairs[leaf] > 0)
        weights = 1 / np.bincount(leaf[kept], minlength=leaves.size)[leaf[kept]]
        shape = sums.place.size, leaves.size
        yield held, csr_array((weights, (found[kept], leaf[kept])), shape=shape)


def _pairs_between(sums: FlowSums, origins: BoolArray, destinations: BoolArray) -> FloatArray:
    """Number of each leaf's pairs of zones that are asked about, shape (leaves,)."""
    places = np.zeros((2, 1 << sums.leaves.depth), dtype=np.bool_)
    for held, zones in zip(places, (origins, destinations), strict=True):
        held[sums.place[zones & (sums.place >= 0)]] = True
    return sums.pairs_of(places[0], places[1])


def _fractions(
    flows: FlowMap, asked: BoolArray, sums: FlowSums, pairs: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The fraction of each leaf's flows that is asked about; 1 for the leaves wholly inside; 1 for those touched."""
    inside, touched = pairs == sums.pairs, pairs > 0
    leaf = sums.leaf_of(flows.origin, flows.destination)

    def shown(listed: BoolArray, pairs: FloatArray, each: float) -> FloatArray:
        trips, number = (
            np.bincount(leaf, listed * value, sums.leaves.size) for value in (flows.trips, np.ones(leaf.size))
        )
        return np.asarray(trips + each * np.maximum(pairs - number, 0.0))

    unlisted = flows.unlisted / max(float(sums.pairs.sum()) - flows.size, 1.0)
    whole = shown(np.ones(leaf.size, dtype=np.bool_), sums.pairs, unlisted)
    evenly = pairs / np.maximum(sums.pairs, 1)
    part = np.divide(shown(asked, pairs, unlisted), whole, out=evenly, where=whole > 0)
    wholly = inside & touched
    return np.where(wholly, 1.0, part * touched), wholly.astype(np.float64), touched.astype(np.float64)


def _row(sums: LinearSums, at: IntArray, weights: FloatArray | float = 1.0) -> csr_array:
    """The weights of one functional that are not 0, as a row."""
    from scipy.sparse import csr_array

    values = np.broadcast_to(np.asarray(weights, dtype=np.float64), at.shape)
    return csr_array((values, (np.zeros(at.size, dtype=np.int64), at)), shape=(1, sums.estimate.size))


def _chosen(flows: FlowMap, zones: ZoneNames | None) -> BoolArray:
    """Which zones are meant, shape (zones,)."""
    found = np.zeros(flows.tiling.size, dtype=np.bool_)
    if zones is None:
        return ~found
    listed = [zones] if isinstance(zones, int | str | np.integer) else list(zones)
    if not listed:
        raise ParameterError("zones must be one or more, got none")
    for each in listed:
        found[_number(flows, each)] = True
    return found


def _number(flows: FlowMap, zone: int | str) -> int:
    names = flows.zone_names
    if isinstance(zone, str):
        if names is None or zone not in names:
            known = (
                "zones have no names" if names is None else f"there are {len(names)}, such as {names[0]!r}"
            )
            raise ParameterError(f"no zone is called {zone!r}: {known}")
        if names.count(zone) > 1:
            raise ParameterError(f"{names.count(zone)} zones are called {zone!r}: give the number of one")
        return names.index(zone)
    if not 0 <= zone < flows.tiling.size:
        raise ParameterError(f"zone must be from 0 to {flows.tiling.size - 1}, got {zone}")
    return int(zone)


def _all_sums(flows: FlowMap) -> LinearSums:
    """The noisy sums of blocks, with those of origins and of destinations where they were measured."""
    sums = _sums_of(flows)
    if sums not in _held:
        adaptive = len(sums.blocks) > 1 and bool(sums.margins)
        every = np.ones(sums.leaves.size, dtype=np.bool_)
        windows = []
        if isinstance(flows, FlowSeriesMap) and not flows.window_sums.margins:
            # The sums of all windows together are those of each, added up: their errors are not independent.
            windows = [flows.window_sums.of_window(at).blocks for at in range(len(flows))]
        blocks = NestedSums(sums.blocks, every, adaptive=adaptive, windows=windows)
        _held[sums] = CrossedSums(blocks, *_margins(sums)) if sums.margins else blocks
    return _held[sums]


def _margins(sums: FlowSums) -> Iterator[Margin]:
    """The noisy sums of origins, then of destinations, with the zones that leaves take together."""
    leaves, used = sums.leaves, sums.pairs > 0
    down = leaves.depth - leaves.level
    zones = np.flatnonzero(sums.place >= 0)
    for first, margin in zip(deinterleave(leaves.code), sums.margins, strict=True):
        wide = np.zeros(1 << leaves.depth, dtype=np.int64)  # halvings of the widest leaf at each place
        for each in np.unique(down[used]):
            runs = np.unique(first[used & (down == each)])
            wide.reshape(-1, 1 << each)[runs] = each
        at = np.arange(wide.size) >> wide << wide
        names, own = np.unique(at[sums.place[zones]], return_inverse=True)
        line_class = np.full(sums.place.size, -1)
        line_class[zones] = own
        leaf_class = np.where(used, np.searchsorted(names, at[first << down]), -1)
        yield Margin(margin, line_class, leaf_class)
