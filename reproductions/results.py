"""Results of tasks: measured rows, their means and 95 % intervals over the trials, and curves of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.html_report import Curve
from mapveil.maps.round_cost import RoundCost
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError


class Outcome(NamedTuple):
    """The answer of a task: measured rows, and maps and costs where they were kept. Not private."""

    found: tuple[Any, ...]  # named tuples with the fields metric and value
    maps: Mapping[tuple[str, str], FloatArray] = {}  # by source and label, rows from north to south
    costs: Mapping[tuple[str, str], tuple[RoundCost, ...]] = {}  # of each round, by source and label


def found_rows(outcomes: Iterable[Outcome]) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Header and rows of all outcomes."""
    rows = [row for outcome in outcomes for row in outcome.found]
    return (rows[0]._fields if rows else ()), rows


class Summary(NamedTuple):
    """One metric over the trials."""

    mean: float
    low: float  # of the 95 % confidence interval of the mean
    high: float
    trials: int
    length: float = 0.0  # mean coordinates that a device sends, where rows have it
    rounds: float = 0.0  # mean rounds, where rows have them

    @classmethod
    def of(cls, values: Sequence[float], *costs: float) -> Summary:
        """Mean and interval of the values of all trials."""
        return cls(*interval_of_mean(values), len(values), *costs)

    def shown(self, digits: int = 3, least: float = 0.0) -> str:
        """The mean and half its interval, where that is above ``least``."""
        half = self.high - self.mean
        text = f"{self.mean:.{digits}f}"
        return f"{text} ± {half:.1g}" if math.isfinite(half) and half > least else text


class Ahead(NamedTuple):
    """A paired difference with its 95 % interval: positive where the better row has less."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0


@dataclass(frozen=True)
class Results:
    """The measured rows, maps and costs of one section. Not private."""

    rows: Sequence[Any]
    maps: Mapping[tuple[str, str], FloatArray] = field(default_factory=dict)
    costs: Mapping[tuple[str, str], tuple[RoundCost, ...]] = field(default_factory=dict)

    @classmethod
    def gather(cls, tasks: Sequence[Any], outcomes: Sequence[Outcome]) -> tuple[Self]:
        """All rows; of several maps or costs with one label the first."""
        maps = {key: values for each in reversed(outcomes) for key, values in each.maps.items()}
        costs = {key: spent for each in reversed(outcomes) for key, spent in each.costs.items()}
        return (cls([row for each in outcomes for row in each.found], maps, costs),)

    def values(self, name: str = "value", metric: str = "mse", **wanted: object) -> list[Any]:
        """One field of the rows whose metric and fields are as wanted."""
        fields = {"metric": metric, **wanted}.items()
        chosen = [row for row in self.rows if all(getattr(row, key) == value for key, value in fields)]
        if not chosen:
            raise ParameterError(f"no row has {metric} of {wanted}")
        return [getattr(row, name) for row in chosen]

    def of(self, metric: str = "mse", **wanted: object) -> Summary:
        """Mean and interval of those rows, with the means of what they cost."""
        costs = (
            float(np.mean(self.values(name, metric, **wanted)))
            for name in ("length", "rounds")
            if hasattr(self.rows[0], name)
        )
        return Summary.of(self.values("value", metric, **wanted), *costs)

    def ahead(self, better: str, worse: str, metric: str = "mse", **wanted: object) -> Ahead:
        """The difference of two rows, trial by trial: the same people by both methods."""
        more, less = (
            np.array(self.values("value", metric, label=label, **wanted)) for label in (worse, better)
        )
        return Ahead(*interval_of_mean(more - less))


def curve(
    label: str, points: Mapping[float, Summary] | Iterable[tuple[float, Summary]], unit: float = 1.0
) -> Curve:
    """Means along one variable, with their bands where three trials or more tell how wide they are."""
    kept = sorted(dict(points).items())
    bands = [
        (found.low, found.high) if found.trials >= 3 and np.isfinite(found.high) else (found.mean, found.mean)
        for _, found in kept
    ]
    means = [found.mean * unit for _, found in kept]
    return Curve(
        label,
        [x for x, _ in kept],
        means,
        [low * unit for low, _ in bands],
        [high * unit for _, high in bands],
    )
