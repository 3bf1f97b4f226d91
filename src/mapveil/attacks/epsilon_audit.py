r"""An empirical lower bound on epsilon: does a mechanism keep what it claims?

A fair coin picks one of two neighbouring inputs, the mechanism runs on it, and an adversary who sees the output guesses
the input, or abstains. If the mechanism is :math:`\epsilon`-DP, each guess is right with probability at most
:math:`e^\epsilon / (1 + e^\epsilon)`, whatever the output and the other guesses were. So

.. math:: \hat\epsilon = \ln \frac{L}{1 - L}, \qquad L = L_\beta(k - v, r - v), \qquad \beta = 0.9\, (1 - c)

where: k of r guesses were right, :math:`L_\beta` is the lower Clopper-Pearson bound of error :math:`\beta` and c is
``confidence``. An :math:`(\epsilon, \delta)`-DP mechanism is post-processing of one that is :math:`\epsilon`-DP but
gives the input away with probability :math:`\delta`: in more than v runs with probability 0.1 (1 - c) at most. Guesses
for either input count together, so that all runs on the pair tell. The same guesses bound the trade-off of false alarms
and misses:

.. math:: \hat\mu = \Phi^{-1}(1 - \bar a) - \Phi^{-1}(\bar b)

where: :math:`\bar a, \bar b` are upper bounds of error :math:`\beta / 2` on the probabilities to guess "present" of an
absent user and not to guess it of a present one; no mechanism with the trade-off of a Gaussian shift below
:math:`\hat\mu` can have both.

The pair, the score and its thresholds are chosen on runs that are not judged: all pairs are tried in short, the best
eighth in longer runs, then the best one; the score is a statistic of :mod:`mapveil.attacks.audited_runs`, or the
likelihood ratio of the noisy sums together with that of the queries asked, counted on half of the pair's runs.

A bound above the claim refutes it, up to the stated confidence. A bound below the claim proves nothing: it says
that this adversary, with these inputs and so many runs, found no fault.

Source: Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run" (2023), Theorem 2.1, for the guesses;
Dong, Roth, Su, "Gaussian Differential Privacy" (2022), for the trade-off; Kairouz, Oh, Viswanath, "The
Composition Theorem for Differential Privacy" (2015), Theorem 3.3, for :math:`\delta`; Ding, Wang, Wang, Zhang, Kifer,
"Detecting Violations of Differential Privacy" (2018), for the choice of events.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from mapveil.attacks.audited_inputs import Neighbours
from mapveil.attacks.audited_runs import REPORT, STATISTICS, Runs, audited_runs
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.mechanisms.mechanism import AnyMechanism, Mechanism
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import EpsilonLike, as_epsilon, readable
from mapveil_client.errors import ParameterError, check
from mapveil_client.randomness.random import Randomness, as_randomness

_THRESHOLDS: Final = 100
_FEWEST: Final = 20
_LENIENT: Final = 0.1  # error of the bounds that rank pairs by few runs
_KEPT: Final = 8  # of so many pairs one is kept from stage to stage
_QUERIES: Final = "the queries asked"


class AuditReport(NamedTuple):
    """Result of an audit."""

    epsilon_lower: float  # the true epsilon is above this, at the stated confidence
    claimed: Fraction
    trials: int  # runs on each input, about
    statistic: str  # the score that told most
    neighbours: str  # the inputs it told apart
    confidence: float
    mu_lower: float = 0.0  # a Gaussian trade-off that contains the mechanism's has a shift above this

    @property
    def holds(self) -> bool:
        """Whether the claim stands unrefuted."""
        return self.epsilon_lower <= self.claimed

    def __repr__(self) -> str:
        verdict = "no fault found" if self.holds else "REFUTED"
        return (
            f"Epsilon audit: {verdict}; claimed epsilon {readable(self.claimed)}, these runs show at least "
            f"{self.epsilon_lower:.4g} ({100 * self.confidence:g} % confidence)\n"
            f"  inputs    {self.neighbours}, {self.trials} runs on each\n"
            f"  told by   {self.statistic}\n"
            f"  mu-GDP    mu at least {self.mu_lower:.4g} (Gaussian differential privacy)"
        )


class _Adversary(NamedTuple):
    """Guesses of a score: one side from ``high`` on, the other up to ``low``."""

    column: int  # of the statistics; one past them for the queries alone
    shapes: IntArray  # known queries, ascending
    odds: FloatArray  # their log-odds of presence
    high: float
    low: float
    sign: int  # 1 where high scores say present

    def scores(self, runs: Runs) -> FloatArray:
        """The score of each run."""
        known = np.minimum(np.searchsorted(self.shapes, runs.shape), self.shapes.size - 1)
        asked = np.where(self.shapes[known] == runs.shape, self.odds[known], 0.0)
        if self.column == runs.statistics.shape[1]:
            return asked
        return np.asarray(runs.statistics[:, self.column] + asked * (self.column == 0))

    def guesses(self, runs: Runs) -> tuple[int, int]:
        """Numbers of right guesses and of guesses."""
        score = self.scores(runs)
        above, below = score >= self.high, score <= self.low
        right = np.where(above, runs.present == (self.sign > 0), runs.present == (self.sign < 0))
        return int(right[above | below].sum()), int((above | below).sum())


def no_claim(name: str) -> ParameterError:
    """The error of a method without an epsilon."""
    return ParameterError(
        f"{name} claims no epsilon: it is not differential privacy, and this audit tests an epsilon"
    )


def audit_epsilon(
    mechanism: AnyMechanism,
    neighbours: Sequence[Neighbours],
    *,
    claimed: EpsilonLike | None = None,
    trials: int = 20_000,
    confidence: float = 0.999,
    rng: Randomness | int | None = None,
) -> AuditReport:
    """Bound a mechanism's epsilon from below by guessing which of two neighbouring inputs it ran on.

    A quarter of the runs chooses the pair, a quarter the score and its thresholds (of one pair, a quarter does both),
    and the rest is judged. The formulas are in the module's header. Run by: an auditor.

    Parameters
    ----------
    mechanism : AnyMechanism
        The mechanism under audit: a curator's; one over secure sums, under the least noise its guarantee allows; or a
        local one, by single reports (:mod:`mapveil.attacks.audited_runs`).
    neighbours : sequence of Neighbours
        The pairs to try, such as those of :func:`mapveil.attacks.audited_inputs.worst_neighbours`, or of
        ``worst_replacements`` where the mechanism is local.
    claimed : int, float, str, Decimal or Fraction, optional
        The epsilon under test; the mechanism's own if left out.
    trials : int
        Runs on each side, about.
    confidence : float
        Probability that a true claim is not refuted, in (0, 1).
    rng : Randomness, int or None
        The mechanism's source of bits.

    Raises
    ------
    ParameterError
        No pairs, a pair that does not differ by one user, too few trials, no such confidence, or a mechanism that
        claims no epsilon or that this audit cannot run.

    Examples
    --------
    >>> import mapveil as mv
    >>> from mapveil.attacks.audited_inputs import worst_neighbours
    >>> from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
    >>> tiling = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=1)
    >>> audit_epsilon(LaplaceHistogram(epsilon=1), worst_neighbours(tiling), trials=2000, rng=1).holds
    True
    """
    if not isinstance(mechanism, Mechanism):
        raise no_claim(mechanism.name)
    local = isinstance(mechanism, LocalMechanism)
    if not neighbours:
        raise ParameterError("neighbours is empty; expected at least one pair")
    for pair in neighbours:
        pair.check(replaced=local)
    least = _FEWEST * len(neighbours)
    check(
        trials >= least, "trials", f"at least {least}, {_FEWEST} for each of {len(neighbours)} pairs", trials
    )
    check(0 < confidence < 1, "confidence", "a number between 0 and 1", confidence)
    error = 0.9 * (1 - confidence)
    stream, names = as_randomness(rng), REPORT if local else STATISTICS
    left, known = list(neighbours), dict[str, Runs]()
    while len(left) > 1:
        share = max(trials // 4 // len(left), 8)
        for pair in left:
            made = audited_runs(mechanism, pair, share, stream)
            known[pair.name] = known[pair.name].and_then(made) if pair.name in known else made
        left.sort(key=lambda pair: -_trained(known[pair.name], _LENIENT)[0])
        left = left[: max(1, len(left) // _KEPT)]
    chosen = left[0]
    training = audited_runs(mechanism, chosen, max(trials // 2, 8), stream)
    if chosen.name in known:
        training = known[chosen.name].and_then(training)
    adversary = _trained(training, error)[1]
    judged = audited_runs(mechanism, chosen, trials if len(neighbours) > 1 else trials * 3 // 2, stream)
    told = [*names, _QUERIES]
    also = " and the queries asked" if adversary.column == 0 and adversary.odds.any() else ""
    right, guesses = adversary.guesses(judged)
    given_away = _given_away(judged.present.size, float(mechanism.guarantee().delta), 1 - confidence - error)
    bound = _logit_bound(max(right - given_away, 0), max(guesses - given_away, 0), error)
    return AuditReport(
        epsilon_lower=max(float(bound), 0.0),
        claimed=mechanism.budget if claimed is None else as_epsilon(claimed, "claimed"),
        trials=trials,
        statistic=f"{told[adversary.column]}{also}",
        neighbours=chosen.name,
        confidence=confidence,
        mu_lower=_shift_bound(adversary, judged, error),
    )


def _trained(runs: Runs, error: float) -> tuple[float, _Adversary]:
    """The adversary that tells most, and its lenient bound on half of the runs it was chosen from."""
    half = runs.present.size // 2
    first, second = runs.part(slice(half)), runs.part(slice(half, None))
    shapes, index = np.unique(first.shape, return_inverse=True)
    there, absent = (
        np.bincount(index[first.present == side], minlength=shapes.size) + 0.5 for side in (True, False)
    )
    best = (-np.inf, _Adversary(0, shapes, np.zeros(shapes.size), np.inf, -np.inf, 1))
    for column in range(runs.statistics.shape[1] + 1):
        for odds in (np.log(there / absent), best[1].odds * 0)[: 2 if column == 0 else 1]:
            open_minded = _Adversary(column, shapes, odds, np.inf, -np.inf, 1)
            best = max(best, *_thresholds(open_minded, second, error), key=lambda each: each[0])
    return best


def _thresholds(adversary: _Adversary, runs: Runs, error: float) -> list[tuple[float, _Adversary]]:
    """The best guesses from a threshold on, up to one, and both; scores that fall with presence likewise."""
    score = adversary.scores(runs)
    cuts = np.unique(np.quantile(score, np.linspace(0, 1, _THRESHOLDS), method="nearest"))
    sides = [np.sort(score[runs.present == side]) for side in (True, False)]
    up = [side.size - np.searchsorted(side, cuts, side="left") for side in sides]
    down = [np.searchsorted(side, cuts, side="right") for side in sides]
    found = []
    for sign in (1, -1):
        above = np.array([up[sign < 0], up[0] + up[1]])  # right guesses, and guesses
        below = np.array([down[sign > 0], down[0] + down[1]])
        high, low = (int(np.argmax(_logit_bound(each[0], each[1], error))) for each in (above, below))
        choices = [(above[:, high], cuts[high], -np.inf), (below[:, low], np.inf, cuts[low])]
        if cuts[low] < cuts[high]:
            choices.append((above[:, high] + below[:, low], cuts[high], cuts[low]))
        for counts, first, last in choices:
            bound = float(_logit_bound(counts[0], counts[1], error))
            found.append((bound, adversary._replace(high=float(first), low=float(last), sign=sign)))
    return found


def _given_away(runs: int, delta: float, error: float) -> int:
    """Number of runs that events of probability delta exceed with probability ``error`` at most."""
    from scipy.stats import binom

    return int(binom.isf(error, runs, delta))


def _logit_bound(right: IntArray | int, guesses: IntArray | int, error: float) -> FloatArray:
    """The logit of the lower Clopper-Pearson bound of the part of guesses that are right."""
    from scipy.special import betaincinv, logit

    right, wrong = np.asarray(right), np.asarray(guesses) - right
    lower = np.where(right > 0, betaincinv(np.maximum(right, 1), wrong + 1, error), 0.0)
    return np.asarray(logit(lower), dtype=np.float64)


def _shift_bound(adversary: _Adversary, runs: Runs, error: float) -> float:
    """The shift of Gaussians that are as far apart as the runs, at one of the adversary's thresholds."""
    from scipy.special import betaincinv, ndtri

    score = adversary.scores(runs)
    above = score >= adversary.high if math.isfinite(adversary.high) else score > adversary.low
    said = above == (adversary.sign > 0)
    errors = [(int((~said)[runs.present].sum()), int(runs.present.sum()))]
    errors.append((int(said[~runs.present].sum()), int((~runs.present).sum())))
    upper = [betaincinv(k + 1, n - k, 1 - error / 2) if k < n else 1.0 for k, n in errors]
    return max(float(-ndtri(upper).sum()), 0.0)
