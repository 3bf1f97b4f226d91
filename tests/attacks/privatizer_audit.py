r"""An empirical lower bound on the epsilon of privatized measurements, at their delta.

If an event E has probability p under one report and p' under another, no :math:`(\epsilon, \delta)` with
:math:`\epsilon < \ln((p - \delta) / p')` can be true of the privatizer. Privatizing both reports many times bounds p
from below and p' from above:

.. math:: \hat\epsilon = \ln \frac{L_\beta(k, n) - \delta}{U_\beta(k', n)}

where: k and k' of n privatizations fell into E; :math:`L_\beta` and :math:`U_\beta` are the one-sided Clopper-Pearson
bounds of error :math:`\beta` = (1 - ``confidence``) / 2 each. Pair, statistic and threshold are chosen on other
privatizations than those that judge them. A bound above the claim refutes it; one below proves nothing.

Source: as :mod:`mapveil.attacks.epsilon_audit`, with delta as in Jagielski, Ullman, Oprea (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.attacks.epsilon_audit import AuditReport
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil_client.arrays import FloatArray
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

Statistic = Callable[[FloatArray, FloatArray], FloatArray]

_FAR: Final = 1e6
_CHUNK: Final = 1 << 16
_THRESHOLDS: Final = 400
_FEWEST: Final = 1_000


class _Pair(NamedTuple):
    name: str
    report: FloatArray  # the other one is its opposite


def _projection(rows: FloatArray, centre: FloatArray) -> FloatArray:
    return np.asarray(rows @ (centre / np.linalg.norm(centre)))


def _nearness(rows: FloatArray, centre: FloatArray) -> FloatArray:
    return np.asarray((np.abs(rows + centre) - np.abs(rows - centre)).sum(axis=1))


# The likelihood ratios of Gaussian and of Laplacian noise around a centre and its opposite, up to their scale.
_STATISTICS: Final[tuple[tuple[str, Statistic], ...]] = (
    ("projection on the line between the reports", _projection),
    ("difference of the L1 distances from the reports", _nearness),
)


class _Event(NamedTuple):
    pair: _Pair
    centre: FloatArray  # what clipping makes of the pair's report
    name: str
    statistic: Statistic
    threshold: float

    def count(self, parts: Iterator[FloatArray]) -> int:
        """In how many of the privatizations it happened."""
        return sum(int((self.statistic(part, self.centre) > self.threshold).sum()) for part in parts)


def audit_privatizer(
    fitted: FittedPrivatizer,
    *,
    claimed: EpsilonLike | None = None,
    trials: int = 200_000,
    confidence: float = 0.999,
    rng: Randomness | int | None = None,
) -> AuditReport:
    """Bound a privatizer's epsilon from below by privatizing opposite reports. Run by: an auditor.

    The reports lie far out and opposite each other, so that clipping brings them to the two ends of its ball: along
    one feature, along all at once. They are given to the mechanism itself, behind the normalisation, which would
    cut them to the pilot's range.

    Parameters
    ----------
    fitted : FittedPrivatizer
        One that promises an epsilon.
    claimed : int, float, str, Decimal or Fraction, optional
        The epsilon under test, at the guarantee's delta; the guarantee's own if left out.
    trials : int
        Privatizations of each report of a pair; as many again choose what is looked at.
    confidence : float
        Probability that a true claim is not refuted, in (0, 1).
    rng : Randomness, int or None
        The source of bits.

    Raises
    ------
    ParameterError
        The privatizer promises nothing, too few trials, or no such confidence.
    """
    promise = fitted.guarantee()
    delta = float(promise.delta)
    if promise.epsilon is None:
        raise ParameterError(f"{fitted.privatizer.name} claims no epsilon that could be audited")
    if trials < _FEWEST:
        raise ParameterError(f"trials is {trials}; at least {_FEWEST} are accepted")
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence is {confidence!r}; a number between 0 and 1 is accepted")
    stream = as_randomness(rng)
    error = (1 - confidence) / 2
    pairs = _pairs(len(fitted.names) * fitted.privatizer.sequence)
    share = max(trials // len(pairs), _FEWEST // 2)
    choices = (_choose(fitted, pair, share, delta, error, stream) for pair in pairs)
    event = max(choices, key=lambda choice: choice[0])[1]
    counts = [
        event.count(_privatized(fitted, report, trials, stream))
        for report in (event.pair.report, -event.pair.report)
    ]
    bound = _bound(np.array(counts[:1]), np.array(counts[1:]), trials, delta, error)[0]
    return AuditReport(
        epsilon_lower=max(float(bound), 0.0),
        claimed=promise.epsilon if claimed is None else as_epsilon(claimed, "claimed"),
        trials=trials,
        statistic=f"{event.name} above {event.threshold:.4g}",
        neighbours=event.pair.name,
        confidence=confidence,
    )


def _pairs(width: int) -> tuple[_Pair, ...]:
    one = np.zeros(width)
    one[0] = _FAR
    return (
        _Pair("reports at opposite ends of one feature", one),
        _Pair("reports at opposite ends of all features", np.full(width, _FAR)),
    )


def _privatized(
    fitted: FittedPrivatizer, report: FloatArray, count: int, rng: Randomness
) -> Iterator[FloatArray]:
    """Privatizations of one report, in parts, in normalised units."""
    for start in range(0, count, _CHUNK):
        rows = np.tile(report, (min(_CHUNK, count - start), 1))
        yield fitted.privatizer.privatize(fitted.state, rows, rng)


def _choose(
    fitted: FittedPrivatizer, pair: _Pair, runs: int, delta: float, error: float, rng: Randomness
) -> tuple[float, _Event]:
    """The event of a pair that tells most, and its bound on the runs it was chosen from."""
    sides = [
        np.concatenate(list(_privatized(fitted, report, runs, rng))) for report in (pair.report, -pair.report)
    ]
    centre = (sides[0].mean(axis=0) - sides[1].mean(axis=0)) / 2
    best = (-np.inf, _Event(pair, centre, *_STATISTICS[0], 0.0))
    for name, statistic in _STATISTICS:
        likely, rare = (np.sort(statistic(rows, centre)) for rows in sides)
        thresholds = np.unique(np.quantile(likely, 1 - np.geomspace(5 / runs, 0.9, _THRESHOLDS)))
        counts = [runs - np.searchsorted(values, thresholds, side="right") for values in (likely, rare)]
        bounds = _bound(counts[0], counts[1], runs, delta, error)
        at = int(np.argmax(bounds))
        if bounds[at] > best[0]:
            best = (float(bounds[at]), _Event(pair, centre, name, statistic, float(thresholds[at])))
    return best


def _bound(
    likely: npt.NDArray[np.int64], rare: npt.NDArray[np.int64], runs: int, delta: float, error: float
) -> FloatArray:
    from scipy.special import betaincinv

    # Clopper-Pearson; both functions are undefined where the bound is 0 or 1 by definition.
    lower = np.where(likely > 0, betaincinv(np.maximum(likely, 1), runs - likely + 1, error), 0.0)
    upper = np.where(rare < runs, betaincinv(rare + 1, np.maximum(runs - rare, 1), 1 - error), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(lower - delta, 0)) - np.log(upper), dtype=np.float64)
