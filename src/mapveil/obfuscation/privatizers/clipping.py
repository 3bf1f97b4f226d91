"""Rows brought within a ball, and the base of the privatizers whose noise fits its size."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from mapveil.obfuscation.privatizers.privatizer import Privatizer
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Disclosure,
    Neighbouring,
    TrustModel,
    Unit,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import SAMPLE, sampling_delta
from mapveil_client.arrays import FloatArray
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import check

SLACK: Final = 1e-8
"""Relative excess of an epsilon over the one asked for that is rounding."""

_CALIBRATIONS: Final = ("exact", "paper")
_SHRINK: Final = 1 - 2.0**-40  # more than the rounding of a norm, so that no row stays outside


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
        Fraction of the pilot's reports that a learnt radius shortens.
    calibration : str
        Calibration of the noise to epsilon: ``"exact"``, or that of the ``"paper"``'s experiments.
    """

    epsilon: EpsilonLike
    delta: float = 1e-5
    clip: float | None = None
    clipped: float = 0.05
    calibration: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(as_epsilon(self.epsilon) <= 1000, "epsilon", "a number above 0, up to 1000", self.epsilon)
        check(1e-15 <= self.delta < 0.1, "delta", "a number from 1e-15 to below 0.1", self.delta)
        fits = self.clip is None or 1e-6 <= self.clip <= 1e6
        check(fits, "clip", "a number from 1e-6 to 1e6", self.clip)
        check(0 <= self.clipped < 1, "clipped", "a fraction from 0 to below 1", self.clipped)
        check(self.calibration in _CALIBRATIONS, "calibration", " or ".join(_CALIBRATIONS), self.calibration)

    @property
    def budget(self) -> Fraction:
        """Epsilon as asked for, exact. The epsilon that holds is in the guarantee."""
        return as_epsilon(self.epsilon)

    def _radius(self, pilot: FloatArray, order: int) -> float:
        return self.clip if self.clip is not None else max(pilot_radius(pilot, self.clipped, order), 1e-6)

    def _guarantee(
        self, epsilon: Fraction, delta: float, ball: ContributionBound, noise: Disclosure, samples: int
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
        )


def clip_rows(rows: FloatArray, radius: float, order: int) -> FloatArray:
    r"""Shorten every row that is longer than a radius. Run by: the client.

    .. math:: x' = x \min(1, C / \|x\|_p)

    where: C is ``radius`` and p is ``order``, 1 or 2.

    Source: equation 16 of Zhang et al. 2022, with C for :math:`\Delta / 2`.
    """
    norms = _norms(rows, order)
    return np.asarray(rows * (np.minimum(1.0, radius / np.maximum(norms, radius)) * _SHRINK)[:, None])


def pilot_radius(rows: FloatArray, clipped: float, order: int) -> float:
    """The radius that shortens a fraction of the pilot's normalised rows. Run by: the curator of the pilot."""
    return float(np.quantile(_norms(rows, order), 1 - clipped))


def _norms(rows: FloatArray, order: int) -> FloatArray:
    if order == 1:
        return np.asarray(np.abs(rows).sum(axis=1))
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))
