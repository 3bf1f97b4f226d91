"""The paper's model of signal strength: linear in place and features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.analysis.signal_models.signal_model import FittedSignalModel, SignalModel, SignalPrediction
from mapveil.geo.measurements import RSS, Measurements
from mapveil.obfuscation.utility import linear_parameters
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True, kw_only=True)
class LinearSignal(SignalModel):
    r"""Least squares over latitude, longitude and further features.

    .. math:: x_3 = a_0 + \sum_{j \ne 3} a_j z_j

    where: :math:`x_3` is signal strength (dBm) and :math:`z_j` feature j at mean 0 and deviation 1 in the
    rows it is fitted on.

    Source: equations 1 and 2 of Zhang et al. 2022; see :func:`mapveil.obfuscation.utility.linear_parameters`.
    """

    name: ClassVar[str] = "linear"

    features: tuple[str, ...] | None = None

    def fit(self, measurements: Measurements, *, rng: Randomness | int | None = None) -> FittedLinearSignal:
        """Solve the normal equations."""
        self._check_rows(measurements, 2)
        columns = self.columns(measurements.names)
        rows = measurements.rows
        mean, scale = rows.mean(axis=0), rows.std(axis=0)
        scale[scale == 0] = 1.0
        inputs = (rows[:, columns] - mean[columns]) / scale[columns]
        # Signal strength goes third, where the linear model of the paper has it.
        table = np.insert(inputs, RSS, rows[:, RSS] - mean[RSS], axis=1)
        parameters = linear_parameters(table)
        left = table[:, RSS] - inputs @ parameters[1:] - parameters[0]
        variance = float(left @ left) / max(len(rows) - len(parameters), 1)
        spread = np.linalg.pinv(inputs.T @ inputs, rcond=1e-10, hermitian=True) * variance
        return FittedLinearSignal(
            measurements.names, mean, columns, scale[columns], parameters, variance, spread, len(rows)
        )


@dataclass(frozen=True, eq=False, repr=False)
class FittedLinearSignal(FittedSignalModel):
    """A fitted linear model."""

    columns: IntArray  # of the inputs
    scale: FloatArray  # deviation of each input
    parameters: FloatArray  # the intercept (0 of the centred strength), then dBm per deviation of each input
    variance: float  # of the residuals, dB^2
    spread: FloatArray  # covariance of the slopes
    count: int  # rows it was fitted on

    def predict(self, rows: FloatArray) -> SignalPrediction:
        """The plane, with the deviation of what it leaves and of its own parameters."""
        inputs = (rows[:, self.columns] - self.mean[self.columns]) / self.scale
        mean = self.mean[RSS] + self.parameters[0] + inputs @ self.parameters[1:]
        own = self.variance / self.count + np.einsum("ij,jk,ik->i", inputs, self.spread, inputs)
        return SignalPrediction(np.asarray(mean), np.sqrt(self.variance + own))
