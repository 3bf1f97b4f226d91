"""The trade-off plane: privatizers over their parameters, beside collecting nothing. Not private."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import SignalAdversary
from mapveil.attacks.signal_attack import signal_adversaries
from mapveil.evaluation.collection_trials import (
    REFERENCES,
    CollectionTask,
    pilot_map,
    run_collection_task,
    with_gains,
)
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.coverage_trials import (
    LATER,
    PLACES,
    SUMS,
    SUMS_EPSILONS,
    CurvePoint,
    Gains,
    curve_gains,
    curve_of,
    sums_unit,
    units_needed,
)
from mapveil.evaluation.signal_trials import SignalTrial
from mapveil.evaluation.trials import Progress, in_processes
from mapveil.geo.collection_roles import collection_roles
from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.privatizer import Privatizer, find_privatizer
from mapveil_client.errors import InputError, check
from mapveil_client.randomness.random import Randomness


class Knob(NamedTuple):
    """The parameter a privatizer is tuned by, and values that span what it can do."""

    name: str
    values: tuple[float, ...]
    log: bool  # whether values between two are geometric


KNOBS: Final[Mapping[str, Knob]] = {
    "gaussian-noise": Knob("sigma", (0.05, 0.1, 0.2, 0.4, 0.6, 0.9), log=True),
    "local-gaussian": Knob("epsilon", (1, 3, 10, 30, 100), log=True),
    "truncated-laplacian": Knob("epsilon", (1, 3, 10, 30, 100), log=True),
    "gap": Knob("rho", (0.1, 0.2, 0.4, 0.6, 0.8, 0.95), log=False),
    "codebook": Knob("mu", (0.1, 0.3, 0.6, 1, 3, 10), log=True),
}
"""Parameter by which each privatizer is tuned."""

_OF_PAPER: Final = ("u1", "u2", "u", "rmse_dbm", "p1", "p2", "p2_m", "p", "floor")
MEASURES: Final = (*_OF_PAPER, "gain_db", "places_db", "later_db", "epsilon")
"""Measures of a way to collect, by the names of :class:`SignalTrial`'s fields."""

_QUICK_STEPS: Final = 500  # of training GAP, chosen for speed: privacy looks higher than it is


class TradeoffPoint(NamedTuple):
    """A privatizer at one value of its parameter: means over the trials, and 95 % intervals of them."""

    group: str
    privatizer: str
    knob: str
    value: float
    trials: int
    means: Mapping[str, float]  # by measure; epsilon, of the worst case, is the largest of the trials
    lows: Mapping[str, float]
    highs: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        named = {"group": self.group, "privatizer": self.privatizer, "knob": self.knob, "value": self.value}
        spread = {f"{key}_low": self.lows[key] for key in self.lows}
        spread |= {f"{key}_high": self.highs[key] for key in self.highs}
        return {**named, "trials": self.trials, **self.means, **spread}


