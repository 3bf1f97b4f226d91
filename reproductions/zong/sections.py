"""What a table or a figure of the reproduction of Zong et al. (2023) is, and curves of performance against privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.evaluation.comparison import interval_of_mean
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from reproductions.reproduction import Report

WAVES: Final = "projection"
NOISE: Final = "GeoInd"
EXACT: Final = "federated KDE"
SILENCE: Final = "0 features"

AGAINST_TRUTH: Final = "rank correlation with the truth"
AGAINST_EXACT: Final = "rank correlation with the exact KDE"
ERROR: Final = "relative error"
"""Root mean square difference from the exact KDE, over the KDE's own root mean square."""

FEATURES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 50)
"""B of the paper's experiments."""

PLAIN_EPSILONS: Final = (0.6, 0.7, 0.8, 1.0, 3.0, 5.0, 10.0)
"""Epsilon of GeoInd for the synthetic sets, section 4.2.3."""

CITY_EPSILONS: Final = (10.0, 15.0, 50.0, 100.0, 500.0, 1000.0)
"""The same for the real ones, per degree."""


class Plan(NamedTuple):
    """How much of everything is run."""

    trials: int  # of synthetic sets: people and waves are drawn anew
    city_trials: int  # waves are drawn anew
    scored: int  # people whose surfaces are searched for maxima, in the first trial
    devices: int  # against a server with a prior
    releases: int  # of each private map

    @classmethod
    def full(cls) -> Plan:
        """Twenty trials of the synthetic sets, five of the cities."""
        return cls(20, 5, 2000, 512, 5)

    @classmethod
    def quick(cls) -> Plan:
        """Three and one."""
        return cls(3, 1, 150, 128, 2)


class Found(NamedTuple):
    """One measured value."""

    source: str  # "a", "b", a city, or a part of the report
    users: int
    trial: int
    method: str
    level: float  # features, or epsilon in the paper's unit; 0 where there is none
    metric: str
    value: float


class Outcome(NamedTuple):
    """What came of a task. Not private."""

    found: tuple[Found, ...]
    maps: dict[tuple[str, str], FloatArray]  # by source and label, rows from north to south


class Summary(NamedTuple):
    """Mean and 95 % interval over the trials."""

    mean: float
    low: float
    high: float
    trials: int

    def shown(self, digits: int = 3) -> str:
        """The mean and half its interval."""
        half = self.high - self.mean
        text = f"{self.mean:.{digits}f}"
        return f"{text} ± {half:.1g}" if math.isfinite(half) and half > 0 else text


def summary(rows: Sequence[Found], metric: str, **wanted: object) -> Summary:
    """Mean and interval of the rows whose fields are as wanted.

    Raises
    ------
    ParameterError
        There is no such row.
    """
    values = [
        row.value
        for row in rows
        if row.metric == metric and all(getattr(row, name) == value for name, value in wanted.items())
    ]
    if not values:
        raise ParameterError(f"no row has {metric} of {wanted}")
    return Summary(*interval_of_mean(values), len(values))


class Point(NamedTuple):
    """One setting of a method: what it keeps private, and how good its map is."""

    level: float
    privacy: float
    performance: float


class Results(NamedTuple):
    """All that was found for one section. Not private."""

    rows: Sequence[Found]
    maps: Mapping[tuple[str, str], FloatArray]  # by source and label

    def of(self, metric: str, **wanted: object) -> Summary:
        """See :func:`summary`."""
        return summary(self.rows, metric, **wanted)

    def levels(self, source: str, method: str) -> tuple[float, ...]:
        """The settings of a method that were run, ascending."""
        return tuple(
            sorted({row.level for row in self.rows if row.source == source and row.method == method})
        )

    def points(
        self, source: str, method: str, performance: str, *, users: int | None = None, privacy: str = "score"
    ) -> tuple[Point, ...]:
        """A method's settings as points; privacy is that of any number of users, which it does not depend on."""
        wanted: dict[str, object] = {"source": source, "method": method}
        made = []
        for level in self.levels(source, method):
            hidden = self.of(privacy, **wanted, level=level)
            crowd = {} if users is None else {"users": users}
            made.append(Point(level, hidden.mean, self.of(performance, **wanted, level=level, **crowd).mean))
        return tuple(made)


class Section(NamedTuple):
    """A table or a figure; equal tasks of several sections are run once."""

    key: str  # such as "figure 10"
    jobs: Callable[[Plan, Path, int], Sequence[Any]]
    report: Callable[[Results], Report]


def at_same_privacy(points: Sequence[Point], privacy: float) -> float:
    """The performance of a method at a given privacy, between its settings; of the nearest beyond them.

    Examples
    --------
    >>> at_same_privacy([Point(1, 10.0, 0.5), Point(2, 20.0, 0.3)], 15.0)
    0.4
    """
    ordered = sorted(points, key=lambda point: point.privacy)
    return float(
        np.interp(privacy, [point.privacy for point in ordered], [point.performance for point in ordered])
    )
