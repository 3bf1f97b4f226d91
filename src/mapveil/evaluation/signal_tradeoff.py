"""The trade-off plane: privatizers over their parameters, and the parameter that meets a constraint. Not private."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.attacks.signal_adversary import SignalAdversary
from mapveil.attacks.signal_attack import signal_adversaries
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.signal_trials import SignalTask, SignalTrial, run_signal_task
from mapveil.evaluation.trials import Progress, in_processes
from mapveil.geo.measurements import Measurements, MeasurementSplit
from mapveil.obfuscation.privatizers.registry import find_privatizer
from mapveil_client.errors import InputError, ParameterError
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
    "funnel": Knob("rho", (0.1, 0.2, 0.35, 0.5, 0.7, 0.9), log=False),
}
"""How each privatizer is tuned."""

SPLITS: Final = ("random", "time", "user")
"""Ways to part the pilot from the rest."""

_MEASURES: Final = ("u1", "u2", "u", "rmse_dbm", "p1", "p2", "p2_m", "p", "floor")
_UTILITIES: Final = ("u1", "u2", "u", "rmse_dbm")
_FINE: Final = 400


class TradeoffPoint(NamedTuple):
    """A privatizer at one value of its parameter: means over the trials, and 95 % intervals of them."""

    group: str
    privatizer: str
    knob: str
    value: float
    trials: int
    means: Mapping[str, float]  # by measure: u1, u2, u, rmse_dbm, p1, p2, p2_m, p, floor
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

    def margin(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """By how much values keep it; negative where they do not."""
        return self.bound - values if self.at_most else values - self.bound


class Choice(NamedTuple):
    """What a privatizer should be set to, or that no value tried keeps the constraints."""

    privatizer: str
    knob: str
    value: float | None
    expected: Mapping[str, float]  # interpolated; empty without a value

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            "privatizer": self.privatizer,
            "parameter": self.knob,
            "value": self.value,
            **({"expected": dict(self.expected)} if self.expected else {}),
        }


def split_measurements(
    measurements: Measurements, how: str, pilot: float, rng: Randomness
) -> MeasurementSplit:
    """Part the pilot (a fraction of the rows or users) from the rest, in one of :data:`SPLITS`."""
    if how == "random":
        return measurements.split_random(rng, pilot=pilot)
    if how == "time":
        return measurements.split_by_time(pilot=pilot)
    if how == "user":
        return measurements.split_by_user(rng, pilot=pilot)
    raise ParameterError(f"split must be one of {', '.join(SPLITS)}, got {how!r}")


def tradeoff(
    measurements: Measurements,
    privatizers: Mapping[str, Sequence[float]],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    group: str = "",
    trials: int = 3,
    pilot: float = 0.7,
    split: str = "random",
    rows: int | None = 30_000,
    length: int = 1,
    weights: tuple[float, float] = (1.0, 1.0),
    adversaries: Sequence[SignalAdversary] | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> tuple[SignalTrial, ...]:
    """Measure privatizers over their parameters on one table. Run by: the evaluator; not private.

    Parameters
    ----------
    measurements : Measurements
        The true rows.
    privatizers : mapping of str to sequence of float
        Values of the knob of each privatizer, see :data:`KNOBS`; the knob's own for an empty sequence.
    options : mapping of str to mapping, optional
        Other parameters of a privatizer.
    group : str
        Name of the table in the rows; its source by default.
    trials : int
        Splits, fits and attacks of each value, each with its own sample of the rows; at least 1.
    pilot, split : float, str
        See :func:`split_measurements`.
    rows : int, optional
        Rows of a trial; all for None.
    length : int
        Measurements of a user that adversaries see together; whole runs of so many are sampled.
    weights : tuple of float
        v1, v2 of the privacy P.
    adversaries : sequence of SignalAdversary, optional
        :func:`mapveil.attacks.signal_attack.signal_adversaries` by default.
    seed, workers, progress
        As for :func:`mapveil.evaluation.compare.compare`.

    Raises
    ------
    ParameterError
        No such privatizer or parameter, or a value outside its range: before anything runs.
    """
    if trials < 1:
        raise ParameterError(f"trials must be at least 1, got {trials!r}")
    named = group or measurements.source
    wanted = []
    for name, values in privatizers.items():
        if name not in KNOBS:
            raise ParameterError(f"privatizer must be one of {', '.join(KNOBS)}, got {name!r}")
        knob, row = KNOBS[name], find_privatizer(name)
        others = dict((options or {}).get(name, {}))
        wanted += [
            (knob.name, float(value), row.make({**others, knob.name: value}))
            for value in values or knob.values
        ]
    chosen = tuple(signal_adversaries() if adversaries is None else adversaries)
    tasks = []
    for trial in range(trials):
        rng = Randomness(seed).child(f"{named} trial {trial}")
        part = _sample(measurements, rows, length, rng.child("rows"))
        parted = split_measurements(part, split, pilot, rng.child("split"))
        tasks += [
            SignalTask(named, parted, made, knob_name, value, trial, seed, chosen, length, weights)
            for knob_name, value, made in wanted
        ]
    return tuple(in_processes(run_signal_task, tasks, workers=workers, progress=progress, step="trials"))


def _sample(measurements: Measurements, rows: int | None, length: int, rng: Randomness) -> Measurements:
    if rows is None or rows >= len(measurements):
        return measurements
    runs = measurements.sequences(length)
    kept = rng.generator().permutation(len(runs))[: max(rows // length, 2)]
    return measurements.take(np.sort(runs[kept].ravel()))


def points_of(trials: Iterable[SignalTrial]) -> tuple[TradeoffPoint, ...]:
    """Means and 95 % intervals over the trials of each privatizer at each value, in the order met."""
    grouped: dict[tuple[str, str, str, float], list[SignalTrial]] = {}
    for trial in trials:
        grouped.setdefault((trial.group, trial.privatizer, trial.knob, trial.value), []).append(trial)
    points = []
    for key, found in grouped.items():
        spans = {each: interval_of_mean([getattr(one, each) for one in found]) for each in _MEASURES}
        mean, low, high = ({each: span[at] for each, span in spans.items()} for at in range(3))
        points.append(TradeoffPoint(*key, len(found), mean, low, high))
    return tuple(points)


def choose_parameters(
    points: Sequence[TradeoffPoint], constraints: Sequence[Constraint]
) -> tuple[Choice, ...]:
    """The value of each privatizer's parameter that keeps the constraints and gives the most of the rest.

    Between two measured values the measures are interpolated. Among the values that keep every constraint, the
    one with the most privacy P is taken where utility is constrained, and the one with the most utility U where
    only privacy is. The best choice comes first; privatizers without a value come last.

    Source: Section 6.4 and Figure 12 of Zhang et al. 2022.
    """
    if not constraints:
        raise ParameterError("constraints must hold at least one, such as a largest distortion")
    goal = "p" if any(each.measure in _UTILITIES for each in constraints) else "u"
    made = []
    for name in dict.fromkeys(point.privatizer for point in points):
        own = sorted((point for point in points if point.privatizer == name), key=lambda point: point.value)
        values, measured = _fine(own, KNOBS[name].log if name in KNOBS else False)
        kept = np.flatnonzero(
            np.all([each.margin(measured[each.measure]) >= 0 for each in constraints], axis=0)
        )
        if not kept.size:
            made.append((-math.inf, Choice(name, own[0].knob, None, {})))
            continue
        at = int(kept[np.argmax(measured[goal][kept])])
        expected = {measure: float(column[at]) for measure, column in measured.items()}
        made.append((expected[goal], Choice(name, own[0].knob, float(values[at]), expected)))
    return tuple(choice for _, choice in sorted(made, key=lambda pair: -pair[0]))


def _fine(
    own: Sequence[TradeoffPoint], log: bool
) -> tuple[npt.NDArray[np.float64], dict[str, npt.NDArray[np.float64]]]:
    """Values between the measured ones, and the measures there."""
    values = np.array([point.value for point in own])
    axis = np.log(values) if log and values[0] > 0 else values
    # The measured values themselves stay among the candidates.
    fine = np.union1d(np.linspace(axis[0], axis[-1], _FINE), axis)
    measured = {
        measure: np.interp(fine, axis, [point.means[measure] for point in own]) for measure in _MEASURES
    }
    exact = np.searchsorted(fine, axis)
    chosen = np.exp(fine) if log and values[0] > 0 else fine.copy()
    chosen[exact] = values
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
