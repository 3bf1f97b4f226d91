"""One trial of a privatizer of measurements: fitted on a pilot, used on the rest, mapped by a server, attacked.

Every adversary is trained afresh on the privatized pilot, and judged on privatized rows that neither has seen. Not
private.
"""

import math
import time
from typing import Any, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import SignalAdversary
from mapveil.attacks.signal_attack import attack_signal
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import SignalAttack
from mapveil.geo.measurements import RSS, Measurements, MeasurementSplit
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, Privatizer
from mapveil.obfuscation.utility import Utility, linear_parameters, utility
from mapveil_client.arrays import FloatArray
from mapveil_client.randomness.random import Randomness


class SignalTask(NamedTuple):
    """A privatizer on one split of one table; picklable."""

    group: str  # the data set
    split: MeasurementSplit
    privatizer: Privatizer | None  # None sends everything as it is
    knob: str  # the parameter that is varied
    value: float
    trial: int
    seed: int
    adversaries: tuple[SignalAdversary, ...]
    length: int = 1  # measurements of a user that adversaries see together
    label: str = ""  # the privatizer's in rows; its name by default


class SignalTrial(NamedTuple):
    """Result of a task. Not private."""

    group: str
    privatizer: str
    knob: str
    value: float
    trial: int
    u1: float  # minus distortion, normalised units
    u2: float  # minus map error
    u: float
    rmse_dbm: float  # of the linear model fitted to the privatized pilot, at held-out rows as they are
    p1: float  # against the strongest in P; NaN where no judged user is among the labelled ones
    p2: float
    p2_m: float
    p: float  # P1 + P2; P2 alone where P1 is NaN
    floor: float  # against the best for the user together with the best for the place
    strongest: str
    fit_s: float
    privatize_s: float
    attack_s: float
    attack: SignalAttack
    places_db: float = math.nan  # error of a map of the place alone at held-out places, dB
    later_db: float = math.nan  # and on later days
    gain_db: float = math.nan  # the smaller of its gains over not collecting
    epsilon: float = math.inf  # of the worst case of one report or, for sums, of one unit

    @property
    def distortion(self) -> float:
        """The paper's distortion, -U1."""
        return -self.u1


class Privatization(NamedTuple):
    """Both parts of a table, before and after."""

    normalisation: Normalisation
    known: SignalEvidence  # the pilot's runs
    held_out: SignalEvidence
    utility: Utility
    rmse_dbm: float
    fit_s: float
    privatize_s: float
    pilot: Measurements  # privatized
    rest: Measurements  # privatized; Normalisation.absent where a report is empty
    fitted: FittedPrivatizer | None  # None where every row is sent as it is


def privatize_split(
    split: MeasurementSplit,
    privatizer: Privatizer | None,
    rng: Randomness,
    *,
    length: int = 1,
    null_code: bool = False,
) -> Privatization:
    """Fit a privatizer on the pilot (None sends every row as it is), and privatize both parts.

    Adversaries see runs of ``length`` measurements of a user together. With ``null_code``, privatizers without a proof
    answer rows unlike the pilot empty, as on phones: adversaries see that a report is empty, and the paper's measures
    are those of the others.
    """
    start = time.perf_counter()
    fitted: FittedPrivatizer | None = None
    if privatizer is not None:
        null_code = null_code and privatizer.answers_null
        fitted = privatizer.fit(split.pilot, rng=rng.child("fit"), null_code=null_code)
    normalisation = Normalisation.learn(split.pilot) if fitted is None else fitted.normalisation
    fit_s, start = time.perf_counter() - start, time.perf_counter()
    pilot, rest = split
    if fitted is not None:
        pilot = fitted.privatize_measurements(split.pilot, rng=rng.child("pilot"))
        rest = fitted.privatize_measurements(split.held_out, rng=rng.child("held out"))
    privatize_s = time.perf_counter() - start
    # Privatizers cut outliers at the pilot's quantiles: that is no loss, nor is it where rows are sent as is.
    sent = normalisation.apply if fitted is None else normalisation.standardise
    # Runs that overlap are several times the evidence, but must not cut what was privatized together.
    step = max(length // 5, 1) if privatizer is None or privatizer.sequence == 1 else None
    before, after = (
        part[:, split.pilot.numeric] for part in (normalisation.apply(split.held_out.rows), sent(rest.rows))
    )
    full, full_pilot = (~normalisation.empty(part.rows) for part in (rest, pilot))
    kept = full.any() and full_pilot.any()
    return Privatization(
        normalisation,
        SignalEvidence.of(split.pilot, pilot, normalisation, length=length, step=step),
        SignalEvidence.of(split.held_out, rest, normalisation, length=length),
        utility(before[full], after[full]) if kept else Utility(math.nan, math.nan, math.nan),
        held_out_rmse_dbm(
            sent(pilot.rows[full_pilot])[:, split.pilot.numeric],
            before,
            float(normalisation.scale[RSS]),
        )
        if kept
        else math.nan,
        fit_s,
        privatize_s,
        pilot,
        rest,
        fitted,
    )


def held_out_rmse_dbm(privatized: FloatArray, held_out: FloatArray, scale_dbm: float) -> float:
    """Error in dBm of the server's linear model, fitted to privatized rows, at held-out rows as they are.

    Both are normalised, shape (rows, features); ``scale_dbm`` is the unit of signal strength.
    Source: Table 5 of Zhang et al. 2022.
    """
    intercept, *slopes = linear_parameters(privatized)
    others = np.delete(held_out, RSS, axis=1)
    predicted = intercept + others @ np.asarray(slopes)
    return scale_dbm * float(np.sqrt(np.square(predicted - held_out[:, RSS]).mean()))


def run_signal_task(task: SignalTask) -> SignalTrial:
    """Run one trial; a function of the module, so that processes can be given it."""
    name = task.label or ("none" if task.privatizer is None else task.privatizer.name)
    rng = Randomness(task.seed).child(f"{task.group} {name} {task.knob} {task.value!r} {task.trial}")
    private = privatize_split(task.split, task.privatizer, rng, length=task.length)
    start = time.perf_counter()
    attack = attack_signal(
        private.known, private.held_out, adversaries=task.adversaries, rng=rng.child("attack")
    )
    strongest = attack.strongest
    return SignalTrial(
        task.group,
        name,
        task.knob,
        task.value,
        task.trial,
        private.utility.u1,
        private.utility.u2,
        private.utility.total,
        private.rmse_dbm,
        strongest.p1,
        strongest.p2,
        strongest.p2_m,
        strongest.p,
        attack.floor,
        strongest.adversary,
        private.fit_s,
        private.privatize_s,
        time.perf_counter() - start,
        attack,
    )


def trial_record(trial: SignalTrial) -> dict[str, Any]:
    """A row of a table: everything but the single adversaries."""
    record = trial._asdict()
    record.pop("attack")
    return record
