"""Settings and results of the reproduction of Zong et al. (2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from reproductions import results

PROJECTION: Final = "projection"
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

    trials: int  # of synthetic sets: people and frequencies are drawn anew
    city_trials: int  # frequencies are drawn anew
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


class Point(NamedTuple):
    """One setting of a method: what it keeps private, and how good its map is."""

    level: float
    privacy: float
    performance: float


class Results(results.Results):
    """The results of one section, with settings as points."""

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

    def rivals(
        self, source: str, metric: str, levels: Sequence[float], users: int | None = None
    ) -> list[tuple[Point, float]]:
        """The projection's points of some levels, and what GeoInd reaches at the privacy of each."""
        noise = self.points(source, NOISE, metric, users=users)
        own = self.points(source, PROJECTION, metric, users=users)
        return [(point, at_same_privacy(noise, point.privacy)) for point in own if point.level in levels]


def settings(epsilons: Sequence[float]) -> list[tuple[str, float, str]]:
    """Method, level and label of every answer with features, and with noise."""
    return [
        *((PROJECTION, level, f"B = {level}") for level in FEATURES),
        *((NOISE, level, f"GeoInd, ε = {level:g}") for level in epsilons),
    ]


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
