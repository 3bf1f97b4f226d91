r"""Scores of privacy that remains against one adversary and against the strongest of several, also in nats.

Two lower bounds on the mutual information between a report Y and its user U or location X need no model of the
privatizer:

- :math:`I(U; Y) \ge H(U) - P_1^{ce}` for an adversary's probabilities of users (Barber and Agakov); the slack is the
  adversary's distance from the true posterior.
- :math:`I(X; Y) \ge I(X; \hat x(Y))` for its guess :math:`\hat x`, estimated from nearest neighbours. That estimate is
  biased downwards where the information is large: n samples show little above :math:`\psi(n)`, some 9 nats at 5,000.

Both are estimates of what these adversaries found on held-out runs, not guarantees, and may stray from the bound by a
standard error or two. The paper's I(X; Y) of equation 8 between whole rows has too many dimensions for an honest
estimate (Section 4.1.1 of Zhang et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import SignalGuess
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.inference.clustered_proportion import clustered_proportion
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import InputError, check
from mapveil_client.randomness.random import Randomness, as_randomness

Metric = Literal["p", "p1", "p2", "p2_m", "p1_cross_entropy"]
_METRICS: Final = ("p", "p1", "p2", "p2_m", "p1_cross_entropy")
_MOST: Final = 5_000  # samples of an estimate of information
_JITTER: Final = 1e-9  # of a deviation: it parts ties, such as the rows of a codebook
_LEAST: Final = 1e-12  # a probability of 0 for the truth would make one run's cross-entropy infinite


class AdversaryScore(NamedTuple):
    """Privacy against one adversary; the higher, the more private."""

    adversary: str
    trained_on: str  # "own", "unobfuscated", "aggregate"
    p1: float  # part of the runs whose user it gets wrong; NaN where it could name none of them
    p1_cross_entropy: float  # nats
    p2: float  # mean distance of its place from the true one, normalised
    p2_m: float  # the same, metres
    p: float  # v1 P1 + v2 P2; v2 P2 where P1 is NaN
    runs: int  # judged
    user_nats: float | None = None  # at least so much a report tells about the user
    place_nats: float | None = None  # and about the place of one measurement
    p1_interval: tuple[float, float] = (0.0, 1.0)  # 95 %, clustered by user
    p1_users: int = 0  # users of the runs that P1 is about


class SignalAttack(NamedTuple):
    """Every adversary's success against one privatizer."""

    scores: tuple[AdversaryScore, ...]
    weights: tuple[float, float]  # v1, v2

    @property
    def strongest(self) -> AdversaryScore:
        """The adversary that leaves the least privacy P."""
        return self.strongest_by("p")

    def strongest_by(self, metric: Metric) -> AdversaryScore:
        """The adversary that leaves the least of one measure.

        Raises
        ------
        ParameterError
            There is no such measure.
        """
        check(metric in _METRICS, "metric", f"one of {', '.join(_METRICS)}", metric)

        def left(each: AdversaryScore) -> float:
            value = float(getattr(each, metric))
            return math.inf if math.isnan(value) else value

        return min(self.scores, key=left)

    @property
    def floor(self) -> float:
        """P against somebody who asks the best of them for the user and the best for the place."""
        return privacy(self.strongest_by("p1").p1, self.strongest_by("p2").p2, self.weights)

    def merged(self, *others: SignalAttack) -> SignalAttack:
        """These and other adversaries' scores, such as of those trained on other data."""
        return SignalAttack(
            self.scores + tuple(each for other in others for each in other.scores), self.weights
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            "weights": list(self.weights),
            "adversaries": [each._asdict() for each in self.scores],
            "strongest": self.strongest.adversary,
            "floor": self.floor,
        }


def privacy(p1: float, p2: float, weights: Sequence[float] = (1.0, 1.0)) -> float:
    """P of P1 and P2, with their weights; of P2 alone where there is no P1 (NaN)."""
    return weights[1] * p2 + (0.0 if math.isnan(p1) else weights[0] * p1)


