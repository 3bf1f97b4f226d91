"""The trade-off plane: privatizers over their parameters, and the parameter that meets a constraint. Not private."""

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
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError, check
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
_MEASURES: Final = (*_OF_PAPER, "gain_db", "places_db", "later_db", "epsilon")
_GAIN_LOW: Final = (
    "gain_db_low"  # lower end of the interval that holds for all values at once; NaN of one trial
)
_MISSED: Final = 0.05
_UTILITIES: Final = ("u1", "u2", "u", "rmse_dbm", "gain_db")
_FINE: Final = 400
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


class Constraint(NamedTuple):
    """A bound on one measure."""

    measure: str  # of TradeoffPoint.means
    bound: float
    at_most: bool
    words: str

    @classmethod
    def named(cls, name: str, bound: float) -> Constraint:
        """A bound on a cost or an error by its name, one of :data:`CONSTRAINTS`."""
        measure, sign = CONSTRAINTS[name]
        at_most = name.endswith("at_most")
        return cls(measure, sign * bound, at_most == (sign > 0), f"{name.replace('_', ' ')} {bound:g}")

    def margin(self, values: FloatArray) -> FloatArray:
        """By how much values keep it; negative where they do not."""
        return self.bound - values if self.at_most else values - self.bound


CONSTRAINTS: Final[Mapping[str, tuple[str, int]]] = {
    "distortion_at_most": ("u1", -1),
    "map_error_at_most": ("u2", -1),
    "rmse_at_most": ("rmse_dbm", 1),
    "user_error_at_least": ("p1", 1),
    "location_error_at_least": ("p2_m", 1),
    "gain_at_least": ("gain_db", 1),
    "epsilon_at_most": ("epsilon", 1),
}
"""Measure behind each named bound, and its sign: a utility is minus a cost."""


class Choice(NamedTuple):
    """Value of a privatizer's parameter; None where no value keeps the constraints and gains."""

    privatizer: str
    knob: str
    value: float | None
    expected: Mapping[str, float]  # interpolated; empty without a value
    keeps: bool = True  # whether a value keeps the constraints, whatever its map gains

    @property
    def told(self) -> bool:
        """Whether its map is told from those for which nothing is collected; a single trial tells nothing."""
        return self.expected.get(_GAIN_LOW, math.nan) > 0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            "privatizer": self.privatizer,
            "parameter": self.knob,
            "value": self.value,
            "keeps": self.keeps,
            **({"expected": dict(self.expected)} if self.expected else {}),
        }


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
        spans = {each: interval_of_mean([getattr(one, each) for one in found]) for each in _MEASURES}
        worst = max(one.epsilon for one in found)
        spans["epsilon"] = (worst, worst, worst)
        mean, low, high = ({each: span[at] for each, span in spans.items()} for at in range(3))
        points.append(TradeoffPoint(*key, len(found), mean, low, high))
    return tuple(points)


def choose_parameters(
    points: Sequence[TradeoffPoint], constraints: Sequence[Constraint]
) -> tuple[Choice, ...]:
    """Choose the value of each privatizer's parameter that keeps the constraints and gives the most of the rest.

    Between two measured values the measures are interpolated. Among the values that keep every constraint and whose map
    is better than those for which nothing is collected, of those whose gain is told from zero where there are any, the
    one with the most privacy P is taken where utility is constrained, and the one with the largest gain where only
    privacy is. The best choice comes first; those without a value come last. Where none has one, or none is told
    (:attr:`Choice.told`), the answer is not to collect. Lines at which nothing is collected, or nothing is private,
    are no choices.

    A gain is told where the lower end of its interval over the trials is above zero, at the level that holds for all
    measured values at once (Bonferroni): the best of many is above zero by chance. Trials are splits of the same
    people and days, and tell nothing of others.

    Source: Section 6.4 and Figure 12 of Zhang et al. 2022.
    """
    if not constraints:
        raise ParameterError("constraints must hold at least one, such as a largest distortion")
    goal = "p" if any(each.measure in _UTILITIES for each in constraints) else "gain_db"
    choices, ways = [], [point for point in points if point.privatizer not in REFERENCES]
    for name in dict.fromkeys(point.privatizer for point in ways):
        own = sorted((point for point in ways if point.privatizer == name), key=lambda point: point.value)
        values, measured = _fine(own, KNOBS[name].log if name in KNOBS else name in SUMS, len(ways))
        keeps = np.all([each.margin(measured[each.measure]) >= 0 for each in constraints], axis=0)
        kept = np.flatnonzero(keeps & (measured["gain_db"] > 0))
        if not kept.size:
            choices.append((-math.inf, Choice(name, own[0].knob, None, {}, bool(keeps.any()))))
            continue
        surely = kept[measured[_GAIN_LOW][kept] > 0]
        kept = surely if surely.size else kept
        at = int(kept[np.argmax(measured[goal][kept])])
        expected = {measure: float(column[at]) for measure, column in measured.items()}
        choices.append((expected[goal], Choice(name, own[0].knob, float(values[at]), expected)))
    return tuple(choice for _, choice in sorted(choices, key=lambda pair: -pair[0]))


