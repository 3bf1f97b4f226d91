"""Coverage by sums on one division of a table: the corrected map, the best adversary on its reports, and the curve.

Not private: maps are judged on true rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.analysis.coverage_contributions import strong_part, visits
from mapveil.attacks.report_posterior import ReportedRows, attack_reports
from mapveil.attacks.signal_adversary import BlindGuess
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import AdversaryScore, privacy, score_guess
from mapveil.attacks.sums_posterior import SummedRows, attack_sums
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.geo.collection_roles import CollectionRoles, user_days
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.mechanisms.methods import signal_sums
from mapveil.privacy.claim import Unit
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.analysis.coverage_sums import Correction
    from mapveil.analysis.signal_models.kriging import FittedKriging
    from mapveil.obfuscation.privatizers.normalisation import Normalisation

SUMS: Final = {
    f"coverage by sums, {words}": trust
    for words, trust in (
        ("curator", "central"),
        ("secure sums", "distributed"),
        ("two operators", "operators"),
        ("local", "local"),
    )
}
"""Lines of coverage by sums in a trade-off, and the trust model of each."""

SUMS_EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
"""Epsilons of coverage by sums in a trade-off."""

CURVE_EPSILONS: Final = (1.0, 2.0, 4.0)
"""Epsilons of the curve over the number of units."""

CURVE_SUMS: Final = next(iter(SUMS))
"""The sums of that curve: a curator's, which have the least noise."""

PLACES: Final = "at held-out places"
LATER: Final = "on later days"
"""Rows that maps are judged by."""

_MANY_USERS: Final = 50  # from here on the unit of sums is a user
_DEPTH: Final = 5  # of the tiling of sums: that of its finest nodes
_MARGIN: Final = 0.02  # of the sides of the pilot's box
_FEWEST: Final = 4  # units of a curve
_DRAWS: Final = 8  # of units and noise, for each number of units and each trial

Change = Callable[[FloatArray], FloatArray]
"""From rows to what is added to a map there, dB."""


class CurvePoint(NamedTuple):
    """The gain on later days by sums of so many units: means and 95 % intervals of trials."""

    epsilon: float
    units: int
    gain_db: float  # over nothing collected: the better of the pilot's map and of its mean everywhere
    low: float
    high: float
    pilot_gain_db: float  # over the pilot's map
    pilot_low: float
    pilot_high: float


class Gains(NamedTuple):
    """Gains of sums in one trial, dB."""

    over_nothing: float  # over the better of the pilot's map and of its mean everywhere
    over_pilot: float  # over the pilot's map


def sums_unit(reports: Measurements) -> Unit:
    """The unit of sums of these reports: a user where there are many or no times, else a user's day."""
    many = reports.time is None or len(np.unique(reports.users)) >= _MANY_USERS
    return Unit.USER if many else Unit.DAY


def unit_codes(reports: Measurements) -> IntArray:
    """Dense codes of the unit of each row, shape (rows,)."""
    return np.unique(
        reports.users if sums_unit(reports) is Unit.USER else user_days(reports), return_inverse=True
    )[1].astype(np.int64)


def sums_tiling(pilot: Measurements) -> Quadtree:
    """The cells of sums: a box around the pilot, who opted in, so that it is public."""
    (south, west), (north, east) = pilot.rows[:, :2].min(axis=0), pilot.rows[:, :2].max(axis=0)
    up, across = _MARGIN * (north - south) + 1e-5, _MARGIN * (east - west) + 1e-5
    return Quadtree(
        Region.from_bbox(float(west - across), float(south - up), float(east + across), float(north + up)),
        depth=_DEPTH,
    )


def corrected(
    reports: Measurements, prior: FittedKriging, tiling: Quadtree, epsilon: float, trust: str, rng: Randomness
) -> Correction | None:
    """The correction of the pilot's map by sums of reports; None where nobody measured in the pilot's box."""
    from mapveil.analysis.coverage_sums import release_correction

    if not (tiling.locate(reports.rows[:, LON], reports.rows[:, LAT]) >= 0).any():
        return None
    sums = signal_sums(epsilon, trust, _options(trust, sums_unit(reports)), accept_large_epsilon=True)
    return release_correction(reports, prior, tiling, sums, account=None, rng=rng)


