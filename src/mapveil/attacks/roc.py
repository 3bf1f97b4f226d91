r"""ROC of an adversary who decides "in" or "out", with intervals, beside the best one that a guarantee allows.

Under (epsilon, delta)-DP between in and out, every test with false-positive rate a has at most the true-positive rate

.. math:: \beta(a) = \min\{1,\ e^\epsilon a + \delta,\ 1 - e^{-\epsilon} (1 - \delta - a)\}, \qquad
          \mathrm{AUC} \le \int_0^1 \beta(a)\, da, \quad\text{for } \delta = 0:\ \frac{e^\epsilon}{1 + e^\epsilon}

Source: Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015), Theorem 2.1. True-positive
rates at small a: Carlini et al., "Membership Inference Attacks From First Principles" (2022).
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from mapveil_client.arrays import BoolArray, FloatArray, IntArray

RATES: Final = (0.01, 0.001)
"""False-positive rates at which true-positive rates are reported."""

_SHOWN: Final = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 81)])  # rates of a drawn curve
_DRAWS: Final = 400  # of the bootstrap: the ends of a 95 % interval rest on ten of them


@dataclass(frozen=True)
class Estimate95:
    """A figure with its bootstrap interval of 95 %, and the largest value that the guarantee allows."""

    value: float
    low: float
    high: float
    bound: float | None = None  # None without a guarantee


@dataclass(frozen=True)
class Roc:
    """Success against one way of publishing."""

    published: str
    auc: Estimate95
    tpr: tuple[Estimate95, ...]  # true-positive rates at RATES
    curve: tuple[tuple[float, float], ...]  # false- and true-positive rates
    guarantee: tuple[float, float] | None  # epsilon and delta


def largest_tpr(rates: FloatArray, epsilon: float, delta: float = 0.0) -> FloatArray:
    """The bound of the module's header at false-positive rates."""
    low, high = math.exp(min(epsilon, 700.0)) * rates + delta, 1 - math.exp(-epsilon) * (1 - delta - rates)
    return np.minimum(np.minimum(low, high), 1.0)


def largest_auc(epsilon: float, delta: float = 0.0) -> float:
    """The integral of :func:`largest_tpr`, exactly: between its corners the bound is a line.

    Examples
    --------
    >>> round(largest_auc(1.0), 4)
    0.7311
    """
    corner = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    rates = np.array([0.0, corner, 1 - delta, 1.0])
    return _area(rates, largest_tpr(rates, epsilon, delta))


def roc(
    published: str,
    scores: FloatArray,
    present: BoolArray,
    draw: IntArray,
    rng: np.random.Generator,
    guarantee: tuple[float, float] | None = None,
) -> Roc:
    """Measure scores that should be high for those who are in.

    Parameters
    ----------
    published : str
        The way of publishing, in words.
    scores : ndarray of float64, shape (trials,)
        The adversary's scores.
    present : ndarray of bool, shape (trials,)
        Whether the target was in.
    draw : ndarray of int64, shape (trials,)
        Number of the independent draw that each trial belongs to, such as one map: the bootstrap resamples these.
    rng : numpy.random.Generator
        Of the bootstrap.
    guarantee : tuple of float, optional
        epsilon and delta between in and out.
    """
    order = np.argsort(-scores, kind="stable")
    present, draw = present[order], draw[order]
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # equal scores are decided together
    number = int(draw.max()) + 1
    weights = np.vstack([np.ones(number), rng.multinomial(number, np.full(number, 1 / number), size=_DRAWS)])
    found = np.empty((len(weights), 1 + len(RATES)))
    for row, weight in enumerate(weights[::-1]):  # the last one is the sample itself
        each = weight[draw]
        fpr, tpr = (np.append(0.0, np.cumsum(each * held)[ends]) for held in (~present, present))
        fpr, tpr = fpr / max(fpr[-1], 1.0), tpr / max(tpr[-1], 1.0)
        # The best test with at most the rate: between two thresholds nothing is interpolated.
        found[row] = _area(fpr, tpr), *tpr[np.searchsorted(fpr, RATES, side="right") - 1]
    low, high = np.quantile(found[:-1], (0.025, 0.975), axis=0)
    bounds: list[float | None] = [None] * found.shape[1]
    if guarantee is not None:
        bounds = [largest_auc(*guarantee), *largest_tpr(np.array(RATES), *guarantee).tolist()]
    auc, *rates = map(Estimate95, found[-1].tolist(), low.tolist(), high.tolist(), bounds)
    shown = tpr[np.searchsorted(fpr, _SHOWN, side="right") - 1]
    curve = tuple(zip(_SHOWN.tolist(), shown.tolist(), strict=True))
    return Roc(published, auc, tuple(rates), curve, guarantee)


def _area(x: FloatArray, y: FloatArray) -> float:
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))
