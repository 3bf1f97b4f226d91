"""Pairs of randomizer and estimator, and results of the reproduction of Wang et al. (2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from mapveil.evaluation.html_report import Panel
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.mechanisms.methods import DEFAULT_METHODS, find_method
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from reproductions.data import printed_figures
from reproductions.report import Claim, joint_verdict
from reproductions.results import Outcome, Summary, curve


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
    """The default of ``--trust local``."""
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
        return Summary.of(self.values(source, scheme, level, metric, group))

    def has(self, source: str, scheme: str, level: float, metric: str, group: str = "") -> bool:
        """Whether there are any."""
        return (source, scheme, level, metric, group) in self._values

    def levels(self, metric: str, group: str = "") -> tuple[float, ...]:
        """What was run of a metric, ascending."""
        return tuple(sorted({key[2] for key in self._values if key[3:] == (metric, group)}))

    def sources(self, metric: str, group: str = "") -> tuple[str, ...]:
        """The data sets of a metric, in the order in which they were run."""
        return tuple(dict.fromkeys(key[0] for key in self._values if key[3:] == (metric, group)))

    def first(self, schemes: Sequence[str], source: str, level: float, metric: str) -> str:
        """The scheme with the least mean."""
        return min(schemes, key=lambda scheme: self.of(source, scheme, level, metric).mean)


class Curves(NamedTuple):
    """One metric of some schemes at every level that was run, by data set. Not private."""

    results: Results
    metric: str
    schemes: Sequence[str]
    group: str = ""
    least: float = 0.0  # level

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels, ascending."""
        return tuple(level for level in self.results.levels(self.metric, self.group) if level >= self.least)

    def line(self, source: str, scheme: str) -> dict[float, Summary]:
        """One scheme on one data set, by level."""
        return {
            level: self.results.of(source, scheme, level, self.metric, self.group) for level in self.levels
        }

    def panel(self, source: str, title: str, x: str = "ε", **about: Any) -> Panel:
        """The schemes' curves on one data set."""
        lines = [curve(scheme, self.line(source, scheme)) for scheme in self.schemes]
        return Panel(title, x, lines, **about)

    def rows(self, source: str, before: str = "") -> list[list[str]]:
        """A row for each scheme on one data set."""
        return [
            [f"{before}{scheme}", *map(shown, self.line(source, scheme).values())] for scheme in self.schemes
        ]

    def header(self, first: str) -> list[str]:
        """The header of such rows."""
        return [first, *(f"ε = {level:g}" for level in self.levels)]

    def leaders(self, source: str, *, most: bool = False) -> dict[float, str]:
        """The paper's scheme with the least mean (the largest with ``most``), by level."""
        sign = -1 if most else 1
        lines = {name: self.line(source, name) for name in NAMES}
        return {level: min(NAMES, key=lambda name: sign * lines[name][level].mean) for level in self.levels}


def first_claim(claim: str, won: Mapping[str, Mapping[float, str]]) -> Claim:
    """Whether the staircase leads on every data set at every level."""
    return Claim(
        claim,
        joint_verdict([name == SRR for each in won.values() for name in each.values()]),
        "; ".join(f"{source}: first is {levels_of(each)}" for source, each in won.items()),
    )


def levels_of(won: Mapping[float, str]) -> str:
    """The levels at which each scheme leads."""
    words = []
    for scheme in dict.fromkeys(won.values()):
        mine = [level for level, name in won.items() if name == scheme]
        words.append(f"{scheme} at {', '.join(f'{level:g}' for level in mine)}")
    return " and ".join(words)


def beside(text: str, table: str, row: str, column: str) -> str:
    """A text with the paper's figure in brackets, where there is one."""
    printed = PRINTED.get((table, row, column))
    return text if printed is None else f"{text} ({printed:g})"


def shown(found: Summary, digits: int = 3) -> str:
    """The mean and half its interval, where that shows."""
    return found.shown(digits, 10.0 ** -(digits + 1))