def _options(trust: str, unit: Unit) -> dict[str, Any]:
    # An evaluation publishes nothing: a handful of units may answer.
    return {"unit": unit.value} | ({"minimum_batch": 1} if trust == "operators" else {})


def change_of(correction: Correction | None, tiling: Quadtree) -> Change:
    """The correction as a function of rows; 0 outside its cells."""

    def change(rows: FloatArray) -> FloatArray:
        if correction is None:
            return np.zeros(len(rows))
        cell = tiling.locate(rows[:, LON], rows[:, LAT])
        return np.where(cell >= 0, correction.change_db[cell], 0.0)

    return change


def attack_others_known(
    roles: CollectionRoles,
    prior: FittedKriging,
    correction: Correction,
    labelled: tuple[Measurements, Measurements],
    normalisation: Normalisation,
    p1: float,
    rng: Randomness,
) -> AdversaryScore:
    """The adversary on noisy sums who knows every other unit, and the first of two tables, judged on the second.

    ``p1`` is the error of its users, which it knows no better than without the sums.
    """
    from mapveil.maps.proportion_map import LabelMeasurement

    tiling, reference, clip = _reference(roles, prior)

    def rows_of(table: Measurements) -> SummedRows:
        ordered = table.take(table.sequences(1)[:, 0])
        codes = unit_codes(ordered)
        return SummedRows(
            SignalEvidence.of(ordered, ordered, normalisation),
            codes,
            tiling.locate(ordered.rows[:, LON], ordered.rows[:, LAT]),
            visits(ordered, tiling, reference, clip, codes),
        )

    known, judged = map(rows_of, labelled)
    revealed = [each for each in correction.released.measurements if isinstance(each, LabelMeasurement)]
    middle, scale = known.evidence.middle, known.evidence.scale
    centres = (np.stack([tiling.centres().lat, tiling.centres().lon], axis=1) - middle) / scale
    return attack_sums(revealed, known, judged, centres, p1, rng)


def attack_local(
    roles: CollectionRoles,
    prior: FittedKriging,
    epsilon: float,
    labelled: tuple[Measurements, Measurements],
    normalisation: Normalisation,
    rng: Randomness,
) -> AdversaryScore | None:
    """The best adversary on one report under local privacy, who knows the first of two tables, judged on the second.

    Nothing is reported of a row outside the pilot's box: the adversary is left with the guess that sees no report.
    None where a table has no row inside.
    """
    from mapveil.local.signal_reports import SignalReports

    tiling, reference, clip = _reference(roles, prior)
    codes = unit_codes(roles.held_out)
    method = SignalReports(epsilon=epsilon, accept_large_epsilon=True)
    design = method.design(tiling, int(codes.max(initial=0)) + 1)

    def reported(table: Measurements) -> tuple[ReportedRows | None, SignalEvidence, BoolArray]:
        ordered = table.take(table.sequences(1)[:, 0])
        cell = tiling.locate(ordered.rows[:, LON], ordered.rows[:, LAT])
        evidence, inside = SignalEvidence.of(ordered, ordered, normalisation), cell >= 0
        if not inside.any():
            return None, evidence, inside
        at = cell[inside]
        strong = strong_part(ordered.rows[inside, RSS] - reference[at], clip)
        own = ReportedRows(evidence.take(np.flatnonzero(inside)), design.squares(at), strong)
        return own, evidence, inside

    (known, every, _), (judged, others, inside) = map(reported, labelled)
    if known is None or judged is None:
        return None
    best = attack_reports(design.law, known, judged, rng)
    if inside.all():
        return best
    outside = others.take(np.flatnonzero(~inside))
    guess = BlindGuess().train(every, rng, lambda step, done: None)(outside.observed)
    blind = score_guess(outside, guess, nameable=np.isin(outside.users, every.users))
    both, parts = (best, blind), np.array([inside.mean(), 1 - inside.mean()])
    p2, p2_m = (float(parts @ [getattr(each, name) for each in both]) for name in ("p2", "p2_m"))
    named = [at for at, each in enumerate(both) if math.isfinite(each.p1)]
    p1 = float(np.average([both[at].p1 for at in named], weights=parts[named])) if named else math.nan
    return best._replace(p1=p1, p2=p2, p2_m=p2_m, p=privacy(p1, p2), runs=len(inside))


