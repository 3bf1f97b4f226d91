"""Pairs of randomizer and estimator, and results of the reproduction of Wang et al. (2022)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from mapveil.local.local_mechanism import LocalMechanism
from mapveil.mechanisms.methods import DEFAULT_METHODS, find_method
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from reproductions.data import printed_figures
from reproductions.results import Outcome, Summary


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

PRINTED: Final = printed_figures("wang")
"""The paper's figures: Tables 1 and 3 to 14."""

SMALL_EPSILONS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Of Tables 5 to 12."""

PAPERS: Final = (
    Scheme("GRR", "grr", "simplex"),
    Scheme("OLH-H", "olh-h", "simplex", (("growth", 2), ("site_weight", 1))),
    Scheme("PLDP", "unary", "simplex"),
    Scheme("HR", "hr", "simplex", (("blocks", 1),)),
    Scheme(SRR, "srr", "simplex"),
)
"""The pairs of every figure and table. The equations over candidate sets have the solution of plain inversion."""


NAMES: Final = tuple(scheme.label for scheme in PAPERS)


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


class Results:
    """The rows of one section, in the order of the trials. Not private."""

    @classmethod
    def gather(cls, tasks: Sequence[Any], outcomes: Sequence[Outcome]) -> tuple[Results]:
        """The rows of all tasks of a section."""
        return (cls([row for outcome in outcomes for row in outcome.found]),)

    def __init__(self, rows: Sequence[Found]) -> None:
        self.rows = rows
        self._values: dict[tuple[str, str, float, str, str], list[float]] = {}
        for row in rows:
            key = (row.source, row.scheme, row.level, row.metric, row.group)
            self._values.setdefault(key, []).append(row.value)

    def values(self, source: str, scheme: str, level: float, metric: str, group: str = "") -> Sequence[float]:
        """The values of all trials."""
        try:
            return self._values[source, scheme, level, metric, group]
        except KeyError:
            raise ParameterError(f"no {metric} of {scheme} on {source} at {level:g}") from None

    def of(self, source: str, scheme: str, level: float, metric: str, group: str = "") -> Summary:
        """Mean and interval of them."""
        values = self.values(source, scheme, level, metric, group)
        return Summary.of(values)

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


def beside(text: str, table: str, row: str, column: str) -> str:
    """A text with the paper's figure in brackets, where it has one."""
    printed = PRINTED.get((table, row, column))
    return text if printed is None else f"{text} ({printed:g})"


def shown(found: Summary, digits: int = 3) -> str:
    """The mean and half its interval, where that would be seen."""
    return found.shown(digits, 10.0 ** -(digits + 1))
