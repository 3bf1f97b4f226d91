"""The contract of adversaries of privatized measurements: train on known runs, guess on others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

Progress = Callable[[str, float], None]


class SignalGuess(NamedTuple):
    """An adversary's guesses."""

    users: FloatArray  # shape (runs, users): probabilities, each row adding up to 1
    places: FloatArray  # shape (runs, length, 2): latitude and longitude, normalised


class TrainedSignalAdversary(ABC):
    """An adversary that has seen its evidence."""

    @abstractmethod
    def guess(self, observed: FloatArray) -> SignalGuess:
        """Users and places behind runs. Run by: the server, against its users.

        Parameters
        ----------
        observed : ndarray of float64, shape (runs, length, features)
            Privatized measurements, normalised, of the length it was trained on.
        """


@dataclass(frozen=True, kw_only=True)
class SignalAdversary(ABC):
    """Parameters of one way to attack, validated at construction.

    Parameters
    ----------
    most_runs : int
        Evidence beyond so many runs is sampled.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    most_runs: int = 1_000_000

    def __post_init__(self) -> None:
        self._check(self.most_runs >= 2, "most_runs", "at least 2")

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.name

    @abstractmethod
    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> TrainedSignalAdversary:
        """Learn from runs whose users and places are known. Run by: the adversary, such as the server.

        Parameters
        ----------
        evidence : SignalEvidence
            Privatized runs with the truth: of people who opted in, or privatized by the adversary itself.
        rng : Randomness
            The source of bits.
        progress : callable
            Called with a step's name and the part done, 0 to 1.
        """

    def _check(self, held: bool, name: str, accepted: str) -> None:
        if not held:
            raise ParameterError(f"{name} must be {accepted}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class BlindGuess(SignalAdversary):
    r"""The guess without a look at the report: everybody's share, and the place nearest to all.

    Its privacy is the most there is: P1 is one minus the largest user's share, and P2 the mean distance to the
    geometric median, which Weiszfeld's iteration finds.

    Source: the "simple adversary" of Section 6.1 of Zhang et al. 2022, whose place is the centre of the data.
    """

    name: ClassVar[str] = "blind"
    summary: ClassVar[str] = "the most frequent user and the middle place, whatever was sent"

    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> TrainedSignalAdversary:
        """Count users and find the middle."""
        counts = np.bincount(evidence.users, minlength=evidence.user_count) + 1 / evidence.user_count
        return _Blind(counts / counts.sum(), geometric_median(evidence.places.reshape(-1, 2)))


class _Blind(TrainedSignalAdversary):
    def __init__(self, shares: FloatArray, place: FloatArray) -> None:
        self._shares, self._place = shares, place

    def guess(self, observed: FloatArray) -> SignalGuess:
        runs, length, _ = observed.shape
        return SignalGuess(
            np.broadcast_to(self._shares, (runs, len(self._shares))),
            np.broadcast_to(self._place, (runs, length, 2)),
        )


def geometric_median(places: FloatArray, *, steps: int = 50) -> FloatArray:
    """The point with the least mean distance to places, shape (2,), by Weiszfeld's iteration."""
    middle = np.median(places, axis=0)
    for _ in range(steps):
        # The guard keeps a place that lies exactly at the guess from an infinite weight.
        weight = 1 / np.maximum(np.hypot(*(places - middle).T), 1e-9)
        middle = weight @ places / weight.sum()
    return np.asarray(middle)


def quiet(_step: str, _part: float) -> None:
    """Progress that nobody watches."""
