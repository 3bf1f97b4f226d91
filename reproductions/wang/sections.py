"""What a table or a figure of the reproduction of Wang et al. (2022) is, and the pairs that are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.report import Curve
from mapveil.local.mechanism import LocalMechanism
from mapveil.mechanisms.methods import DEFAULT_METHODS, find_method
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from reproductions.reproduction import Report


class Scheme(NamedTuple):
    """A randomizer and an estimator."""

    label: str
    method: str  # of the table of methods
    estimator: str
    options: tuple[tuple[str, Any], ...] = ()

    def mechanism(self, epsilon: float, domain: Domain) -> LocalMechanism:
        """The mechanism at one epsilon. The published thresholds depend on the length of a domain's codes."""
        options = dict(self.options)
        if options.get("thresholds") == "published":
            options["thresholds"] = (domain.codes.bits, 30, 0)
        made = find_method(self.method, "local").make(
            Fraction(str(epsilon)), {**options, "estimator": self.estimator}
        )
        if not isinstance(made, LocalMechanism):
            raise ParameterError(f"{self.method} is no method of the local trust")
        return made


SRR: Final = "L-SRR"
PUBLISHED: Final = "L-SRR, 3 groups"
MLE: Final = "MLE"
OURS: Final = "Mapveil's default"

PAPERS: Final = (
    Scheme("GRR", "grr", "simplex"),
    Scheme("OLH-H", "olh-h", "simplex", (("growth", 2), ("site_weight", 1))),
    Scheme("PLDP", "unary", "simplex"),
    Scheme("HR", "hr", "simplex", (("blocks", 1),)),
    Scheme(SRR, "srr", "simplex"),
)
"""The pairs of every figure and table. The equations over candidate sets have the solution of plain inversion."""


def default_scheme() -> Scheme:
    """What ``--trust local`` is where nothing else is said."""
    name = DEFAULT_METHODS["local"]
    options = find_method(name, "local").options()
    return Scheme(OURS, name, str(options["estimator"]))


class Plan(NamedTuple):
    """How much of everything is run."""

    trials: int  # seeds
    thin: bool  # fewer epsilons, fewer thresholds, smaller domains
    route_trials: int
    beyond_trials: int  # of the pairs that the default is compared with, and of it
    close_trials: int = 1  # of them at the least epsilon, where they are nearest to each other
    whole_trials: int = 1  # of all other pairs

    @classmethod
    def full(cls) -> Plan:
        """Ten seeds; beyond the paper fifty where it is close, four of the pairs that it is not about."""
        return cls(10, False, 10, 10, 50, 4)

    @classmethod
    def quick(cls) -> Plan:
        """Two, and every third point."""
        return cls(2, True, 1, 1)

    def points(self, every: Sequence[Any]) -> tuple[Any, ...]:
        """The points of a curve that are run; the first and the last always."""
        return tuple(dict.fromkeys((*every[::3], every[-1]))) if self.thin else tuple(every)


class Found(NamedTuple):
    """One measured value."""

    source: str  # the data set
    scheme: str
    level: float  # epsilon, or what else a curve runs over
    trial: int
    metric: str
    value: float
    group: str = ""  # where a section must tell its rows from others'


class Outcome(NamedTuple):
    """What came of a task. Not private."""

    found: tuple[Found, ...]


class Summary(NamedTuple):
    """Mean and 95 % interval over the trials."""

    mean: float
    low: float
    high: float
    trials: int


class Results:
    """All that was found for one section. Not private.

    Parameters
    ----------
    rows : sequence of Found
        In the order of the trials.
    """

    def __init__(self, rows: Sequence[Found]) -> None:
        self.rows = rows
        self._values: dict[tuple[str, str, float, str, str], list[float]] = {}
        for row in rows:
            key = (row.source, row.scheme, row.level, row.metric, row.group)
            self._values.setdefault(key, []).append(row.value)

    def values(self, source: str, scheme: str, level: float, metric: str, group: str = "") -> Sequence[float]:
        """The values of all trials.

        Raises
        ------
        ParameterError
            There are none.
        """
        try:
            return self._values[source, scheme, level, metric, group]
        except KeyError:
            raise ParameterError(f"no {metric} of {scheme} on {source} at {level:g}") from None

    def of(self, source: str, scheme: str, level: float, metric: str, group: str = "") -> Summary:
        """Mean and interval of them."""
        values = self.values(source, scheme, level, metric, group)
        return Summary(*interval_of_mean(values), len(values))

    def has(self, source: str, scheme: str, level: float, metric: str, group: str = "") -> bool:
        """Whether there are any."""
        return (source, scheme, level, metric, group) in self._values

    def levels(self, metric: str, group: str = "") -> tuple[float, ...]:
        """What was run of a metric, ascending."""
        return tuple(sorted({key[2] for key in self._values if key[3:] == (metric, group)}))

    def sources(self, metric: str, group: str = "") -> tuple[str, ...]:
        """The data sets of a metric, in the order in which they were run."""
        return tuple(dict.fromkeys(key[0] for key in self._values if key[3:] == (metric, group)))

    def first(
        self, schemes: Sequence[str], source: str, level: float, metric: str, *, most: bool = False
    ) -> str:
        """The scheme with the least mean (the largest with ``most``)."""
        sign = -1 if most else 1
        return min(schemes, key=lambda scheme: sign * self.of(source, scheme, level, metric).mean)


class Section(NamedTuple):
    """A table or a figure; equal tasks of several sections are run once."""

    key: str  # such as "figure 8"
    jobs: Callable[[Plan, Path, int], Sequence[Any]]
    report: Callable[[Results], Report]


def shown(found: Summary, digits: int = 3) -> str:
    """The mean and half its interval."""
    half = found.high - found.mean
    text = f"{found.mean:.{digits}f}"
    return f"{text} ± {half:.1g}" if math.isfinite(half) and half > 10.0 ** -(digits + 1) else text


def curve(label: str, points: Mapping[float, Summary]) -> Curve:
    """Means along one variable, with their bands where three trials or more tell how wide they are."""
    kept = sorted(points)
    known = [points[x].trials >= 3 and np.isfinite(points[x].high) for x in kept]
    return Curve(
        label,
        kept,
        [points[x].mean for x in kept],
        [points[x].low if told else points[x].mean for x, told in zip(kept, known, strict=True)],
        [points[x].high if told else points[x].mean for x, told in zip(kept, known, strict=True)],
    )
