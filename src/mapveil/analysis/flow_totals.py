r"""Users between sets of zones, from the noisy sums of released flows: estimates and intervals of the noise.

Each user counts 1 over all their trips, so that sums of trips are sums of the users' parts.

Trips from, or to, a set of zones are sums of measured margins (or of measured pairs), so that their interval is exact:

.. math:: \hat q = w^T y, \qquad \hat q \pm t, \qquad \Pr\Big[\Big|\sum_k w_k \eta_k\Big| > t\Big] \le \alpha

where: y are noisy sums and :math:`\eta` their noises (:mod:`mapveil.privacy.weighted_noise`). Trips from some zones to
some others are a weighted sum of leaves, the finest measured blocks of origins and destinations, each by the fraction
of its pairs of zones that is asked about; a leaf that the question cuts is placed, not measured, and the total's
``inside`` and ``touched`` bracket the truth (:mod:`mapveil.analysis.zone_totals`). Post-processing: costs no privacy.
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
from mapveil.inference.linear_totals import LinearTotal, Total
from mapveil.inference.nested_sums import NestedSums
from mapveil.inference.zone_results import ByEnd, Null, ZoneChanges, ZoneTotals
from mapveil.maps.flow_map import FlowMap, ZoneNames
from mapveil.maps.flow_sums import FlowSums
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import deinterleave

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_blocks: WeakKeyDictionary[FlowSums, NestedSums] = WeakKeyDictionary()
_margins: WeakKeyDictionary[FlowSums, tuple[NestedSums, ...]] = WeakKeyDictionary()

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
    if sums.margins and any(whole) and not all(whole):
        end = 0 if whole[1] else 1
        used, margin = chosen[end] & possible, _margin_sums(sums)[end]
        weights = np.bincount(margin.leaf[used], minlength=margin.cells.size).astype(np.float64)
        found = LinearTotal(((margin, _row(weights)),))
        return Total(found.parts, found, found, shown, 1.0)
    part = _fractions(sums, *chosen)
    block = _block_sums(sums)
    parts, inside, touched = (
        LinearTotal(((block, _row(each)),)) for each in (part, part > 1 - _WHOLE, part > _WHOLE)
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
    size, names = len(zones), ZoneChanges._fields[3:]
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


def _every_end(flows: FlowMap) -> Iterator[tuple[NestedSums, csr_array]]:
    """Noisy sums, and the weights of their leaves (zones, leaves) in the trips from every zone; then those to it."""
    from scipy.sparse import csr_array

    sums = _sums_of(flows)
    if sums.margins:
        zone = np.flatnonzero(sums.place >= 0)
        for margin in _margin_sums(sums):
            shape = sums.place.size, margin.cells.size
            yield margin, csr_array((np.ones(zone.size), (zone, margin.leaf[zone])), shape=shape)
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
        yield _block_sums(sums), csr_array((weights, (found[kept], leaf[kept])), shape=shape)


def _fractions(sums: FlowSums, origins: BoolArray, destinations: BoolArray) -> FloatArray:
    """The fraction of each leaf's pairs that is asked about, shape (leaves,)."""
    places = np.zeros((2, 1 << sums.leaves.depth), dtype=np.bool_)
    for held, zones in zip(places, (origins, destinations), strict=True):
        held[sums.place[zones & (sums.place >= 0)]] = True
    return sums.pairs_of(places[0], places[1]) / np.maximum(sums.pairs, 1)


def _row(weights: FloatArray | BoolArray) -> csr_array:
    from scipy.sparse import csr_array

    return csr_array(np.asarray(weights, dtype=np.float64)[None])


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


def _block_sums(sums: FlowSums) -> NestedSums:
    if sums not in _blocks:
        adaptive = len(sums.blocks) > 1 and bool(sums.margins)
        every = np.ones(sums.leaves.size, dtype=np.bool_)
        _blocks[sums] = NestedSums(sums.blocks, every, adaptive=adaptive)
    return _blocks[sums]


def _margin_sums(sums: FlowSums) -> tuple[NestedSums, ...]:
    if sums not in _margins:
        _margins[sums] = tuple(NestedSums((each,), sums.place >= 0) for each in sums.margins)
    return _margins[sums]