def _reference(roles: CollectionRoles, prior: FittedKriging) -> tuple[Quadtree, FloatArray, float]:
    """The cells of sums, the published map there, and the clip of residuals."""
    from mapveil.analysis.coverage_sums import default_clip_db

    tiling = sums_tiling(roles.pilot)
    centres = tiling.centres()
    public = prior.at(centres.lat, centres.lon)
    return tiling, public.mean_dbm, default_clip_db(public.deviation_db)


def curve_gains(
    roles: CollectionRoles, prior: FittedKriging, rng: Randomness, *, draws: int = _DRAWS
) -> dict[tuple[float, int], Gains]:
    """Mean gains on later days (without any, at held-out places), by epsilon and number of units; under a curator."""
    judged = roles.later if len(roles.later) else roles.places
    tiling, codes = sums_tiling(roles.pilot), unit_codes(roles.held_out)
    every = int(codes.max(initial=0)) + 1
    predicted, true = prior.mean_dbm(judged.rows), judged.rows[:, RSS]
    pilot, mean = (
        float(np.sqrt(np.square(known - true).mean()))
        for known in (predicted, roles.pilot.rows[:, RSS].mean())
    )
    gains: dict[tuple[float, int], Gains] = {}
    for count in unit_counts(every):
        found: dict[float, list[float]] = {epsilon: [] for epsilon in CURVE_EPSILONS}
        for draw in range(draws):
            own = rng.child(f"{count} units draw {draw}")
            chosen = own.child("units").generator().permutation(every)[:count]
            reports = roles.held_out.take(np.isin(codes, chosen))
            for epsilon in CURVE_EPSILONS:
                made = corrected(
                    reports, prior, tiling, epsilon, SUMS[CURVE_SUMS], own.child(f"epsilon {epsilon:g}")
                )
                error = predicted + change_of(made, tiling)(judged.rows) - true
                found[epsilon].append(float(np.sqrt(np.square(error).mean())))
        for epsilon in CURVE_EPSILONS:
            with_sums = float(np.mean(found[epsilon]))
            gains[epsilon, count] = Gains(min(pilot, mean) - with_sums, pilot - with_sums)
    return gains


def unit_counts(every: int) -> tuple[int, ...]:
    """Numbers of units of a curve: all of them, and halves of that down to four."""
    counts = [every]
    while counts[-1] // 2 >= _FEWEST:
        counts.append(counts[-1] // 2)
    return tuple(counts[::-1])


def curve_of(trials: Sequence[dict[tuple[float, int], Gains]]) -> tuple[CurvePoint, ...]:
    """The curve over trials: means and 95 % intervals of each number of units, which all trials share by rank."""
    made = []
    for epsilon in CURVE_EPSILONS:
        ranked = [sorted(count for other, count in each if other == epsilon)[::-1] for each in trials]
        for rank in range(min(map(len, ranked), default=0)):
            gains = [each[epsilon, counts[rank]] for each, counts in zip(trials, ranked, strict=True)]
            units = round(float(np.mean([counts[rank] for counts in ranked])))
            over_nothing, over_pilot = (interval_of_mean(each) for each in zip(*gains, strict=True))
            made.append(CurvePoint(epsilon, units, *over_nothing, *over_pilot))
    return tuple(sorted(made))


class UnitsNeeded(NamedTuple):
    """The numbers of units from which on sums gain on later days; None for none of those tried."""

    over_nothing: int | None  # the 95 % interval of the gain is above 0, there and at all larger numbers
    over_pilot: int | None  # the same of the gain over the pilot's map


def units_needed(curve: Sequence[CurvePoint]) -> dict[float, UnitsNeeded]:
    """The numbers of units that it takes, by epsilon."""

    def first(own: Sequence[CurvePoint], gain: str) -> int | None:
        found = None
        for each in sorted(own, key=lambda each: -each.units):
            if not getattr(each, gain) > 0:
                break
            found = each.units
        return found

    needed = {}
    for epsilon in CURVE_EPSILONS:
        own = [each for each in curve if each.epsilon == epsilon]
        needed[epsilon] = UnitsNeeded(*(first(own, gain) for gain in ("low", "pilot_low")))
    return needed
