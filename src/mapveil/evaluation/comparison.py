"""The result of a comparison of mechanisms: one tidy row per measured value, and its summaries."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Row(NamedTuple):
    """One metric of one release."""

    method: str  # as requested, with its options
    epsilon: float
    trial: int
    metric: str
    value: float
    seconds: float  # of the release, without sampling and without metrics
    length: int = 0  # coordinates that a device sends over secure sums, all rounds


class Summary(NamedTuple):
    """One metric of one method at one epsilon, over the trials."""

    method: str
    epsilon: float
    metric: str
    mean: float
    low: float  # of the 95 % confidence interval of the mean
    high: float
    trials: int
    seconds: float  # mean
    length: float = 0.0  # mean


def interval_of_mean(values: npt.ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    r"""Mean and Student's t confidence interval, over the finite values.

    .. math:: \bar{x} \pm t_{(1 + c) / 2,\, n - 1}\, s / \sqrt{n}

    where: :math:`\bar{x}` and :math:`s` are mean and standard deviation of the :math:`n` finite
    ``values`` (one per independent trial), and c is the confidence ``level``. The result is mean, lower and upper
    end: unbounded for one value, NaN without a finite one.

    Examples
    --------
    >>> mean, low, high = interval_of_mean([1.0, 2.0, 3.0])
    >>> mean, round(low, 2), round(high, 2)
    (2.0, -0.48, 4.48)
    """
    from scipy import stats

    sample = np.asarray(values, dtype=np.float64)
    sample = sample[np.isfinite(sample)]
    if sample.size == 0:
        return float("nan"), float("nan"), float("nan")
    mean = float(sample.mean())
    if sample.size == 1:
        return mean, float("-inf"), float("inf")
    spread = float(sample.std(ddof=1)) / float(np.sqrt(sample.size))
    half = float(stats.t.ppf((1 + level) / 2, sample.size - 1)) * spread
    return mean, mean - half, mean + half


def summarise(rows: Iterable[Row]) -> tuple[Summary, ...]:
    """Mean and 95 % confidence interval per method, epsilon and metric, in the rows' order."""
    groups: dict[tuple[str, float, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.method, row.epsilon, row.metric), []).append(row)
    found = []
    for (method, epsilon, metric), members in groups.items():
        mean, low, high = interval_of_mean([row.value for row in members])
        seconds, length = (
            float(np.mean(each))
            for each in ([row.seconds for row in members], [row.length for row in members])
        )
        found.append(Summary(method, epsilon, metric, mean, low, high, len(members), seconds, length))
    return tuple(found)


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`mapveil.evaluation.compare.compare`. Not private."""

    rows: tuple[Row, ...]  # every measured value
    title: str
    settings: dict[str, Any] = field(default_factory=dict)  # JSON-ready: source, tiling, smoothing, seed, ...

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order requested."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets, ascending."""
        return tuple(sorted({row.epsilon for row in self.rows}))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics, in the order requested."""
        return tuple(dict.fromkeys(row.metric for row in self.rows))

    def summary(self) -> tuple[Summary, ...]:
        """Mean and 95 % confidence interval per method, epsilon and metric."""
        return summarise(self.rows)

    def values(self, method: str, metric: str, epsilon: float | None = None) -> npt.NDArray[np.float64]:
        """The values of one method and metric (at one epsilon), in trial order."""
        return np.array(
            [
                row.value
                for row in self.rows
                if row.method == method and row.metric == metric and epsilon in (None, row.epsilon)
            ]
        )


def table_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV text; floats keep all their digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([repr(item) if isinstance(item, float) else item for item in row] for row in rows)
    return buffer.getvalue()
