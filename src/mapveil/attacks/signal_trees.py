"""An adversary of gradient-boosted trees: no network, and often the stronger one."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from mapveil.attacks.signal_adversary import Guesser, SignalAdversary, SignalGuess
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check, require
from mapveil_client.randomness.random import Randomness

_FEWEST: Final = 20  # runs of a user below which a tenth, stratified, is no part to stop by
_WIDEST: Final = 40  # inputs beyond which a run is told by its measurements' mean and deviation


@dataclass(frozen=True, kw_only=True)
class SignalTrees(SignalAdversary):
    """Boosted trees for the user, and for latitude and longitude of each measurement.

    The user is told from the whole run (mean, deviation and extremes of each feature once it is long). A place
    is told from its own measurement and the run's mean: one pair of regressors serves every position in a run. They
    minimise the absolute error, which is nearer to the Euclidean distance of P2 than squares are.

    Parameters
    ----------
    trees : int
        At most so many trees for the users in all: with k users each round of boosting grows k.
    rounds : int
        At most so many rounds of boosting.
    leaves : int
        Leaves of a tree.
    rate : float
        Learning rate.
    """

    name: ClassVar[str] = "trees"

    most_runs: int = 200_000
    trees: int = 1200
    rounds: int = 150
    leaves: int = 63
    rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("trees", "rounds"):
            check(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        check(self.leaves >= 2, "leaves", "at least 2", self.leaves)
        check(0 < self.rate <= 1, "rate", "a number above 0, at most 1,", self.rate)

    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> Guesser:
        """Grow the trees.

        Raises
        ------
        MissingExtra
            scikit-learn is not installed.
        """
        ensemble = require("sklearn.ensemble", "eval")
        kept = evidence.sample(self.most_runs, rng)
        seed = int(rng.words(1, np.uint32)[0])
        common: dict[str, Any] = {
            "learning_rate": self.rate,
            "max_leaf_nodes": self.leaves,
            "early_stopping": True,
            "n_iter_no_change": 8,
            "random_state": seed,
        }
        counts = np.bincount(kept.users, minlength=kept.user_count)
        known = np.flatnonzero(counts >= _FEWEST)
        who = None
        if len(known) > 1:
            rounds = min(max(self.trees // (len(known) if len(known) > 2 else 1), 5), self.rounds)
            who = ensemble.HistGradientBoostingClassifier(max_iter=rounds, **common)
            rows = np.isin(kept.users, known)
            who.fit(_of_run(kept.observed[rows]), kept.users[rows])
        progress("growing trees", 0.5)
        own = _of_measurement(kept.observed)
        places = kept.places.reshape(-1, 2)
        if len(own) > self.most_runs:
            chosen = rng.generator().permutation(len(own))[: self.most_runs]
            own, places = own[chosen], places[chosen]
        where = []
        for axis in (0, 1):
            made = ensemble.HistGradientBoostingRegressor(
                loss="absolute_error", max_iter=self.rounds, **common
            )
            where.append(made.fit(own, places[:, axis]))
            progress("growing trees", 0.75 + 0.25 * axis)
        # Users too rare for trees keep their share.
        shares = (counts + 1 / len(counts)) / (counts.sum() + 1)

        def guess(observed: FloatArray) -> SignalGuess:
            users = np.tile(shares, (len(observed), 1))
            if who is not None:
                users[:, who.classes_] = who.predict_proba(_of_run(observed)) * shares[who.classes_].sum()
            rows = _of_measurement(observed)
            guessed = np.stack([each.predict(rows) for each in where], axis=1)
            return SignalGuess(users, guessed.reshape(*observed.shape[:2], 2))

        return guess


def _of_run(observed: FloatArray) -> FloatArray:
    runs, length, features = observed.shape
    if length * features <= _WIDEST:
        return observed.reshape(runs, -1)
    return np.concatenate(
        [observed.mean(axis=1), observed.std(axis=1), observed.min(axis=1), observed.max(axis=1)], axis=1
    )


def _of_measurement(observed: FloatArray) -> FloatArray:
    length, features = observed.shape[1:]
    own = observed.reshape(-1, features)
    if length == 1:
        return own
    return np.concatenate([own, np.repeat(observed.mean(axis=1), length, axis=0)], axis=1)
