"""One trial of a collection: a map made with what phones send, against a map for which nothing is collected.

Maps are judged on true rows at held-out places and on later days. Adversaries are given users and places of a part of
the reports of the reporting period, and are judged on the reports of other users and on those of later days. Not
private.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import BlindGuess, SignalAdversary
from mapveil.attacks.signal_attack import attack_signal
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import SignalAttack, privacy
from mapveil.evaluation.coverage_trials import (
    SUMS,
    Change,
    attack_local,
    attack_others_known,
    change_of,
    corrected,
    sums_tiling,
)
from mapveil.evaluation.signal_trials import SignalTrial, privatize_split
from mapveil.geo.collection_roles import CollectionRoles
from mapveil.geo.measurements import RSS, Measurements, MeasurementSplit, joined
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.analysis.signal_models.kriging import FittedKriging
    from mapveil.obfuscation.privatizers.privatizer import Privatizer

PILOT_ONLY: Final = "pilot only, collect nothing"
PUBLIC_ONLY: Final = "public model only"
RAW: Final = "raw reports"
REFERENCES: Final = (PILOT_ONLY, PUBLIC_ONLY, RAW)
"""Lines of every table that are no choice: nothing is collected, or nothing is private."""

_BLOCKS: Final = 600  # of the model that every map is made by: a fit takes seconds
_LABELLED: Final = 0.7  # of the users of the reporting period, whose reports adversaries are given


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
    if task.name in (PILOT_ONLY, PUBLIC_ONLY, *SUMS):
        return _not_collected(task, rng)
    return _reported(task, rng)


def _not_collected(task: CollectionTask, rng: Randomness) -> SignalTrial:
    """Nothing is reported row by row: adversaries have noisy sums, one randomized report, or their guess."""
    roles, start = task.roles, time.perf_counter()
    epsilon, made = 0.0, None
    if task.name == PUBLIC_ONLY:
        level = float(roles.pilot.rows[:, RSS].mean())
        places, later = (_rmse(np.full(len(part), level), part) for part in (roles.places, roles.later))
    else:
        prior = pilot_map(roles.pilot, task.seed)
        change = None
        if task.name in SUMS:
            tiling, epsilon = sums_tiling(roles.pilot), task.value
            made = corrected(roles.held_out, prior, tiling, epsilon, SUMS[task.name], rng.child("sums"))
            change = change_of(made, tiling)
        places, later = (_error(prior, part, change) for part in (roles.places, roles.later))
    took = time.perf_counter() - start
    normalisation = Normalisation.learn(roles.pilot)
    sent = {"held_out": roles.held_out, "later": roles.later}
    known, judged = _evidence(task, sent, normalisation)
    attack = attack_signal(
        known, judged, adversaries=(BlindGuess(),), rng=rng.child("attack"), strangers=True
    )
    if made is not None:
        given = _labelled(task)
        tables = roles.held_out.take(given), joined(roles.held_out.take(~given), roles.later)
        own = rng.child("posterior")
        posterior = (
            attack_local(roles, prior, epsilon, tables, normalisation, own)
            if SUMS[task.name] == "local"
            else attack_others_known(roles, prior, made, tables, normalisation, attack.strongest.p1, own)
        )
        if posterior is not None:
            if math.isnan(posterior.p1):  # it names nobody: it has the best guess without a report
                p1 = attack.strongest.p1
                posterior = posterior._replace(p1=p1, p=privacy(p1, posterior.p2))
            attack = attack.merged(SignalAttack((posterior,), attack.weights))
    nothing = math.nan
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
        *_least(attack),
        took,
        0.0,
        0.0,
        attack,
        places_db=places,
        later_db=later,
        epsilon=epsilon,
    )


def _reported(task: CollectionTask, rng: Randomness) -> SignalTrial:
    """Every measurement is reported, privatized or as it is; no map is made of empty reports."""
    roles = task.roles
    made = privatize_split(
        MeasurementSplit(roles.pilot, roles.held_out),
        task.privatizer,
        rng,
        length=task.length,
        null_code=True,
    )
    later = roles.later
    if made.fitted is not None and len(later):
        later = made.fitted.privatize_measurements(later, rng=rng.child("later"))
    known, judged = _evidence(task, {"held_out": made.rest, "later": later}, made.normalisation)
    start = time.perf_counter()
    attack = attack_signal(
        known, judged, adversaries=task.adversaries, rng=rng.child("attack"), strangers=True
    )
    took = time.perf_counter() - start
    answered = made.rest.take(~made.normalisation.empty(made.rest.rows))
    fitted = _model(joined(roles.pilot, _unlinked(answered)), rng)
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
        *_least(attack),
        made.fit_s,
        made.privatize_s,
        took,
        attack,
        places_db=_error(fitted, roles.places),
        later_db=_error(fitted, roles.later),
        epsilon=math.inf if made.fitted is None else made.fitted.worst_epsilon,
    )


def _least(attack: SignalAttack) -> tuple[float, float, float, float, float, str]:
    """The least of P1, P2, its metres and P, each against the adversary that is best at it; floor, and who has P."""
    best = attack.strongest
    return (
        attack.strongest_by("p1").p1,
        attack.strongest_by("p2").p2,
        attack.strongest_by("p2_m").p2_m,
        best.p,
        attack.floor,
        best.adversary,
    )


def _evidence(
    task: CollectionTask, sent: dict[str, Measurements], normalisation: Normalisation
) -> tuple[SignalEvidence, SignalEvidence]:
    """Labelled reports of some users; reports of the others, and of later days."""
    roles, length, given = task.roles, task.length, _labelled(task)
    known = SignalEvidence.of(
        roles.held_out.take(given), sent["held_out"].take(given), normalisation, length=length
    )
    true = joined(roles.held_out.take(~given), roles.later)
    reported = joined(sent["held_out"].take(~given), sent["later"])
    return known, SignalEvidence.of(true, reported, normalisation, length=length)


def _labelled(task: CollectionTask) -> BoolArray:
    """The reports whose users and places adversaries are given: of the same users for every way of one trial."""
    roles, rng = task.roles, Randomness(task.seed).child(f"{task.group} labelled {task.trial}")
    users = np.unique(roles.held_out.users)
    count = min(max(round(_LABELLED * users.size), 1), max(users.size - 1, 1))
    given = np.isin(roles.held_out.users, rng.generator().permutation(users)[:count])
    if given.all() and not len(roles.later):
        given = np.arange(len(given)) < _LABELLED * len(given)
    return np.asarray(given)


def _unlinked(reports: Measurements) -> Measurements:
    """Reports as the server has them: without users and times, each of its own."""
    count, first = len(reports), len(reports.user_ids)
    ids = (*reports.user_ids, *("" for _ in range(count)))
    return replace(reports, users=first + np.arange(count, dtype=np.int64), user_ids=ids)


def _model(measurements: Measurements, rng: Randomness) -> FittedKriging:
    from mapveil.analysis.signal_models.kriging import Kriging

    return Kriging(blocks=_BLOCKS).fit(measurements, rng=rng.child("map"))


@lru_cache(maxsize=2)
def pilot_map(pilot: Measurements, seed: int) -> FittedKriging:
    """The pilot's map, which several lines of a trial start from; tables are told apart by identity."""
    return _model(pilot, Randomness(seed).child("pilot"))


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
    r"""The trials with their maps' gains over the better map for which nothing is collected, of the same rows.

    .. math:: g = \min(e_0^{places} - e^{places},\ e_0^{later} - e^{later})

    where: e are root mean square errors at held-out places and on later days, dB, and :math:`e_0` there the smaller of
    those of the pilot's map and of its mean everywhere; of a table without later days the first alone counts.
    """
    nothing: dict[tuple[str, int], list[SignalTrial]] = {}
    for each in trials:
        if each.privatizer in (PILOT_ONLY, PUBLIC_ONLY):
            nothing.setdefault((each.group, each.trial), []).append(each)
    made = []
    for each in trials:
        own = nothing.get((each.group, each.trial), [])
        gains = [
            min(getattr(one, role) for one in own) - getattr(each, role)
            for role in ("places_db", "later_db")
            if own
        ]
        finite = [gain for gain in gains if math.isfinite(gain)]
        made.append(each._replace(gain_db=min(finite) if finite else math.nan))
    return tuple(made)
