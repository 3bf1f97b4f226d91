"""One trial of a collection: a map made with what phones send, against a map for which nothing is collected.

Maps are judged on true rows at held-out places and on later days. Adversaries are given users and places of a part of
the reports of the reporting period, and are judged on the reports of other users and on those of later days. Not
private.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import BlindGuess, SignalAdversary
from mapveil.attacks.signal_attack import attack_signal
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.evaluation.signal_trials import SignalTrial, privatize_split
from mapveil.geo.collection_roles import CollectionRoles
from mapveil.geo.measurements import LAT, LON, RSS, Measurements, MeasurementSplit, joined
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.privacy.claim import Unit
from mapveil_client.arrays import FloatArray
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.analysis.signal_models.kriging import FittedKriging
    from mapveil.obfuscation.privatizers.privatizer import Privatizer

PILOT_ONLY: Final = "pilot only, collect nothing"
PUBLIC_ONLY: Final = "public model only"
RAW: Final = "raw reports"
SUMS: Final = "coverage by sums"
REFERENCES: Final = (PILOT_ONLY, PUBLIC_ONLY, RAW)
"""Lines of every table that are no choice: nothing is collected, or nothing is private."""

SUMS_EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
"""Epsilons of coverage by sums in a trade-off."""

_BLOCKS: Final = 600  # of the model that every map is made by: a fit takes seconds
_LABELLED: Final = 0.7  # of the users of the reporting period, whose reports adversaries are given
_MANY_USERS: Final = 50  # from here on the unit of sums is a user
_DEPTH: Final = 5  # of the tiling of sums: that of its finest nodes
_MARGIN: Final = 0.02  # of the sides of the pilot's box


Change = Callable[[FloatArray], FloatArray]
"""From rows to what is added to a map there, dB."""


class CollectionTask(NamedTuple):
    """A way to collect, on one division of one table; picklable."""

    group: str
    roles: CollectionRoles
    name: str  # a privatizer's, or one of REFERENCES and SUMS
    privatizer: Privatizer | None
    knob: str
    value: float
    trial: int
    seed: int
    adversaries: tuple[SignalAdversary, ...]
    length: int = 1


def run_collection_task(task: CollectionTask) -> SignalTrial:
    """Run one trial; a function of the module, so that processes can be given it."""
    rng = Randomness(task.seed).child(f"{task.group} {task.name} {task.knob} {task.value!r} {task.trial}")
    if task.name in (PILOT_ONLY, PUBLIC_ONLY, SUMS):
        return _not_collected(task, rng)
    return _reported(task, rng)


def sums_unit(reports: Measurements) -> Unit:
    """The unit of sums of these reports: a user where there are many, else a user's day."""
    return Unit.USER if len(np.unique(reports.users)) >= _MANY_USERS else Unit.DAY


def _not_collected(task: CollectionTask, rng: Randomness) -> SignalTrial:
    """Nothing is reported for one person: adversaries are left with the guess that sees no report."""
    roles, start = task.roles, time.perf_counter()
    epsilon = 0.0
    if task.name == PUBLIC_ONLY:
        level = float(roles.pilot.rows[:, RSS].mean())
        places, later = (_rmse(np.full(len(part), level), part) for part in (roles.places, roles.later))
    else:
        prior = _pilot_map(roles.pilot, task.seed)
        change = None
        if task.name == SUMS:
            change, epsilon = _corrected(task, prior, rng), task.value
        places, later = (_error(prior, part, change) for part in (roles.places, roles.later))
    took = time.perf_counter() - start
    normalisation = Normalisation.learn(roles.pilot)
    sent = {"held_out": roles.held_out, "later": roles.later}
    known, judged = _evidence(roles, sent, normalisation, task.length, rng)
    attack = attack_signal(
        known, judged, adversaries=(BlindGuess(),), rng=rng.child("attack"), strangers=True
    )
    blind, nothing = attack.strongest, math.nan
    return SignalTrial(
        task.group,
        task.name,
        task.knob,
        task.value,
        task.trial,
        nothing,
        nothing,
        nothing,
        nothing,
        blind.p1,
        blind.p2,
        blind.p2_m,
        blind.p,
        attack.floor,
        blind.adversary,
        took,
        0.0,
        0.0,
        attack,
        places_db=places,
        later_db=later,
        epsilon=epsilon,
    )


def _reported(task: CollectionTask, rng: Randomness) -> SignalTrial:
    """Every measurement is reported, privatized or as it is."""
    roles = task.roles
    made = privatize_split(
        MeasurementSplit(roles.pilot, roles.held_out), task.privatizer, rng, length=task.length
    )
    later = roles.later
    if made.fitted is not None and len(later):
        later = made.fitted.privatize_measurements(later, rng=rng.child("later"))
    known, judged = _evidence(
        roles, {"held_out": made.rest, "later": later}, made.normalisation, task.length, rng
    )
    start = time.perf_counter()
    attack = attack_signal(
        known, judged, adversaries=task.adversaries, rng=rng.child("attack"), strangers=True
    )
    took, strongest = time.perf_counter() - start, attack.strongest
    fitted = _model(joined(roles.pilot, _unlinked(made.rest)), rng)
    return SignalTrial(
        task.group,
        task.name,
        task.knob,
        task.value,
        task.trial,
        made.utility.u1,
        made.utility.u2,
        made.utility.total,
        made.rmse_dbm,
        strongest.p1,
        strongest.p2,
        strongest.p2_m,
        strongest.p,
        attack.floor,
        strongest.adversary,
        made.fit_s,
        made.privatize_s,
        took,
        attack,
        places_db=_error(fitted, roles.places),
        later_db=_error(fitted, roles.later),
        epsilon=math.inf if made.fitted is None else made.fitted.worst_epsilon,
    )


