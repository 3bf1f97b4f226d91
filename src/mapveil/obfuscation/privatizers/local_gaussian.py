"""The local Gaussian mechanism on clipped rows, calibrated by the exact privacy curve of Gaussian noise."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from mapveil.obfuscation.privatizers.clipping import SLACK, ClippedNoise, clip_rows
from mapveil.obfuscation.privatizers.lattice_noise import add_gaussian
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.privatizer import Progress, State
from mapveil.privacy.claim import ContributionBound, Norm, Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import SAMPLE
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.gaussian_curve import gaussian_deviation, gaussian_epsilon
from mapveil_client.randomness.random import Randomness
from mapveil_client.report_account import ReportCost

_GRAIN: Final = 10**6  # a stated epsilon is a multiple of 1 / 10^6


@dataclass(frozen=True, kw_only=True)
class LocalGaussian(ClippedNoise):
    r"""Clip a report in L2 and add the least Gaussian noise that makes it locally differentially private.

    .. math:: y = x \min(1, C / \|x\|_2) + \sigma N, \qquad \sigma = \sigma(\epsilon, \delta, \Delta = 2 C)

    where: x is a report (``sequence`` rows of all features, one vector), C is ``clip`` or the pilot's quantile of
    :math:`\|x\|_2` that shortens ``clipped`` of its reports, N is a vector of independent standard normal numbers,
    and :math:`\sigma(\epsilon, \delta, \Delta)` is :func:`gaussian_deviation`. Two points of a ball of radius C are
    at most 2 C apart.

    Deviation: the paper clips at C = 7.154 and calibrates with :math:`\Delta = C`, half the distance two reports can
    have. ``calibration="paper"`` does so; the guarantee then states the epsilon that holds (2.15
    for 1 and 24.4 for 10, at delta 1e-5). The paper's own deviation at 10, from a coarse search, is 8 % larger: 22.0.

    Source: Section 5.2 of Zhang et al. 2022, equations 13, 14 and 16; algorithm 1 of Balle and Wang 2018.
    """

    name: ClassVar[str] = "local-gaussian"

    def learn(self, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> State:
        """See :class:`Privatizer`: the radius, and the deviation that follows from it."""
        radius = self._radius(pilot, 2)
        sensitivity = 2 * radius if self.calibration == "exact" else radius
        deviation = gaussian_deviation(float(self.budget), self.delta, sensitivity)
        return {"radius": np.array(radius), "deviation": np.array(deviation)}

    def privatize(self, state: State, rows: FloatArray, rng: Randomness) -> FloatArray:
        """See :class:`Privatizer`."""
        return add_gaussian(clip_rows(rows, float(state["radius"]), 2), float(state["deviation"]), rng)

    def promise(self, state: State, features: int) -> Guarantee:
        """See :class:`Privatizer`: the epsilon that follows from radius and deviation, never below the truth."""
        radius, deviation = float(state["radius"]), float(state["deviation"])
        true = gaussian_epsilon(self.delta, 2 * radius / deviation)
        asked = true <= float(self.budget) * (1 + SLACK)
        return self._guarantee(
            self.budget if asked else Fraction(math.ceil(true * _GRAIN), _GRAIN),
            self.delta,
            ContributionBound(Norm.L2, Fraction(radius)),
            Reveals.CLIPPED_GAUSSIAN(deviation=deviation, measurements=self.sequence),
            features * self.sequence,
        )

    def report_cost(self, state: State, normalisation: Normalisation) -> ReportCost:
        """See :class:`Privatizer`: Gaussian noise composes by its ratio, not by its epsilon."""
        ratio = 2 * float(state["radius"]) / float(state["deviation"])
        samples = len(normalisation.names) * self.sequence
        return ReportCost(ratio=ratio * (1 + 2.0**-40), distance=samples * SAMPLE)
