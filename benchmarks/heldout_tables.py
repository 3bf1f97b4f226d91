"""The default of a trust model against the best other method, row by row, and the tables of that."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from benchmarks.data_sets import DataSet, Role
from mapveil.evaluation.comparison import Row, interval_of_mean
from mapveil.evaluation.scoring import TITLES, higher_is_better
from mapveil.evaluation.trials import UNIFORM
from mapveil_client.arrays import FloatArray

Verdict = Literal["win", "tie", "loss"]
ROLES: Final[tuple[Role, ...]] = ("tune", "test")
VERDICTS: Final[tuple[Verdict, ...]] = ("win", "tie", "loss")

MSE: Final = "density_mse"
NO_LONGER: Final = "density_mse, no longer a vector"
"""Mean squared error beside the methods only whose vectors are at most as long as the default's."""


RULE: Final = 4
"""The rule of verdicts: 2 counts every comparison of a row, and losses to the uniform baseline and by refusal; 3 also
losses where no method ran, and no win where another method failed before a row was decided; 4 no win where any other
method is not clearly beaten, and no row decided by fewer than five equal differences."""

FEWEST: Final = 5
"""Trials from which on differences without any spread decide: of two, a metric of few values is alike by chance."""

SAME: Final = 1e-9
"""Relative difference of two values up to which they are one: a map even over the cells beside the baseline's."""

NEAR: Final = 0.05
"""A default is near the best where its mean is worse by this fraction at most."""


class Standing(NamedTuple):
    """The default of a trust model at one (data set, epsilon, metric), with 95 % intervals over the trials."""

    data: str
    role: Role
    shape: str
    trust: str
    epsilon: float
    metric: str
    default: str
    mean: float  # NaN where the default did not run
    low: float
    high: float
    best_other: str  # the one of the best mean, chosen after the fact; empty where there is none
    other_mean: float
    other_low: float
    other_high: float
    lead_low: float  # of the mean paired difference, above 0 where the default is better
    lead_high: float  # at the confidence of losses
    verdict: Verdict
    over_uniform: Verdict  # the default against the uniform baseline
    length: float  # of the default's vectors over secure sums, all rounds
    other_length: float
    trials: int = 0
    unbeaten: tuple[str, ...] = ()  # methods that the default is not clearly better than

    @property
    def near_the_best(self) -> bool:
        """Whether the default's mean is at most :data:`NEAR` worse than the best other method's."""
        if not self.best_other:
            return not math.isnan(self.mean)
        if higher_is_better(self.metric.partition(",")[0]):
            return self.mean >= (1 - NEAR) * self.other_mean
        return self.mean <= (1 + NEAR) * self.other_mean


class Measured(NamedTuple):
    """Every row of one data set under one trust model."""

    data: DataSet
    trust: str
    rows: tuple[Row, ...]
    asked: tuple[tuple[float, str], ...] = ()  # epsilons and metrics, also those at which no method ran


def standings(measured: Measured, default: str, level: float = 0.95) -> list[Standing]:
    """Compare the default with all other methods, and show the best of them, at every epsilon and metric.

    It wins where it is clearly better than each, and loses where the best is clearly better. Of methods with trials of
    different numbers those with most are compared: the others were clearly worse before. Where one was not, it failed,
    and the default cannot win. A default that did not run loses, as does one clearly worse than the uniform baseline;
    one without rivals ties.

    A loss is a choice after the fact among all others and the baseline, so its interval has the confidence
    1 - (1 - level) / (their number): without any difference a row is decided with probability 1 - level at most.
    """
    values: dict[tuple[float, str], dict[str, list[Row]]] = {each: {} for each in measured.asked}
    for row in measured.rows:
        values.setdefault((row.epsilon, row.metric), {}).setdefault(row.method, []).append(row)
    found = []
    for (epsilon, metric), methods in values.items():
        found.append(_standing(measured, default, epsilon, metric, metric, methods, level))
        if metric == MSE:
            most = _length(methods[default]) if default in methods else math.inf
            short = {name: rows for name, rows in methods.items() if _length(rows) <= most}
            found.append(_standing(measured, default, epsilon, metric, NO_LONGER, short, level))
    return found


