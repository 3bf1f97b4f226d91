"""A random forest over place and features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mapveil.analysis.signal_models.signal_model import FittedSignalModel, SignalModel, SignalPrediction
from mapveil.geo.measurements import RSS, Measurements
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check, require
from mapveil_client.randomness.random import Randomness, as_randomness


@dataclass(frozen=True, kw_only=True)
class ForestSignal(SignalModel):
    r"""Trees over place and features, their leaves' means averaged.

    .. math:: \mu = \frac1T \sum_t m_t, \qquad \sigma^2 = \frac1T \sum_t (v_t + m_t^2) - \mu^2

    where: :math:`m_t` and :math:`v_t` are mean and variance of all measurements that fall into the leaf of tree t the
    place falls into, and T is ``trees``: the law of total variance, so the deviation is that of a new measurement.

    Parameters
    ----------
    trees : int
        T.
    leaf : int
        Fewest sampled rows of a leaf.
    most_rows : int
        Rows a tree grows on, drawn anew for each.

    Source: city-wide signal maps by random forests, Alimpertis et al. 2019 (reference 53 of Zhang et al. 2022).
    """

    name: ClassVar[str] = "random-forest"

    trees: int = 60
    leaf: int = 5
    most_rows: int = 50_000

    def __post_init__(self) -> None:
        for name in ("trees", "leaf", "most_rows"):
            check(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))

    def fit(self, measurements: Measurements, *, rng: Randomness | int | None = None) -> FittedForestSignal:
        """Grow the trees.

        Raises
        ------
        MissingExtra
            scikit-learn is not installed.
        """
        self._check_rows(measurements, 2)
        ensemble = require("sklearn.ensemble", "eval")
        columns = self.columns(measurements.names)
        inputs, strength = measurements.rows[:, columns], measurements.rows[:, RSS]
        sampled = min(self.most_rows, len(inputs))
        forest = ensemble.RandomForestRegressor(
            n_estimators=self.trees,
            min_samples_leaf=self.leaf,
            max_samples=sampled if sampled < len(inputs) else None,
            random_state=int(as_randomness(rng).words(1, np.uint32)[0]),
        ).fit(inputs, strength)
        leaves = []
        for tree in forest.estimators_:
            at = tree.apply(inputs)
            nodes = tree.tree_.node_count
            count = np.maximum(np.bincount(at, minlength=nodes), 1)
            mean = np.bincount(at, strength, nodes) / count
            # Around the leaf's mean: squares of dBm lose digits.
            variance = np.bincount(at, np.square(strength - mean[at]), nodes) / count
            leaves.append((mean, variance))
        return FittedForestSignal(measurements.names, measurements.rows.mean(axis=0), columns, forest, leaves)


@dataclass(frozen=True, eq=False, repr=False)
class FittedForestSignal(FittedSignalModel):
    """A fitted forest."""

    columns: IntArray  # of the inputs
    forest: Any  # of scikit-learn
    leaves: list[tuple[FloatArray, FloatArray]]  # of each tree: mean and variance of its leaves

    def predict(self, rows: FloatArray) -> SignalPrediction:
        """Mean and total deviation over the leaves."""
        inputs = rows[:, self.columns]
        total, inner, squares = (np.zeros(len(rows)) for _ in range(3))
        for tree, (mean, variance) in zip(self.forest.estimators_, self.leaves, strict=True):
            at = tree.apply(inputs)
            total += mean[at]
            inner += variance[at]
            squares += np.square(mean[at] - self.mean[RSS])
        count = len(self.leaves)
        middle = total / count
        between = squares / count - np.square(middle - self.mean[RSS])
        return SignalPrediction(middle, np.sqrt(np.maximum(inner / count + between, 0.0)))
