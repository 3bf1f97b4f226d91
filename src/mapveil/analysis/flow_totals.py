r"""Trips between sets of zones, from the noisy sums of released flows: estimates and exact intervals of the noise.

Trips from, or to, a set of zones are sums of measured margins (or of measured pairs), so that their interval is exact:

.. math:: \hat q = w^T y, \qquad \hat q \pm t, \qquad \Pr\Big[\Big|\sum_k w_k \eta_k\Big| > t\Big] \le \alpha

where: y are noisy sums and :math:`\eta` their noises (:mod:`mapveil.privacy.weighted_noise`). Trips from some zones to
some others are a weighted sum of leaves, the finest measured blocks of origins and destinations, each by the fraction
of its pairs of zones that is asked about; a leaf that the question cuts is placed, not measured, and the total's
``inside`` and ``touched`` bracket the truth (:mod:`mapveil.analysis.zone_totals`). Post-processing: costs no privacy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import numpy as np

from mapveil.inference.linear_totals import LinearTotal, Total
from mapveil.inference.nested_sums import NestedSums
from mapveil.maps.flow_map import FlowMap, ZoneNames
from mapveil.maps.flow_sums import FlowSums
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
    """Trips from some zones to some others. Run by: anybody who holds the flows; costs no privacy.

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
    sums = flows.sums
    if sums is None:
        raise InputError(
            f"these flows ({flows.method}) carry no noisy sums; flows from randomized reports have none"
        )
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
        row, col = deinterleave(sums.leaves.code)
        half = 0.5 * (1 << (sums.leaves.depth - sums.leaves.level))
        middles = np.column_stack([each * 2 * half + half for each in (row, col)])
        places = middles if len(sums.blocks) > 1 and sums.margins else None
        _blocks[sums] = NestedSums(sums.blocks, np.ones(sums.leaves.size, dtype=np.bool_), places)
    return _blocks[sums]


def _margin_sums(sums: FlowSums) -> tuple[NestedSums, ...]:
    if sums not in _margins:
        _margins[sums] = tuple(NestedSums((each,), sums.place >= 0) for each in sums.margins)
    return _margins[sums]