def score_guess(
    evidence: SignalEvidence,
    guess: SignalGuess,
    *,
    adversary: str = "",
    trained_on: str = "own",
    weights: Sequence[float] = (1.0, 1.0),
    rng: Randomness | None = None,
    nameable: BoolArray | None = None,
) -> AdversaryScore:
    r"""Compare guesses with the truth.

    .. math:: P_1 = \frac1n \sum_i [\hat u_i \ne u_i], \qquad
              P_1^{ce} = -\frac1n \sum_i \log p_i(u_i), \qquad
              P_2 = \frac1n \sum_i \lVert \hat x_i - x_i \rVert_2, \qquad
              P = v_1 P_1 + v_2 P_2

    where: :math:`u_i` is the true user of run i, :math:`p_i` the adversary's probabilities, :math:`\hat u_i` the
    likeliest user, :math:`x_i` and :math:`\hat x_i` the true and guessed latitude and longitude in normalised units
    (for a run of L measurements the mean over them), n the number of runs and v is ``weights``.

    Parameters
    ----------
    evidence : SignalEvidence
        Runs the adversary was not trained on.
    guess : SignalGuess
        The adversary's guesses on them.
    adversary, trained_on : str
        Kept in the score.
    weights : sequence of float
        :math:`v_1, v_2`.
    rng : Randomness, optional
        The source of bits for :func:`mutual_information`; without it no nats are estimated.
    nameable : ndarray of bool, shape (runs,), optional
        The runs that :math:`P_1` is about: those of users whom the adversary could name; all by default. It is NaN
        where there are none, and P is then that of the place alone.

    Source: equations 3 to 6 of Zhang et al. 2022.
    """
    at = np.arange(len(evidence))
    wrong = guess.users.argmax(axis=1) != evidence.users
    judged = np.ones(len(evidence), dtype=np.bool_) if nameable is None else nameable
    named, users = wrong[judged], evidence.users[judged]
    p1 = float(named.mean()) if named.size else math.nan
    entropy = -float(np.log(np.maximum(guess.users[at, evidence.users], _LEAST)).mean())
    p2 = float(np.hypot(*np.moveaxis(guess.places - evidence.places, -1, 0)).mean())
    places = (evidence.places.reshape(-1, 2), guess.places.reshape(-1, 2))
    return AdversaryScore(
        adversary,
        trained_on,
        p1,
        entropy,
        p2,
        float(evidence.metres_from(guess.places).mean()),
        privacy(p1, p2, weights),
        len(evidence),
        None if rng is None else max(user_entropy(evidence) - entropy, 0.0),
        None if rng is None else mutual_information(*places, rng=rng),
        clustered_proportion(named, users),
        len(np.unique(users)),
    )


def user_entropy(evidence: SignalEvidence) -> float:
    """Entropy of the users of runs, nats: the least cross-entropy of an adversary that sees no report."""
    shares = np.bincount(evidence.users) / len(evidence)
    return -math.fsum(float(share) * math.log(share) for share in shares if share > 0)


def mutual_information(
    first: FloatArray, second: FloatArray, *, nearest: int = 4, rng: Randomness | int | None = None
) -> float:
    r"""Mutual information of two continuous variables, nats, not below 0, from nearest neighbours.

    .. math:: \hat I = \psi(k) + \psi(n) - \frac1n \sum_{i=1}^n \left[\psi(a_i + 1) + \psi(b_i + 1)\right]

    where: :math:`\psi` is the digamma function, k is ``nearest``, n the number of samples, and :math:`a_i, b_i` count
    the samples closer to sample i in the first and in the second variable than its k-th neighbour in both (maximum
    norm, each variable at deviation 1).

    Parameters
    ----------
    first, second : ndarray of float64, shape (samples, dimensions)
        Paired samples.
    nearest : int
        k: a smaller k has less bias, a larger one less variance.
    rng : Randomness or int, optional
        The source of bits: samples beyond 5,000 are left aside at random, and jitter parts ties.

    Raises
    ------
    InputError
        The samples are not paired, or are too few.

    Source: Kraskov, Stögbauer and Grassberger, "Estimating mutual information" (2004), equation 8.
    """
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    if first.ndim != 2 or second.ndim != 2 or len(first) != len(second):
        raise InputError(
            f"samples of shapes {first.shape} and {second.shape}; expected two tables of as many rows"
        )
    check(nearest >= 1, "nearest", "at least 1", nearest)
    if len(first) <= nearest + 1:
        raise InputError(f"{len(first)} samples; expected more than {nearest + 1}")
    draw = as_randomness(rng).generator()
    kept = np.sort(draw.permutation(len(first))[:_MOST])
    parts = []
    for table in (first[kept], second[kept]):
        scale = table.std(axis=0)
        scale[scale == 0] = 1.0
        parts.append((table - table.mean(axis=0)) / scale + _JITTER * draw.normal(size=table.shape))
    both = np.concatenate(parts, axis=1)
    away = np.asarray(cKDTree(both).query(both, k=[nearest + 1], p=np.inf)[0]).ravel()
    # Strictly closer: the k-th neighbour itself lies at the distance in one of the two.
    radius = np.nextafter(away, 0)
    total = 0.0
    for table in parts:
        inside = cKDTree(table).query_ball_point(table, radius, p=np.inf, return_length=True)
        total += float(digamma(inside).mean())  # the sample itself is the one of "a + 1"
    return max(float(digamma(nearest) + digamma(len(kept))) - total, 0.0)