def _evidence(
    roles: CollectionRoles,
    sent: dict[str, Measurements],
    normalisation: Normalisation,
    length: int,
    rng: Randomness,
) -> tuple[SignalEvidence, SignalEvidence]:
    """Labelled reports of some users; reports of the others, and of later days."""
    users = np.unique(roles.held_out.users)
    count = min(max(round(_LABELLED * users.size), 1), max(users.size - 1, 1))
    given = np.isin(roles.held_out.users, rng.child("labelled").generator().permutation(users)[:count])
    if given.all() and not len(roles.later):
        given = np.arange(len(given)) < _LABELLED * len(given)
    known = SignalEvidence.of(
        roles.held_out.take(given), sent["held_out"].take(given), normalisation, length=length
    )
    true = joined(roles.held_out.take(~given), roles.later)
    reported = joined(sent["held_out"].take(~given), sent["later"])
    return known, SignalEvidence.of(true, reported, normalisation, length=length)


def _unlinked(reports: Measurements) -> Measurements:
    """Reports as the server has them: without users and times, each of its own."""
    count, first = len(reports), len(reports.user_ids)
    ids = (*reports.user_ids, *("" for _ in range(count)))
    return replace(reports, users=first + np.arange(count, dtype=np.int64), user_ids=ids)


def _model(measurements: Measurements, rng: Randomness) -> FittedKriging:
    from mapveil.analysis.signal_models.kriging import Kriging

    return Kriging(blocks=_BLOCKS).fit(measurements, rng=rng.child("map"))


@lru_cache(maxsize=2)
def _pilot_map(pilot: Measurements, seed: int) -> FittedKriging:
    """The pilot's map, which several lines of a trial start from; tables are told apart by identity."""
    return _model(pilot, Randomness(seed).child("pilot"))


def _corrected(task: CollectionTask, prior: FittedKriging, rng: Randomness) -> Change:
    """The change of the pilot's map by sums, as a function of rows."""
    from mapveil.analysis.coverage_sums import release_correction
    from mapveil.mechanisms.signal_sums import SignalSums

    pilot, reports = task.roles.pilot, task.roles.held_out
    tiling = Quadtree(_box(pilot.rows), depth=_DEPTH)
    sums = SignalSums(epsilon=task.value, unit=sums_unit(reports), accept_large_epsilon=True)
    if not (tiling.locate(reports.rows[:, LON], reports.rows[:, LAT]) >= 0).any():
        return lambda rows: np.zeros(len(rows))
    correction = release_correction(reports, prior, tiling, sums, account=None, rng=rng.child("sums"))

    def change(rows: FloatArray) -> FloatArray:
        cell = tiling.locate(rows[:, LON], rows[:, LAT])
        return np.where(cell >= 0, correction.change_db[cell], 0.0)

    return change


def _box(rows: FloatArray) -> Region:
    """A box around the pilot: of people who opted in, so it is public."""
    (south, west), (north, east) = rows[:, :2].min(axis=0), rows[:, :2].max(axis=0)
    up, across = _MARGIN * (north - south) + 1e-5, _MARGIN * (east - west) + 1e-5
    return Region.from_bbox(float(west - across), float(south - up), float(east + across), float(north + up))


def _error(fitted: FittedKriging, rows: Measurements, change: Change | None = None) -> float:
    if not len(rows):
        return math.nan
    predicted = fitted.mean_dbm(rows.rows)
    return _rmse(predicted if change is None else predicted + change(rows.rows), rows)


def _rmse(predicted: FloatArray, rows: Measurements) -> float:
    if not len(rows):
        return math.nan
    return float(np.sqrt(np.square(predicted - rows.rows[:, RSS]).mean()))


def with_gains(trials: tuple[SignalTrial, ...]) -> tuple[SignalTrial, ...]:
    r"""The trials with their maps' gains over the pilot's map of the same rows.

    .. math:: g = \min(e_0^{places} - e^{places},\ e_0^{later} - e^{later})

    where: e are root mean square errors at held-out places and on later days, dB, and :math:`e_0` those of the pilot's
    map alone; of a table without later days the first alone counts.
    """
    alone = {(each.group, each.trial): each for each in trials if each.privatizer == PILOT_ONLY}
    made = []
    for each in trials:
        own = alone.get((each.group, each.trial))
        gains = [] if own is None else [own.places_db - each.places_db, own.later_db - each.later_db]
        finite = [gain for gain in gains if math.isfinite(gain)]
        made.append(each._replace(gain_db=min(finite) if finite else math.nan))
    return tuple(made)
