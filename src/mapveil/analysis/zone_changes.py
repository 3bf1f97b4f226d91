r"""Zones where two maps differ significantly, at a false discovery rate of about ``fdr``.

Of a zone, only the measured cells that lie wholly inside it are compared, in both maps alike: groups of cells that both
maps measured, alone or by their parts. Where in a measured cell users are is a model's placement, so a change of a
cell that the zone cuts may be one of its surroundings: with area weights, a single changed cell made every zone inside
its block "changed". A zone without a measured cell of its own is not compared. Without zones these
groups themselves are compared: the smallest blocks that both maps measured.

Two null hypotheses, which differ in what "no change" means:

- ``people``: the same number of users in both tables, whoever they are. Only the noise of privacy makes them differ.
- ``rate`` (the default): the same expected number. Users come and go by chance too, as a Poisson variable does.

.. math:: D = N_2 - N_1 + \eta, \qquad N_1, N_2 \sim \mathrm{Poisson}(\lambda), \qquad
    p = \gamma + \max_{s' \in \{s_\gamma, s_\gamma - 1\}} \Pr\big[|2 B_{s'} - s' + \eta| \ge d\big], \qquad
    s_\gamma = \lfloor s + t_\gamma \rfloor

where: :math:`\eta` is the noise of the difference, d and s are the estimates of difference and sum, :math:`B_{s'}` is
binomial of s' trials and probability 1/2, :math:`\Pr[\eta > t_\gamma] = \gamma`, and :math:`\gamma` is a twentieth of
``fdr`` over the number of zones. Given the number of users in both maps together, each was as likely in one as in the
other, whatever the rate :math:`\lambda` is; so the exact two-sample test knows no rate. That number is hidden by noise
alone: it is at most :math:`s_\gamma` but with probability :math:`\gamma`, and the p-value is the largest over the
numbers that remain (Berger and Boos). More users make the difference wider, but for their parity where noise is small:
so the two largest are tried. A user who is divided over zones counts as less than one whole chance, which made p too
large wherever that was measured with noise of .3 users or more; with less it may be too small. People who come in
groups come less regularly than Poisson's, and then p is too small. With ``people``,
:math:`p = \Pr[|\eta| \ge d]`.

Zones are called changed by Benjamini and Hochberg's procedure over the zones that are compared
(:mod:`mapveil.inference.false_discovery`). Zones that share noisy sums have dependent p-values, so for them the rate is
not proved: ``python -m benchmarks.zone_changes`` measures rate and power.

Source: Przyborowski, Wilenski, "Homogeneity of results in testing samples from Poisson series" (1940), the exact test;
Berger, Boos, "P values maximized over a confidence set for the nuisance parameter" (1994).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from mapveil.formats.block_table import block_outlines
from mapveil.geo.zones import Zones
from mapveil.inference.common_cells import blocks_of_cells, measured_in_both
from mapveil.inference.false_discovery import adjusted
from mapveil.inference.linear_totals import LEAST_ALPHA, half_widths, half_widths_of_chosen, placed_fraction
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.inference.zone_results import Null, ZoneChanges
from mapveil.maps.counted_windows import are_one_series, check_counted_alike, exhaustion_notes
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA, Measurement, are_one_release
from mapveil.maps.released import ReleasedMap
from mapveil.privacy.claim import Unit
from mapveil.privacy.weighted_noise import WeightedNoise, tail
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.epsilon import plain
from mapveil_client.errors import InputError, check

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NULLS: Final = get_args(Null)

_GAMMA: Final = 0.05  # of the false discovery rate over the number of zones
_REACH: Final = 9.0  # deviations of a binomial variable: 1e-18 lies beyond
_POINTS: Final = 64
_REMEDY: Final = "larger zones or more epsilon allow it"
_OF_SERIES: Final = "larger zones, more epsilon, longer windows or a smaller --option window_signal allow it"
_MOST: Final = 1 << 14  # values of a binomial variable at a time


def changes(
    before: DensityMap,
    after: DensityMap,
    zones: Any = None,
    *,
    fdr: float = 0.05,
    null: Null = "rate",
    **read: Any,
) -> ZoneChanges:
    """Compare two released maps over zones or measured blocks. Run by: anybody who holds them; costs no privacy.

    Parameters
    ----------
    before, after : DensityMap
        Maps of one region, with one unit and made by one method, from different tables or noise.
    zones, read
        As for :func:`mapveil.analysis.zone_totals.totals`; without zones, the blocks that both maps measured.
    fdr : float
        Expected fraction of false calls among the zones called changed, about (see the header); in (0, 0.5].
    null : str
        ``"rate"`` or ``"people"``.

    Raises
    ------
    InputError
        The maps cannot be compared, or one cannot be asked.
    ParameterError
        Another null hypothesis, or a rate outside its range.
    """
    for heat in (before, after):
        text = "two maps of users; of flows: mapveil.analysis.flow_totals.end_changes"
        check(isinstance(heat, DensityMap), "before and after", text, type(heat).__name__)
    check_alike(before, after, (before.measurements, after.measurements))
    if zones is None:
        one, two = _of_blocks(before, after)
    else:
        one = ZoneOverlay.of(before, Zones.read(zones, **read))
        two = ZoneOverlay.of(after, one.zones)
    measured = measured_in_both(one, two)
    tested = np.diff(measured[0].indptr) > 0
    chosen = [each[tested] for each in measured]
    first, second = chosen[0] @ one.sums.estimate, chosen[1] @ two.sums.estimate
    laws = (each.for_calls().sums.errors(weights) for weights, each in zip(chosen, (one, two), strict=True))
    noises = [a.noise.joined(b.noise) for a, b in zip(*laws, strict=True)]
    found = compared(one.zones.take(tested, ""), first, second, noises, fdr=fdr, null=null)
    return _of_all(found, one, two, measured, tested)._replace(of_blocks=zones is None)


def _of_blocks(before: DensityMap, after: DensityMap) -> tuple[ZoneOverlay, ZoneOverlay]:
    """Both maps over the blocks that both measured, by number, with their centres as columns."""
    import shapely

    if not before.tiling.region.georeferenced:
        raise InputError("maps without georeference cannot be compared: nothing is known of where they lie")
    blocks = blocks_of_cells(before, after)
    tiling, block = min(
        zip((before.tiling, after.tiling), blocks, strict=True), key=lambda each: each[0].size
    )
    _, outlines = block_outlines(tiling, block)
    lon, lat = shapely.get_coordinates(shapely.centroid(outlines)).T.tolist()
    names = tuple(f"{at + 1}" for at in range(outlines.size))
    note = (
        f"compared are the smallest blocks ({len(names)}) that were measured in both maps: cells whose users were "
        "counted together under noise; a picture shows their numbers, the columns lon and lat of a file their centres"
    )
    zones = Zones(outlines, names, {"lon": lon, "lat": lat}, (note,))
    one, two = (
        ZoneOverlay.of_blocks(heat, zones, block) for heat, block in zip((before, after), blocks, strict=True)
    )
    return one, two


def _of_all(
    found: ZoneChanges,
    one: ZoneOverlay,
    two: ZoneOverlay,
    measured: tuple[csr_array, csr_array],
    tested: BoolArray,
) -> ZoneChanges:
    """The changes of all zones, NaN for those that are not compared, with notes on what is not."""

    def spread(values: FloatArray | BoolArray, otherwise: float) -> FloatArray:
        made = np.full(tested.size, otherwise)
        made[tested] = values
        return made

    both = found.before + found.after
    every = one.weights @ one.sums.estimate + two.weights @ two.sums.estimate
    placed = placed_fraction(every, spread(both, 0.0))
    cut = np.zeros(tested.size, dtype=np.bool_)
    for overlay, weights in zip((one, two), measured, strict=True):
        cut |= np.diff(overlay.areas.indptr) > np.diff(weights.indptr)
    placed[~cut] = 0.0
    labels, notes = one.zones.labels, [*one.zones.notes, *unlike_notes(one.heat, two.heat)]
    if not tested.all():
        notes.append(
            f"{np.count_nonzero(~tested)} of {tested.size} zones are not compared, such as "
            f"{labels[int(np.argmin(tested))]}: no measured cell lies wholly inside, so a change there was measured "
            f"only together with what surrounds the zone; {_REMEDY if one.heat.placement is None else _OF_SERIES}"
        )
    if (cut & tested).any():
        most = int(np.argmax(np.where(tested, placed, -1.0)))
        notes.append(
            f"{np.count_nonzero(cut & tested)} of {tested.size} zones cut measured cells, such as {labels[most]} "
            f"({100 * placed[most]:.0f} % of its users): only the measured cells wholly inside are compared"
        )
    zones = replace(one.zones, notes=tuple(notes))
    users = found.before, found.after, found.difference, found.low, found.high
    numbers = [spread(each, np.nan) for each in users]
    p, q, changed = spread(found.p, 1.0), spread(found.q, 1.0), spread(found.changed, 0.0) > 0
    before, after, apart, low, high = numbers
    return ZoneChanges(zones, found.null, found.fdr, before, after, apart, low, high, p, q, changed, placed)


def compared(
    zones: Zones,
    first: FloatArray,
    second: FloatArray,
    noises: Sequence[WeightedNoise],
    *,
    fdr: float,
    null: Null,
) -> ZoneChanges:
    """Compare two estimates of each zone, whose difference has the noise that is given; see the module's header.

    Raises
    ------
    ParameterError
        Another null hypothesis, or a rate outside its range.
    """
    check(null in NULLS, "null (--null)", f"one of {', '.join(NULLS)}", null)
    check(0 < fdr <= 0.5, "fdr (--fdr)", "above 0 and at most 0.5", fdr)
    apart = second - first
    if null == "people":
        p = np.array([_two_sided(noise, d) for noise, d in zip(noises, apart.tolist(), strict=True)])
    else:
        gamma = max(_GAMMA * fdr / max(len(zones), 1), LEAST_ALPHA / 2)
        most = first + second + half_widths(noises, 2 * gamma)  # the sum's noise has the difference's law
        numbers = zip(apart.tolist(), most.tolist(), strict=True)
        p = np.array(
            [_rate_p(beyond, *each, gamma) for beyond, each in zip(_tails(noises), numbers, strict=True)]
        )
    q = adjusted(p)
    changed = q <= fdr
    width = half_widths_of_chosen(noises, INTERVAL_ALPHA, np.flatnonzero(changed))
    found = first, second, apart, apart - width, apart + width
    return ZoneChanges(zones, null, fdr, *found, p, q, changed, np.zeros(len(zones)))


def check_alike(
    before: ReleasedMap, after: ReleasedMap, sums: tuple[Sequence[Measurement], Sequence[Measurement]]
) -> None:
    """Refuse maps, with the measurements of each, whose difference would mean nothing, by an :class:`InputError`."""
    if before is after or are_one_release(*sums):
        raise InputError("both maps are one release; a change needs two")
    one, two = before.tiling.region, after.tiling.region
    if one.to_dict() != two.to_dict():
        raise InputError(f"the maps are of different regions: {one} and {two}; release both over one region")
    if before.guarantee.unit != after.guarantee.unit:
        units = f"{before.guarantee.unit} and {after.guarantee.unit}"
        raise InputError(f"the maps protect different units: {units}; release both with one unit")
    if before.method != after.method:
        raise InputError(
            f"the maps are of different methods: {before.method} and {after.method}; release both with one method"
        )
    if before.guarantee.model is not after.guarantee.model:
        models = f"{before.guarantee.model.value} and {after.guarantee.model.value}"
        raise InputError(f"the maps have different trust models: {models}; release both with one")
    check_counted_alike(before, after)


def both_note(before: ReleasedMap, after: ReleasedMap) -> tuple[str, ...]:
    """A note on the users of both tables of two releases: epsilons add up, but of a user over one series."""
    spent = [each.guarantee.epsilon for each in (before, after)]
    if spent[0] is None or spent[1] is None:
        return ()
    if are_one_series(before, after):
        unit, both = before.guarantee.unit, "both maps are windows of one series"
        if unit is Unit.USER:
            return (f"{both}, so a user of both is protected by its epsilon {plain(spent[0])}",)
        return (
            f"{both}: its epsilon {plain(spent[0])} is for one {unit.value}, and those of several {unit.value}s of "
            "one user add up",
        )
    both = f"epsilon {plain(spent[0] + spent[1])}, those of both maps together"
    return (f"a {before.guarantee.unit.value} of both tables is protected by {both}",)


def unlike_notes(before: ReleasedMap, after: ReleasedMap) -> tuple[str, ...]:
    """Notes on what two maps counted differently: columns, weights, filter, options, users without windows left."""
    one, two = (
        {f"column of {role}": name for role, name in each.provenance.columns.items()}
        | {"filter": each.provenance.where}
        | dict(each.provenance.options)
        for each in (before, after)
    )
    unlike = [
        f"{name} ({one.get(name) or 'none'} and {two.get(name) or 'none'})"
        for name in {**one, **two}
        if one.get(name) != two.get(name)
    ]
    notes = exhaustion_notes(before, after)
    if not unlike:
        return notes
    return (
        f"the two releases counted unlike things, so a change may be one of these: {', '.join(unlike)}",
        *notes,
    )


def _two_sided(noise: WeightedNoise, apart: float) -> float:
    if apart == 0:
        return 1.0
    return min(1.0, 2 * float(tail(noise, np.array([abs(apart)]))[0]))


class _NoiseTail:
    """The tail of a noise, from a table of its logarithm."""

    def __init__(self, noise: WeightedNoise) -> None:
        from scipy.interpolate import PchipInterpolator

        self.deviation = math.sqrt(noise.variance)
        self._far = 24 * self.deviation
        self._log = None
        if not self.deviation:
            return
        x = self._far * np.square(np.linspace(0, 1, _POINTS))
        self._log = PchipInterpolator(x, np.log(np.maximum(tail(noise, x), 1e-300)))

    def __call__(self, x: FloatArray) -> FloatArray:
        """Pr[noise > x]; beyond 24 deviations, that at 24."""
        if self._log is None:
            return np.asarray(np.where(x < 0, 1.0, 0.0))
        beyond = np.exp(self._log(np.minimum(np.abs(x), self._far)))
        return np.asarray(np.where(x >= 0, beyond, 1 - beyond))


def _tails(noises: Sequence[WeightedNoise]) -> Iterator[_NoiseTail]:
    """The tail of each noise; zones that are measured alike have one law."""
    made: dict[bytes, _NoiseTail] = {}
    for noise in noises:
        if noise.key not in made:
            made[noise.key] = _NoiseTail(noise)
        yield made[noise.key]


def _rate_p(beyond: _NoiseTail, apart: float, most: float, gamma: float) -> float:
    """The p-value under equal rates, of at most so many users in both maps together."""
    if apart == 0:
        return 1.0
    users = max(math.floor(most), 0)
    likely = max(_sign_tail(beyond, abs(apart), each) for each in {users, max(users - 1, 0)})
    return min(1.0, gamma + 2 * likely)


def _sign_tail(beyond: _NoiseTail, apart: float, users: int) -> float:
    """Pr[2 B - s + noise >= d] for B of s users, each in the second map with probability 1/2."""
    from scipy.special import gammaln

    reach = _REACH * math.sqrt(users) / 2 + _REACH
    k = _values(max(users / 2 - reach, 0.0), min(users / 2 + reach, float(users)))
    k = k[k <= users]
    chance = np.exp(gammaln(users + 1) - gammaln(k + 1) - gammaln(users - k + 1) - users * math.log(2))
    return float((chance / chance.sum()) @ beyond(apart - (2 * k - users)))


def _values(low: float, high: float) -> FloatArray:
    """Whole numbers, thinned out where there are very many."""
    step = max(1, math.ceil((high - low) / _MOST))
    return np.arange(math.floor(low), math.ceil(high) + 1, step, dtype=np.float64)
