"""An adversary that looks for the most similar reports it knows the truth of."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import Guesser, SignalAdversary, SignalGuess
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check
from mapveil_client.randomness.random import Randomness

_DIRECTIONS: Final = 12  # of the supervised likeness: trees of more dimensions search everywhere
_RIDGE: Final = 1e-6  # of the mean variance
_WIDEST: Final = 2000  # inputs
_BLOCK: Final = 1 << 13
_KINDS: Final = ("plain", "supervised")


class _Choice(NamedTuple):
    """A likeness, how many neighbours, and whether their places are averaged or their median taken."""

    kind: str
    nearest: int
    median: bool = False


@dataclass(frozen=True, kw_only=True)
class SignalNeighbours(SignalAdversary):
    """The k nearest known reports vote for the user, and for each place.

    Two likenesses: of all features, each at deviation 1; and of the directions in which a linear regression of users
    and places on the report varies most (reduced-rank regression), which leaves noise aside that says nothing. A
    part of the evidence chooses the likeness and k, for the user by P1 and for places by P2, and there between
    the mean and the median of the neighbours' places.

    Parameters
    ----------
    counts : tuple of int
        Candidates for k.
    judged : int
        Runs of the evidence that choose.
    """

    name: ClassVar[str] = "neighbours"

    most_runs: int = 50_000
    counts: tuple[int, ...] = (1, 3, 10, 30, 100, 300)
    judged: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            len(self.counts) > 0 and min(self.counts) >= 1,
            "counts",
            "a tuple of positive whole numbers",
            self.counts,
        )
        check(self.judged >= 1, "judged", "at least 1", self.judged)

    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> Guesser:
        """Index the reports, and choose likeness and k."""
        kept = evidence.sample(self.most_runs, rng)
        kept, chosen = kept.parted(min(self.judged / len(kept), 0.2), rng)
        # The regression solves for every input at once: long runs of many features do without it.
        kinds = _KINDS if kept.inputs.shape[1] <= _WIDEST else _KINDS[:1]
        searches = {kind: _Search(kept, kind) for kind in kinds}
        counts = sorted({min(count, len(kept)) for count in self.counts})
        wrong_user = wrong_place = np.inf
        who = where = _Choice(kinds[0], counts[0])
        for at, (kind, search) in enumerate(searches.items()):
            near = search.nearest(chosen.observed, counts[-1])
            for count in counts:
                votes = search.votes(near[:, :count])
                wrong = float((votes.argmax(axis=1) != chosen.users).mean())
                if wrong < wrong_user:
                    wrong_user, who = wrong, _Choice(kind, count)
                for median in (False, True):
                    away = search.places(near[:, :count], median) - chosen.places
                    error = float(np.hypot(away[..., 0], away[..., 1]).mean())
                    if error < wrong_place:
                        wrong_place, where = error, _Choice(kind, count, median)
            progress("choosing neighbours", (at + 1) / len(searches))

        def guess(observed: FloatArray) -> SignalGuess:
            users, places = [], []
            for start in range(0, len(observed), _BLOCK):
                block = observed[start : start + _BLOCK]
                near = {
                    kind: search.nearest(block, max(each.nearest for each in wanted))
                    for kind, search in searches.items()
                    if (wanted := [each for each in (who, where) if each.kind == kind])
                }
                users.append(searches[who.kind].votes(near[who.kind][:, : who.nearest]))
                found = near[where.kind][:, : where.nearest]
                places.append(searches[where.kind].places(found, where.median))
            return SignalGuess(np.concatenate(users), np.concatenate(places))

        return guess


class _Search:
    """Known reports under one likeness."""

    def __init__(self, known: SignalEvidence, kind: str) -> None:
        from scipy.spatial import cKDTree

        inputs = known.inputs
        self._known = known
        self._mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
        scale[scale == 0] = 1.0
        directions = np.diag(1 / scale)
        if kind == "supervised":
            directions = directions @ _telling((inputs - self._mean) / scale, known)
        self._directions = directions
        self._tree: Any = cKDTree((inputs - self._mean) @ directions)

    def nearest(self, observed: FloatArray, count: int) -> IntArray:
        """The nearest known runs of each, shape (runs, count)."""
        asked = (observed.reshape(len(observed), -1) - self._mean) @ self._directions
        found = self._tree.query(asked, k=count)[1]
        return np.asarray(found, dtype=np.int64).reshape(len(asked), count)

    def votes(self, near: IntArray) -> FloatArray:
        """Part of the neighbours of each user, and a little of everybody's share."""
        users = self._known.user_count
        shares = (np.bincount(self._known.users, minlength=users) + 1 / users) / (len(self._known) + 1)
        cell = np.arange(len(near))[:, None] * users + self._known.users[near]
        counted = np.bincount(cell.ravel(), minlength=len(near) * users).reshape(-1, users)
        return np.asarray((counted + shares) / (near.shape[1] + 1))

    def places(self, near: IntArray, median: bool) -> FloatArray:
        """The neighbours' middle place for each measurement of the run."""
        found = self._known.places[near]
        return np.asarray(np.median(found, axis=1) if median else found.mean(axis=1))


def _telling(inputs: FloatArray, known: SignalEvidence) -> FloatArray:
    """Directions of standardised inputs in which the fitted users and places vary, weighted by how much."""
    targets = np.zeros((len(known), known.user_count + 2 * (known.length + 1)))
    targets[np.arange(len(known)), known.users] = 1.0
    targets[:, known.user_count :][:, :2] = known.places.mean(axis=1)
    targets[:, known.user_count + 2 :] = known.places.reshape(len(known), -1) / known.length
    targets -= targets.mean(axis=0)
    gram = inputs.T @ inputs
    # Reports that are all alike, such as null codes, tell nothing: every slope is 0.
    gram[np.diag_indices_from(gram)] += _RIDGE * (gram.trace() or 1.0) / len(gram)
    slopes = np.linalg.solve(gram, inputs.T @ targets)
    fitted = slopes.T @ gram @ slopes
    values, vectors = np.linalg.eigh(fitted)
    return np.asarray(slopes @ vectors[:, np.argsort(values)[::-1][:_DIRECTIONS]])
