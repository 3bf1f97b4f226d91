"""The contract of adversaries of privatized measurements: train on known runs, guess on others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import Checked
from mapveil_client.randomness.random import Randomness


class SignalGuess(NamedTuple):
    """An adversary's guesses."""

    users: FloatArray  # shape (runs, users): probabilities, each row adding up to 1
    places: FloatArray  # shape (runs, length, 2): latitude and longitude, normalised


Guesser = Callable[[FloatArray], SignalGuess]
"""A trained adversary: from privatized, normalised runs, shape (runs, length, features), to users and places.

Run by: the server, against its users.
"""


@dataclass(frozen=True, kw_only=True)
class SignalAdversary(Checked, ABC):
    """Parameters of one way to attack, validated at construction.

    Parameters
    ----------
    most_runs : int
        Evidence beyond so many runs is sampled.
    """

    name: ClassVar[str]

    most_runs: int = 1_000_000

    def __post_init__(self) -> None:
        self._check(self.most_runs >= 2, "most_runs", "at least 2")

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.name

    @abstractmethod
    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> Guesser:
        """Learn from runs whose users and places are known. Run by: the adversary, such as the server.

        Parameters
        ----------
        evidence : SignalEvidence
            Privatized runs with the truth: of people who opted in, or privatized by the adversary itself.
        rng : Randomness
            The source of bits.
        progress : callable
            Called with a step's name and its finished fraction.
        """


@dataclass(frozen=True, kw_only=True)
class BlindGuess(SignalAdversary):
    """The guess without a look at the report: everybody's share, and the place nearest to all.

    Its privacy is the most there is: P1 is one minus the largest user's share, and P2 the mean distance to the
    geometric median.

    Source: the "simple adversary" of Section 6.1 of Zhang et al. 2022, whose place is the centre of the data.
    """

    name: ClassVar[str] = "blind"

    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> Guesser:
        """Count users and find the middle."""
        counts = np.bincount(evidence.users, minlength=evidence.user_count) + 1 / evidence.user_count
        shares = counts / counts.sum()
        place = geometric_median(evidence.places.reshape(-1, 2))

        def guess(observed: FloatArray) -> SignalGuess:
            runs, length, _ = observed.shape
            return SignalGuess(
                np.broadcast_to(shares, (runs, len(shares))), np.broadcast_to(place, (runs, length, 2))
            )

        return guess


def geometric_median(places: FloatArray, *, steps: int = 50) -> FloatArray:
    """The point with the least mean distance to places, shape (2,), by Weiszfeld's iteration."""
    middle = np.median(places, axis=0)
    for _ in range(steps):
        # The guard keeps a place that lies exactly at the guess from an infinite weight.
        weight = 1 / np.maximum(np.hypot(*(places - middle).T), 1e-9)
        middle = weight @ places / weight.sum()
    return np.asarray(middle)
