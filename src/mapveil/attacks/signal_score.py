"""Scores of privacy that remains against one adversary and against the strongest of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import SignalGuess
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil_client.errors import ParameterError

Metric = Literal["p", "p1", "p2", "p1_cross_entropy"]
_METRICS: Final = ("p", "p1", "p2", "p1_cross_entropy")
_LEAST: Final = 1e-12  # a probability of 0 for the truth would make one run's cross-entropy infinite


class AdversaryScore(NamedTuple):
    """Privacy against one adversary; the higher, the more private."""

    adversary: str
    trained_on: str  # "own", "unobfuscated", "aggregate"
    p1: float  # part of the runs whose user it gets wrong
    p1_cross_entropy: float  # nats
    p2: float  # mean distance of its place from the true one, normalised
    p2_m: float  # the same, metres
    p: float  # v1 P1 + v2 P2
    runs: int  # judged
    user_nats: float | None = None  # at least so much a report tells about the user
    place_nats: float | None = None  # and about the place; see :mod:`mapveil.attacks.signal_information`

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return self._asdict()


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
        if metric not in _METRICS:
            raise ParameterError(f"metric must be one of {', '.join(_METRICS)}, got {metric!r}")
        return min(self.scores, key=lambda each: float(getattr(each, metric)))

    @property
    def floor(self) -> float:
        """P against somebody who asks the best of them for the user and the best for the place."""
        v1, v2 = self.weights
        return v1 * self.strongest_by("p1").p1 + v2 * self.strongest_by("p2").p2

    def merged(self, *others: SignalAttack) -> SignalAttack:
        """These and other adversaries' scores, such as of those trained on other data."""
        return SignalAttack(
            self.scores + tuple(each for other in others for each in other.scores), self.weights
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            "weights": list(self.weights),
            "adversaries": [each.to_dict() for each in self.scores],
            "strongest": self.strongest.adversary,
            "floor": self.floor,
        }


def score_guess(
    evidence: SignalEvidence,
    guess: SignalGuess,
    *,
    adversary: str = "",
    trained_on: str = "own",
    weights: Sequence[float] = (1.0, 1.0),
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
        What it made of them.
    adversary, trained_on : str
        Kept in the score.
    weights : sequence of float
        :math:`v_1, v_2`.

    Source: equations 3 to 6 of Zhang et al. 2022.
    """
    at = np.arange(len(evidence))
    p1 = float((guess.users.argmax(axis=1) != evidence.users).mean())
    entropy = -float(np.log(np.maximum(guess.users[at, evidence.users], _LEAST)).mean())
    p2 = float(np.hypot(*np.moveaxis(guess.places - evidence.places, -1, 0)).mean())
    return AdversaryScore(
        adversary,
        trained_on,
        p1,
        entropy,
        p2,
        float(evidence.metres_from(guess.places).mean()),
        weights[0] * p1 + weights[1] * p2,
        len(evidence),
    )


def user_entropy(evidence: SignalEvidence) -> float:
    """Entropy of who a run is of, nats: what an adversary that sees nothing cannot get below in cross-entropy."""
    shares = np.bincount(evidence.users) / len(evidence)
    return -math.fsum(float(share) * math.log(share) for share in shares if share > 0)
