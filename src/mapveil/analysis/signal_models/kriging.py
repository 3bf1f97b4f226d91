"""Kriging: a Gaussian process over places, on block averages of the measurements."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from mapveil.analysis.signal_models.signal_model import (
    FittedSignalModel,
    LocalPlane,
    SignalModel,
    SignalPrediction,
)
from mapveil.geo.measurements import RSS, Measurements
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check, require
from mapveil_client.randomness.random import Randomness, as_randomness

_LEARNT: Final = 600  # blocks that the length is learnt on: the likelihood costs their cube at every step
_BLOCK: Final = 4096
_FINEST_M: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Kriging(SignalModel):
    r"""A Gaussian process with a Matérn kernel over places.

    .. math:: x_3(s) = m + f(s) + e, \qquad
              \operatorname{cov}[f(s), f(t)] = v\, M_{3/2}(\lVert s - t \rVert / \ell)

    where: s and t are places (metres), m the mean of the blocks, :math:`v` and :math:`\ell` variance and length of
    the field, learnt by maximum likelihood, and e the spread of measurements at one place, taken from within
    the blocks. Measurements are averaged over square blocks, the finest of at most ``blocks`` of them, and a block of c
    has noise variance :math:`e^2 / c`: that is kriging of block averages, exact for a field that is flat inside one.

    Parameters
    ----------
    blocks : int
        Most blocks: the fit costs their cube.

    Source: C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1, as
    scikit-learn has it.
    """

    name: ClassVar[str] = "kriging"

    blocks: int = 1500

    def __post_init__(self) -> None:
        check(self.blocks >= 10, "blocks", "at least 10", self.blocks)
        check(self.features == (), "features", "() (kriging looks at places alone)", self.features)

    def fit(self, measurements: Measurements, *, rng: Randomness | int | None = None) -> FittedKriging:
        """Average over blocks, learn the kernel, and solve.

        Raises
        ------
        MissingExtra
            scikit-learn is not installed.
        """
        self._check_rows(measurements, 3)
        process = require("sklearn.gaussian_process", "eval")
        kernels = require("sklearn.gaussian_process.kernels", "eval")
        rows = measurements.rows
        plane = LocalPlane.around(rows)
        block = _blocks(plane.metres(rows), self.blocks)
        counts = np.bincount(block).astype(np.float64)
        centres = np.stack([np.bincount(block, each) / counts for each in plane.metres(rows).T], axis=1)
        mean = np.bincount(block, rows[:, RSS]) / counts
        inside = np.square(rows[:, RSS] - mean[block]).sum() / max(len(rows) - len(counts), 1)
        # Whole dBm are reported: that much spread there is at least.
        nugget = max(float(inside), 1 / 12)
        middle = float(np.average(mean, weights=counts / (counts + 1)))
        variance = max(float(np.square(mean - middle).mean()), 0.01)
        extent = float(max(np.ptp(centres, axis=0).max(), 10 * _FINEST_M))
        kernel = kernels.ConstantKernel(variance, (1e-2, 1e4)) * kernels.Matern(
            extent / 20, (_FINEST_M, 3 * extent), nu=1.5
        )
        chosen = as_randomness(rng).generator().permutation(len(counts))[:_LEARNT]
        learnt = process.GaussianProcessRegressor(kernel, alpha=nugget / counts[chosen])
        with warnings.catch_warnings():
            # A length at its bound is an answer (a field that is flat, or noise), not a failure.
            warnings.simplefilter("ignore", require("sklearn.exceptions", "eval").ConvergenceWarning)
            learnt.fit(centres[chosen], mean[chosen] - middle)
        fitted = process.GaussianProcessRegressor(learnt.kernel_, alpha=nugget / counts, optimizer=None)
        fitted.fit(centres, mean - middle)
        return FittedKriging(measurements.names, rows.mean(axis=0), plane, fitted, middle, nugget)


@dataclass(frozen=True, eq=False, repr=False)
class FittedKriging(FittedSignalModel):
    """A fitted Gaussian process."""

    plane: LocalPlane
    process: Any  # of scikit-learn, over metres
    middle: float  # mean of the field, dBm
    nugget: float  # variance of measurements at one place, dB^2

    @property
    def length_m(self) -> float:
        """Correlation length of the field, metres."""
        return float(self.process.kernel_.k2.length_scale)

    def predict(self, rows: FloatArray) -> SignalPrediction:
        """Mean of the field, and the deviation of a new measurement: field and spread together."""
        places = self.plane.metres(rows)
        mean, deviation = np.empty(len(rows)), np.empty(len(rows))
        for at in range(0, len(rows), _BLOCK):
            part = slice(at, at + _BLOCK)
            mean[part], deviation[part] = self.process.predict(places[part], return_std=True)
        return SignalPrediction(mean + self.middle, np.hypot(deviation, np.sqrt(self.nugget)))

    def mean_dbm(self, rows: FloatArray) -> FloatArray:
        """Mean of the field alone, at a thousandth of the cost."""
        places = self.plane.metres(rows)
        parts = [self.process.predict(places[at : at + _BLOCK]) for at in range(0, len(rows), _BLOCK)]
        return np.asarray(np.concatenate(parts) + self.middle)


def _blocks(places: FloatArray, most: int) -> IntArray:
    """The block of every place: squares, doubled in size until there are few enough."""
    side = _FINEST_M
    while True:
        cells = np.floor((places - places.min(axis=0)) / side).astype(np.int64)
        code = cells[:, 0] * (cells[:, 1].max() + 1) + cells[:, 1]
        kept, block = np.unique(code, return_inverse=True)
        if len(kept) <= most:
            return np.asarray(block, dtype=np.int64)
        side *= 2**0.25