def _standing(
    measured: Measured,
    default: str,
    epsilon: float,
    metric: str,
    shown: str,
    methods: dict[str, list[Row]],
    level: float,
) -> Standing:
    sign = 1.0 if higher_is_better(metric) else -1.0
    mine = _values(methods.get(default, []))
    others = {name: _values(rows) for name, rows in methods.items() if name not in (default, UNIFORM)}
    of_loss = 1 - (1 - level) / max(len(others) + (UNIFORM in methods), 1)
    most = max((each.size for each in others.values()), default=0)
    failed = [
        each for each in others.values() if each.size < most and not _lead(sign, mine, each, level)[0] > 0
    ]
    others = {name: each for name, each in others.items() if each.size == most}
    best = max(others, key=lambda name: sign * others[name].mean(), default="")
    theirs = others.get(best, np.full(mine.size, np.nan))
    leads = {name: _lead(sign, mine, each, level)[0] for name, each in others.items()}
    unbeaten = tuple(name for name, least in leads.items() if not least > 0)
    low, high = leads.get(best, math.nan), _lead(sign, mine, theirs, of_loss)[1]
    uniform = _values(methods.get(UNIFORM, []))
    over = _verdict(_lead(sign, mine, uniform, level)[0], _lead(sign, mine, uniform, of_loss)[1])
    verdict: Verdict = "loss" if not mine.size or over == "loss" else _verdict(low, high)
    return Standing(
        measured.data.name,
        measured.data.role,
        measured.data.shape,
        measured.trust,
        epsilon,
        shown,
        default,
        *interval_of_mean(mine),
        best,
        *interval_of_mean(theirs),
        low,
        high,
        "tie" if verdict == "win" and (unbeaten or failed or mine.size < most) else verdict,
        over,
        _length(methods.get(default, [])),
        _length(methods[best]) if best else 0.0,
        mine.size,
        unbeaten,
    )


def _lead(sign: float, mine: FloatArray, theirs: FloatArray, level: float) -> tuple[float, float]:
    """The interval of the mean paired difference, over the trials of both; NaN where there are none."""
    both = min(mine.size, theirs.size)
    mine, theirs = mine[:both], theirs[:both]
    apart = np.where(np.isclose(mine, theirs, rtol=SAME, atol=0), 0.0, mine - theirs)
    if 0 < both < FEWEST and not np.ptp(apart):
        return -math.inf, math.inf
    return interval_of_mean(sign * apart, level)[1:]


def _values(rows: Sequence[Row]) -> FloatArray:
    """The values in the order of the trials, up to the first that is not finite: that trial failed."""
    values = np.array([row.value for row in sorted(rows, key=lambda row: row.trial)])
    return values[: int(np.isfinite(values).cumprod().sum())]


def _length(rows: Sequence[Row]) -> float:
    return float(np.mean([row.length for row in rows])) if rows else 0.0


def _verdict(low: float, high: float) -> Verdict:
    return "win" if low > 0 else "loss" if high < 0 else "tie"


def count_verdicts(found: Sequence[Standing]) -> list[dict[str, object]]:
    """Wins, ties and losses per trust model and metric, of each role apart; over all metrics too."""
    records: list[dict[str, object]] = []
    for trust in dict.fromkeys(each.trust for each in found):
        of_trust = [each for each in found if each.trust == trust]
        for metric in (*dict.fromkeys(each.metric for each in of_trust), "all"):
            record: dict[str, object] = {"trust": trust, "metric": metric}
            for role in ROLES:
                rows = [row for row in of_trust if row.role == role and metric in ("all", row.metric)]
                counted: dict[str, int] = {
                    each: sum(row.verdict == each for row in rows) for each in VERDICTS
                }
                counted["rows"] = len(rows)
                counted["near_the_best"] = sum(row.near_the_best for row in rows)
                counted["over_uniform"] = sum(row.over_uniform == "win" for row in rows)
                counted["under_uniform"] = sum(row.over_uniform == "loss" for row in rows)
                record[role] = counted
            records.append(record)
    return records


def mean_values(measured: Iterable[Measured]) -> list[dict[str, object]]:
    """Mean of each method's values over data sets and epsilons, of each role apart; geometric for MSE.

    The 95 % interval is over the trials. A method that refused some data sets has a mean over fewer (``sets``), and is
    to be compared with nothing but itself.
    """
    groups: dict[tuple[str, str, str], dict[Role, list[tuple[str, Row]]]] = {}
    for each in measured:
        for row in each.rows:
            roles = groups.setdefault((each.trust, row.method, row.metric), {"tune": [], "test": []})
            roles[each.data.role].append((each.data.name, row))
    records: list[dict[str, object]] = []
    for (trust, method, metric), roles in groups.items():
        record: dict[str, object] = {"trust": trust, "method": method, "metric": metric}
        for role, found in roles.items():
            rows = [row for _, row in found]
            mean, low, high = _mean_over_trials(metric, rows)
            length = _length(rows) if rows else math.nan
            sets = len({name for name, _ in found})
            record[role] = {"mean": mean, "low": low, "high": high, "length": length, "sets": sets}
        records.append(record)
    return records


def _mean_over_trials(metric: str, rows: Sequence[Row]) -> tuple[float, float, float]:
    of_trial: dict[int, list[float]] = {}
    for row in rows:
        value = math.log(max(row.value, sys.float_info.min)) if metric == MSE else row.value
        of_trial.setdefault(row.trial, []).append(value)
    found = interval_of_mean([float(np.mean(values)) for values in of_trial.values()])
    mean, low, high = (float(np.exp(each)) for each in found) if metric == MSE else found
    return mean, low, high


def title(metric: str) -> str:
    """A metric's name in a table."""
    name, comma, rest = metric.partition(", ")
    return f"{TITLES.get(name, name)}{comma}{rest}"
