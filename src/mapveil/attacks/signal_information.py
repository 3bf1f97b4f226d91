r"""Lower bounds on the mutual information between reports and users or locations, in nats.

Two that need no model of the privatizer:

- about the user: an adversary's probabilities q give the bound :math:`I(U; Y) \ge H(U) - P_1^{ce}` (Barber and Agakov),
  whose slack is the adversary's own distance from the true posterior. Judged on held-out runs its only other errors are
  those of the two means: it may stray from the bound by a standard error or two.
- about the place: :math:`I(X; Y) \ge I(X; \hat x(Y))`, because a guess knows no more than the report it is made of; the
  right side has few dimensions and is estimated from nearest neighbours (Kraskov, Stögbauer and Grassberger). That
  estimate is biased downwards where the information is large: n samples show little above :math:`\psi(n)`, some 9 nats
  at 5,000.

Both are estimates, and neither is a promise: they say what these adversaries found. The paper's I(X; Y) of equation 8
between whole rows has too many dimensions for an honest estimate (Section 4.1.1 of Zhang et al. 2022).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import SignalGuess
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import score_guess, user_entropy
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

_MOST: Final = 5_000
_JITTER: Final = (
    1e-9  # of a deviation: ties, such as the rows of a codebook, have no nearest neighbour of their own
)


class SignalInformation(NamedTuple):
    """Estimated mutual information, nats."""

    user: float  # of at most ``user_entropy``
    user_entropy: float
    place: float  # of one measurement


def signal_information(
    evidence: SignalEvidence, guess: SignalGuess, *, rng: Randomness | int | None = None
) -> SignalInformation:
    """Bound mutual information from below by an adversary's guesses on held-out reports.

    Parameters
    ----------
    evidence : SignalEvidence
        Runs the adversary was not trained on.
    guess : SignalGuess
        What it made of them.
    rng : Randomness or int, optional
        Chooses which measurements are looked at, 5,000 at most.
    """
    entropy = user_entropy(evidence)
    user = max(entropy - score_guess(evidence, guess).p1_cross_entropy, 0.0)
    stream = as_randomness(rng)
    true, told = evidence.places.reshape(-1, 2), guess.places.reshape(-1, 2)
    return SignalInformation(user, entropy, mutual_information(true, told, rng=stream))


def mutual_information(
    first: FloatArray,
    second: FloatArray,
    *,
    nearest: int = 4,
    most: int = _MOST,
    rng: Randomness | int | None = None,
) -> float:
    r"""Mutual information of two continuous variables, nats, from nearest neighbours.

    .. math:: \hat I = \psi(k) + \psi(n) - \frac1n \sum_{i=1}^n \left[\psi(a_i + 1) + \psi(b_i + 1)\right]

    where: :math:`\psi` is the digamma function, k is ``nearest``, n the number of samples, and :math:`a_i, b_i` count
    the samples closer to sample i in the first and in the second variable than its k-th neighbour in both (maximum
    norm, each variable at deviation 1).

    Parameters
    ----------
    first, second : ndarray of float64, shape (samples, dimensions)
        Paired samples.
    nearest : int
        k: fewer are less biased, more vary less.
    most : int
        Samples beyond so many are left aside, at random.
    rng : Randomness or int, optional
        The source of bits for that, and for the jitter that parts ties.

    Returns
    -------
    float
        At least 0.

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
    if nearest < 1:
        raise ParameterError(f"nearest must be at least 1, got {nearest!r}")
    if len(first) <= nearest + 1:
        raise InputError(f"{len(first)} samples; expected more than {nearest + 1}")
    draw = as_randomness(rng).generator()
    kept = np.sort(draw.permutation(len(first))[:most])
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
