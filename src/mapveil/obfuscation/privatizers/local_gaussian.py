"""The local Gaussian mechanism on clipped rows, with the deviation that its promise needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.obfuscation.privatizers.analytic_gaussian import gaussian_deviation, gaussian_epsilon
from mapveil.obfuscation.privatizers.clipping import clip_rows, pilot_radius
from mapveil.obfuscation.privatizers.lattice_noise import add_gaussian
from mapveil.obfuscation.privatizers.privatizer import Privatizer, Progress, Rows, State
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Disclosure,
    Neighbouring,
    Norm,
    Reveals,
    TrustModel,
    Unit,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import SAMPLE, sampling_delta
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.randomness.random import Randomness

CALIBRATIONS = ("exact", "paper")
"""Calibration of the noise to epsilon: exact, or that of the paper's experiments."""

_GRAIN = 10**6
_SLACK = 1e-8


@dataclass(frozen=True, kw_only=True)
class ClippedNoise(Privatizer):
    """Base of the two privatizers with a formal guarantee: a budget and a clipping ball.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        Of one report, whole sequence and all features; exact.
    delta : float
        Above 0 and below 0.1; far below one over the number of reports.
    clip : float, optional
        The radius of the ball in normalised units; learnt from the pilot where none is given. A given one is public
        and tells nothing about the pilot.
    clipped : float
        Part of the pilot's reports that a learnt radius shortens.
    calibration : str
        One of :data:`CALIBRATIONS`.
    """

    formal: ClassVar[bool] = True

    epsilon: EpsilonLike
    delta: float = 1e-5
    clip: float | None = None
    clipped: float = 0.05
    calibration: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(as_epsilon(self.epsilon) <= 1000, "epsilon", "a number above 0, up to 1000,")
        self._check(1e-15 <= self.delta < 0.1, "delta", "a number from 1e-15 to below 0.1")
        self._check(
            self.clip is None or 1e-6 <= self.clip <= 1e6, "clip", "a number above 0, up to a million,"
        )
        self._check(0 <= self.clipped < 1, "clipped", "a part from 0 to below 1")
        self._check(self.calibration in CALIBRATIONS, "calibration", " or ".join(CALIBRATIONS))

    @property
    def budget(self) -> Fraction:
        """Epsilon as asked for, exact. What holds is in the guarantee."""
        return as_epsilon(self.epsilon)

    def _radius(self, pilot: Rows, order: int) -> float:
        return self.clip if self.clip is not None else max(pilot_radius(pilot, self.clipped, order), 1e-6)

    def _guarantee(
        self,
        epsilon: Fraction,
        delta: float,
        ball: ContributionBound,
        noise: Disclosure,
        samples: int,
        *,
        seeded: bool,
    ) -> Guarantee:
        return Guarantee(
            model=TrustModel.OBFUSCATION,
            unit=Unit.REPORT,
            neighbours=Neighbouring.REPLACE_ONE,
            epsilon=epsilon,
            delta=min(Fraction(str(delta)) + sampling_delta(epsilon, samples * SAMPLE), Fraction(1)),
            adversary=Adversary.REPORTS,
            bound=ball,
            disclosure=noise,
            assumptions=(
                Assumes.COMPOSES(),
                Assumes.PILOT_RADIUS_PUBLIC() if self.clip is None else Assumes.PILOT_PUBLIC(),
            ),
            seeded=seeded,
        )


@dataclass(frozen=True, kw_only=True)
class LocalGaussian(ClippedNoise):
    r"""Clip a report in L2 and add the least Gaussian noise that makes it locally differentially private.

    .. math:: y = x \min(1, C / \|x\|_2) + \sigma N, \qquad \sigma = \sigma(\epsilon, \delta, \Delta = 2 C)

    where: x is a report (``sequence`` rows of all features, one vector), C is ``clip`` or the pilot's quantile of
    :math:`\|x\|_2` that shortens ``clipped`` of its reports, N is a vector of independent standard normal numbers,
    and :math:`\sigma(\epsilon, \delta, \Delta)` is the analytic calibration, solved to the last bits
    (:mod:`mapveil.obfuscation.privatizers.analytic_gaussian`). Two points of a ball of radius C are at most 2 C apart.

    Deviation: the paper clips at C = 7.154 and calibrates with :math:`\Delta = C`, half the distance two reports can
    have. ``calibration="paper"`` does so; the guarantee then states the epsilon that holds (2.15
    for 1 and 24.4 for 10, at delta 1e-5). The paper's own deviation at 10, from a coarse search, is 8 % larger: 22.0.

    Source: Section 5.2 of Zhang et al. 2022, equations 13, 14 and 16; algorithm 1 of Balle and Wang 2018.
    """

    name: ClassVar[str] = "local-gaussian"
    summary: ClassVar[str] = "clipping in L2 and Gaussian noise: (epsilon, delta)-LDP of a report"
    source: ClassVar[str] = "Zhang et al. 2022, Section 5.2; Balle and Wang 2018"

    def learn(
        self, pilot: Rows, users: npt.NDArray[np.int64], rng: Randomness, progress: Progress
    ) -> dict[str, npt.NDArray[Any]]:
        """See :class:`Privatizer`: the radius, and the deviation that follows from it."""
        radius = self._radius(pilot, 2)
        sensitivity = 2 * radius if self.calibration == "exact" else radius
        deviation = gaussian_deviation(float(self.budget), self.delta, sensitivity)
        return {"radius": np.array(radius), "deviation": np.array(deviation)}

    def privatize(self, state: State, rows: Rows, rng: Randomness) -> Rows:
        """See :class:`Privatizer`."""
        return add_gaussian(clip_rows(rows, float(state["radius"]), 2), float(state["deviation"]), rng)

    def promise(self, state: State, features: int, *, seeded: bool) -> Guarantee:
        """See :class:`Privatizer`: the epsilon that follows from radius and deviation, never below the truth."""
        radius, deviation = float(state["radius"]), float(state["deviation"])
        true = gaussian_epsilon(self.delta, 2 * radius / deviation)
        # Calibrated exactly, what holds is what was asked for, but for the last bits.
        asked = true <= float(self.budget) * (1 + _SLACK)
        epsilon = self.budget if asked else Fraction(math.ceil(true * _GRAIN), _GRAIN)
        return self._guarantee(
            epsilon,
            self.delta,
            ContributionBound(Norm.L2, Fraction(radius)),
            Reveals.CLIPPED_GAUSSIAN(deviation=deviation, measurements=self.sequence),
            features * self.sequence,
            seeded=seeded,
        )
