"""The contract of adversaries of privatized measurements, and those that learn no model: blind, as reported, codes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.geo.measurements import LAT, LON
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check
from mapveil_client.randomness.random import Randomness

_STEPS: Final = 40  # of Weiszfeld's iteration for each code
_SHARED: Final = 4  # runs of one value, from which on their places are learnt
_NEAR: Final = 1e-6  # reports nearer than this are one code: normalising back and forth rounds


class SignalGuess(NamedTuple):
    """An adversary's guesses."""

    users: FloatArray  # shape (runs, users): probabilities, each row adding up to 1
    places: FloatArray  # shape (runs, length, 2): latitude and longitude, normalised


Guesser = Callable[[FloatArray], SignalGuess]
"""A trained adversary: from privatized, normalised runs, shape (runs, length, features), to users and places.

Run by: the server, against its users.
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

    most_runs: int = 1_000_000

    def __post_init__(self) -> None:
        check(self.most_runs >= 2, "most_runs", "at least 2", self.most_runs)

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


@dataclass(frozen=True, kw_only=True)
class SignalCodes(SignalAdversary):
    r"""Count who sent each code, and take the place with the least mean distance to theirs.

    .. math:: \hat u(c) = \arg\max_u n_{cu}, \qquad \hat z(c) = \arg\min_z \sum_{i: c_i = c} \lVert z - z_i \rVert_2

    where: c is a code, a value that runs share, :math:`n_{cu}` how many of user u sent it, :math:`z_i` the place of
    run i. Whatever sees a code alone guesses a function of the code, so with enough evidence nothing does better. A
    code that was never seen, and a privatizer with fewer than four runs for each, get the blind guess.

    Source: the optimal attack of Shokri et al. (CCS 2012).
    """

    name: ClassVar[str] = "codes"

    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> Guesser:
        """Count the users of each code, and find the geometric median of its places."""
        from scipy.spatial import cKDTree

        kept = evidence.sample(self.most_runs, rng)
        blind = BlindGuess().train(kept, rng, progress)
        codes, inverse = np.unique(kept.inputs.round(9), axis=0, return_inverse=True)
        if 4 * len(codes) > len(kept):
            return blind
        inverse = inverse.ravel()
        share = np.bincount(kept.users, minlength=kept.user_count) / len(kept)
        counts = np.zeros((len(codes), kept.user_count))
        np.add.at(counts, (inverse, kept.users), 1)
        counts += share  # one run that could be anybody's: no code is certain of its user
        places = np.stack(
            [_medians(kept.places[:, at], inverse, len(codes)) for at in range(kept.length)], axis=1
        )
        users = counts / counts.sum(axis=1, keepdims=True)
        tree: Any = cKDTree(codes)
        progress("count", 1.0)

        def guess(observed: FloatArray) -> SignalGuess:
            _, found = tree.query(observed.reshape(len(observed), -1), distance_upper_bound=_NEAR)
            unseen = blind(observed)
            known, at = found < len(users), np.minimum(found, len(users) - 1)
            return SignalGuess(
                np.where(known[:, None], users[at], unseen.users),
                np.where(known[:, None, None], places[at], unseen.places),
            )

        return guess


@dataclass(frozen=True, kw_only=True)
class SignalAsReported(SignalAdversary):
    """Believe the place that a report names; of a value that several runs share, whatever was nearer to theirs.

    With little noise nothing learnt from a few thousand rows comes as near. An empty report names no place: it is a
    value that runs share, and its place is the geometric median of theirs, as for :class:`SignalCodes`. Users are those
    of the blind guess.
    """

    name: ClassVar[str] = "as reported"

    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> Guesser:
        """Find the values that runs share, and the places that come nearer to theirs than those they name."""
        from scipy.spatial import cKDTree

        kept = evidence.sample(self.most_runs, rng)
        blind = BlindGuess().train(kept, rng, progress)
        codes, inverse, counts = np.unique(
            kept.inputs.round(9), axis=0, return_inverse=True, return_counts=True
        )
        inverse = inverse.ravel()
        medians = np.stack(
            [_medians(kept.places[:, at], inverse, len(codes)) for at in range(kept.length)], axis=1
        )
        named = kept.observed[:, :, [LAT, LON]]

        def distance(places: FloatArray) -> FloatArray:
            off = np.hypot(*np.moveaxis(places - kept.places, -1, 0)).sum(axis=1)
            return np.bincount(inverse, off) / counts

        nearer = (counts >= _SHARED) & (distance(medians[inverse]) < distance(named))
        tree: Any = cKDTree(codes[nearer]) if nearer.any() else None
        progress("compare", 1.0)

        def guess(observed: FloatArray) -> SignalGuess:
            places = np.array(observed[:, :, [LAT, LON]])
            if tree is not None:
                _, found = tree.query(observed.reshape(len(observed), -1), distance_upper_bound=_NEAR)
                known = found < tree.n
                places[known] = medians[nearer][found[known]]
            return SignalGuess(blind(observed).users, places)

        return guess


def _medians(places: FloatArray, groups: npt.NDArray[np.intp], count: int) -> FloatArray:
    """The geometric median of every group's places, shape (count, 2); no group is empty."""

    def mean(weights: FloatArray) -> FloatArray:
        sums = [np.bincount(groups, weights * places[:, axis], minlength=count) for axis in (0, 1)]
        return np.stack(sums, axis=1) / np.bincount(groups, weights, minlength=count)[:, None]

    guess = mean(np.ones(len(places)))
    for _ in range(_STEPS):
        guess = mean(1 / np.maximum(np.hypot(*(places - guess[groups]).T), 1e-9))
    return guess