def unmeasured(points: Sequence[TradeoffPoint], constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The constraints on measures that no way to collect has on these data, such as an error of unknown users."""
    ways = [point for point in points if point.privatizer not in REFERENCES]
    return tuple(each for each in constraints if all(math.isnan(point.means[each.measure]) for point in ways))


def verdict(points: Sequence[TradeoffPoint], choices: Sequence[Choice]) -> str:
    """Whether to collect, in a line: the first choice whose gain is told from zero, or why there is none."""
    trials = min(point.trials for point in points)
    for each in choices:
        if each.told:
            gain = each.expected["gain_db"]
            return (
                f"collect: by {each.privatizer} at {each.knob} {each.value:.3g} the map gains {gain:.2g} dB over not "
                f"collecting, told from zero by {trials} trials"
            )
    if all(each.value is None for each in choices):
        return (
            "do not collect: no map is better than what is known without collecting, at held-out places and on "
            "later days"
        )
    why = (
        "one trial tells no gain from chance"
        if trials == 1
        else f"no gain is told from zero by {trials} trials, the best of all values tried being one by chance"
    )
    return f"do not collect: {why}; --trials {max(8, 2 * trials)} may tell"


def unbounded_verdict(points: Sequence[TradeoffPoint]) -> str:
    """The verdict where nothing is asked of privacy or utility but a gain."""
    anything = Constraint.named("location_error_at_least", 0)
    return verdict(points, choose_parameters(points, [anything]))


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


def _widened(trials: int, together: int) -> float:
    """By how much the 95 % intervals of means over trials are wider where so many hold together; NaN of one trial."""
    from scipy.special import stdtrit

    return float(stdtrit(trials - 1, 1 - 0.025 / together) / stdtrit(trials - 1, 0.975))


def _fine(own: Sequence[TradeoffPoint], log: bool, together: int) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Values between the measured ones, and the measures there; of so many values of all ways."""
    values = np.array([point.value for point in own])
    axis = np.log(values) if log and values[0] > 0 else values
    # The measured values themselves stay among the candidates.
    fine = np.union1d(np.linspace(axis[0], axis[-1], _FINE), axis)
    measured = {
        measure: np.interp(fine, axis, [point.means[measure] for point in own]) for measure in _MEASURES
    }
    below = [(each.means["gain_db"] - each.lows["gain_db"]) * _widened(each.trials, together) for each in own]
    measured[_GAIN_LOW] = measured["gain_db"] - np.interp(fine, axis, below)
    exact = np.searchsorted(fine, axis)
    chosen = np.exp(fine) if log and values[0] > 0 else fine.copy()
    chosen[exact] = values
    # A worst case grows by factors; beside one that nothing bounds, nothing is bounded.
    worst = np.log(np.maximum([point.means["epsilon"] for point in own], 1e-300))
    with np.errstate(invalid="ignore"):
        measured["epsilon"] = np.exp(np.nan_to_num(np.interp(fine, axis, worst), nan=np.inf, posinf=np.inf))
    measured["epsilon"][exact] = [point.means["epsilon"] for point in own]
    return chosen, measured


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
                *({each: float(record[each + end]) for each in _MEASURES} for end in ("", "_low", "_high")),
            )
            for record in records
        )
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; name a folder that 'mapveil signal tradeoff' wrote"
        ) from None
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InputError(f"{path}: not the points.csv of a trade-off ({error})") from None
