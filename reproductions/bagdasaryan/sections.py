"""What a table or a figure of the reproduction of Bagdasaryan et al. (2022) is: what it runs, and what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.report import Curve
from mapveil.maps.round_cost import RoundCost
from mapveil_client.arrays import FloatArray
from reproductions.bagdasaryan.runs import Found, Summary, summary
from reproductions.reproduction import Claim, Picture, Report, Table, joint_verdict

__all__ = [
    "UNIT",
    "Ahead",
    "Claim",
    "Picture",
    "Plan",
    "Report",
    "Results",
    "Section",
    "Shown",
    "Table",
    "at_most",
    "curve",
    "joint_verdict",
    "within",
]


UNIT = 1e13
"""Mean squared errors of Manhattan are written in units of 1e-13, as in the paper."""


class Plan(NamedTuple):
    """How much of everything is run."""

    trials: int  # seeds of each row of a table
    sweep_trials: int  # of each point of a curve
    thin: bool  # every second point of a curve, no largest ones

    @classmethod
    def full(cls) -> Plan:
        """Twenty seeds everywhere."""
        return cls(20, 20, False)

    @classmethod
    def quick(cls) -> Plan:
        """Three, and fewer points."""
        return cls(3, 3, True)

    def points(self, every: Sequence[Any]) -> tuple[Any, ...]:
        """The points of a curve that are run."""
        return tuple(every[::2] if self.thin else every)


class Ahead(NamedTuple):
    """A paired difference: positive where the row that should have less has it."""

    mean: float
    low: float  # of the 95 % confidence interval of the mean
    high: float

    @property
    def clear(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0


class Results(NamedTuple):
    """All that was found for one section. Not private."""

    rows: Sequence[Found]
    maps: Mapping[tuple[str, str], FloatArray]  # by image and label
    costs: Mapping[tuple[str, str], tuple[RoundCost, ...]]  # by image and label

    def of(self, metric: str = "mse", **wanted: object) -> Summary:
        """Mean and interval of the rows whose fields are as wanted; see :func:`summary`."""
        return summary(self.rows, metric, **wanted)

    def ahead(self, better: str, worse: str, metric: str = "mse", **wanted: object) -> Ahead:
        """How much less one row has than another, trial by trial: the same people, asked both ways."""
        more, less = (
            np.array(self.values("value", metric, label=label, **wanted)) for label in (worse, better)
        )
        return Ahead(*interval_of_mean(more - less))

    def values(self, field: str, metric: str = "mse", **wanted: object) -> list[Any]:
        """One field of those rows, such as their rounds."""
        return [
            getattr(row, field)
            for row in self.rows
            if row.metric == metric and all(getattr(row, name) == value for name, value in wanted.items())
        ]


class Section(NamedTuple):
    """A table or a figure.

    ``jobs`` makes tasks for :func:`reproductions.bagdasaryan.runs.run_job` or
    :func:`reproductions.bagdasaryan.proportions.run_proportions`; both answer with outcomes.
    """

    key: str  # such as "table 1"; the group of its jobs
    jobs: Callable[[Plan, Path, int], Sequence[Any]]
    report: Callable[[Results], Report]


class Shown(NamedTuple):
    """How a mean is written."""

    unit: float = UNIT
    digits: int = 2

    def __call__(self, found: Summary) -> str:
        """The mean and half its 95 % interval."""
        half = (found.high - found.mean) * self.unit
        text = f"{found.mean * self.unit:.{self.digits}f}"
        # Rounding of the last digits is no spread.
        if not math.isfinite(half) or half <= 1e-9 * abs(found.mean) * self.unit:
            return text
        spread = f"{half:.{self.digits}f}"
        return f"{text} ± {spread if float(spread) > 0 else f'{half:.1g}'}"


def within(found: float, target: float, part: float) -> str:
    """The verdict on a figure that must come out within a part of the paper's."""
    return "holds" if abs(found / target - 1) <= part else "does not hold"


def at_most(found: float, bound: float) -> str:
    """The verdict on a figure that must not exceed a bound."""
    return "holds" if found <= bound else "does not hold"


def curve(label: str, points: Sequence[tuple[float, Summary]], unit: float = UNIT) -> Curve:
    """Means with their bands along one variable."""
    return Curve(
        label,
        [x for x, _ in points],
        [found.mean * unit for _, found in points],
        [found.low * unit for _, found in points],
        [found.high * unit for _, found in points],
    )