@dataclass(frozen=True)
class Tradeoff:
    """The result of :func:`tradeoff`. Not private."""

    trials: tuple[SignalTrial, ...]
    points: tuple[TradeoffPoint, ...]
    settings: dict[str, object]  # JSON-ready
    curve: tuple[CurvePoint, ...] = ()  # gain of sums over the number of units

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record: the settings, the points, and the curve with the units it takes by epsilon."""
        needed = {f"{epsilon:g}": each._asdict() for epsilon, each in units_needed(self.curve).items()}
        return {
            "settings": self.settings,
            "points": plain_numbers([point.to_dict() for point in self.points]),
            "curve": plain_numbers([point._asdict() for point in self.curve]),
            "units_needed": needed,
        }


def tradeoff(
    measurements: Measurements,
    privatizers: Sequence[str] | Mapping[str, Sequence[float]] = tuple(KNOBS),
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    trials: int = 3,
    rows: int | None = 30_000,
    pilot: float = 0.3,
    later: float = 0.3,
    length: int = 1,
    quick: bool = False,
    adversaries: Sequence[SignalAdversary] | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Tradeoff:
    """Measure privacy against a map's gain for every way to collect. Run by: the evaluator; NOT private.

    Rows have roles by days, users and places (:func:`mapveil.geo.collection_roles.collection_roles`). Every map is made
    by one model of the place alone, of the pilot and of what was reported. Its gain is the smaller of what it is better
    by at held-out places and on later days than what is known if nothing is collected: the better of the pilot's map
    and of its mean everywhere. Adversaries are given a part of the reports of the reporting period with their users and
    locations, and are judged on those of other users and of later days. P1 is about users they know, who report on
    later days too: it is NaN where there are none, and P is then P2 alone. Beside the privatizers stand the pilot alone
    ("pilot only, collect nothing"), its mean everywhere ("public model only"), raw reports, and coverage by sums. The
    paper's measures are those of the pilot and the reports.

    Parameters
    ----------
    measurements : Measurements
        The true rows.
    privatizers : sequence of str, or mapping of str to sequence of float
        Names, or values of the parameter of :data:`KNOBS` by name.
    options : mapping of str to mapping, optional
        Other parameters of a privatizer, by its name.
    trials : int
        Splits, fits and attacks of each value, each with its own sample of the rows; at least 1.
    rows : int, optional
        Rows of a trial; all for None.
    pilot, later : float
        Fractions of the rows: of the first days, of which half of the users are the pilot, and of the last days.
    length : int
        Number of measurements of a user that adversaries see together; whole runs of so many are sampled.
    quick : bool
        One trial, every second value, weaker adversaries and a short training of GAP.
    adversaries : sequence of SignalAdversary, optional
        :func:`mapveil.attacks.signal_attack.signal_adversaries` by default.
    seed, workers, progress
        As for :func:`mapveil.compare`.

    Raises
    ------
    ParameterError
        No such privatizer or parameter, or a value outside its range: before anything runs.
    """
    check(trials >= 1, "trials", "at least 1", trials)
    trials = 1 if quick else trials
    others = {name: dict(given) for name, given in (options or {}).items()}
    if quick and "gap" in privatizers:
        others["gap"] = {"steps": _QUICK_STEPS, **others.get("gap", {})}
    for name in (*privatizers, *others):
        check(name in KNOBS, "privatizer", f"one of {', '.join(KNOBS)}", name)
        check(name in privatizers, "options", f"of {', '.join(privatizers)}", name)
    wanted = []
    for name in privatizers:
        knob, row = KNOBS[name], find_privatizer(name)
        given = privatizers[name] if isinstance(privatizers, Mapping) else knob.values[:: 2 if quick else 1]
        wanted += [
            (knob.name, float(value), row.make({**others.get(name, {}), knob.name: value})) for value in given
        ]
    chosen = signal_adversaries(quick=quick) if adversaries is None else tuple(adversaries)
    tell = progress or (lambda step, done: None)
    source, tasks = measurements.source, []
    curves: list[dict[tuple[float, int], Gains]] = []
    notes: tuple[str, ...] = ()
    for trial in range(trials):
        rng = Randomness(seed).child(f"{source} trial {trial}")
        sample = measurements.sample(rows, rng.child("rows"), length=length)
        sample = sample.take(np.argsort(sample.positions))
        roles = collection_roles(sample, rng.child("roles"), pilot=pilot, later=later)
        if wanted and np.unique(roles.pilot.users).size < 2:
            raise InputError(
                f"{source}: the pilot would be one user; expected rows of at least two on the first days (--pilot)"
            )
        ways: list[tuple[str, Privatizer | None, str, float]] = [(name, None, "", 0.0) for name in REFERENCES]
        ways += [(name, None, "epsilon", epsilon) for name in SUMS for epsilon in SUMS_EPSILONS]
        ways += [(privatizer.name, privatizer, knob, value) for knob, value, privatizer in wanted]
        tasks += [CollectionTask(source, roles, *way, trial, seed, chosen, length) for way in ways]
        step = f"curve of sums, trial {trial + 1} of {trials}"
        tell(step, 0.0)
        curves.append(curve_gains(roles, pilot_map(roles.pilot, seed), rng.child("curve")))
        tell(step, 1.0)
        notes, unit = roles.notes, sums_unit(roles.held_out).value
        judged = LATER if len(roles.later) else PLACES
    found = with_gains(
        tuple(in_processes(run_collection_task, tasks, workers=workers, progress=progress, step="trials"))
    )
    blank = len({each.trial for each in found if math.isnan(each.p1)})
    if blank:
        notes += (
            f"user error P1 is not measured in {blank} of {trials} trials, whose judged users are none of those that "
            "adversaries know: P is P2 alone there",
        )
    settings: dict[str, object] = {
        "source": source,
        "features": ", ".join(measurements.names),
        "rows of a trial": min(rows or len(measurements), len(measurements)),
        "trials": trials,
        "roles": f"by days and users: pilot {pilot:g}, later {later:g}",
        **({"notes": "; ".join(notes)} if notes else {}),
        "unit of sums": unit,
        "curve of sums": f"gain {judged}",
        "sequence": length,
        "adversaries": "quick" if quick else "full",
        "seed": seed,
    }
    return Tradeoff(found, points_of(found), settings, curve_of(curves))


def points_of(trials: Iterable[SignalTrial]) -> tuple[TradeoffPoint, ...]:
    """Means and 95 % intervals over the trials of each privatizer at each value, in the order met."""
    grouped: dict[tuple[str, str, str, float], list[SignalTrial]] = {}
    for trial in trials:
        grouped.setdefault((trial.group, trial.privatizer, trial.knob, trial.value), []).append(trial)
    points = []
    for key, found in grouped.items():
        spans = {each: interval_of_mean([getattr(one, each) for one in found]) for each in MEASURES}
        worst = max(one.epsilon for one in found)
        spans["epsilon"] = (worst, worst, worst)
        mean, low, high = ({each: span[at] for each, span in spans.items()} for at in range(3))
        points.append(TradeoffPoint(*key, len(found), mean, low, high))
    return tuple(points)


def epsilon_words(unit: str) -> str:
    """The units of the epsilons of one table, which must not be compared."""
    return (
        f"Epsilon of sums is about all that one unit sends, a {unit}; that of privatizers is about one report, of "
        "which a phone sends many."
    )


def plain_numbers(record: Any) -> Any:
    """A record for JSON, which knows neither infinity nor undefined numbers: those are null."""
    if isinstance(record, Mapping):
        return {key: plain_numbers(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [plain_numbers(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record


def read_points_table(path: Path) -> tuple[TradeoffPoint, ...]:
    """Read back the ``points.csv`` that a trade-off wrote; an ``InputError`` where it is none."""
    try:
        with path.open(newline="", encoding="utf-8") as opened:
            records = list(csv.DictReader(opened))
        if not records:
            raise ValueError("no rows")
        return tuple(
            TradeoffPoint(
                record["group"],
                record["privatizer"],
                record["knob"],
                float(record["value"]),
                int(record["trials"]),
                *({each: float(record[each + end]) for each in MEASURES} for end in ("", "_low", "_high")),
            )
            for record in records
        )
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; name a folder that 'mapveil signal tradeoff' wrote"
        ) from None
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InputError(f"{path}: not the points.csv of a trade-off ({error})") from None
