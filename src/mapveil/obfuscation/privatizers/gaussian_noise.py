"""Gaussian noise on every feature: the simplest privatizer, and no promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.obfuscation.privatizers.lattice_noise import add_gaussian
from mapveil.obfuscation.privatizers.privatizer import Privatizer, Progress, Rows, State
from mapveil.privacy.claim import Adversary, Assumes, Reveals, TrustModel, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Privatizer):
    r"""Add independent Gaussian noise to every feature.

    .. math:: y_j = x_j + \sigma N_j

    where: x is a normalised row, :math:`\sigma` is ``sigma`` and :math:`N_j` are independent standard normal.
    Nothing is clipped, so no :math:`(\epsilon, \delta)` holds: a measurement that is far from all others stays so.

    Parameters
    ----------
    sigma : float
        In the pilot's standard deviations of each feature; from above 0 to 1000, 0 to 1 in the paper.

    Source: Section 5.1 of Zhang et al. 2022.
    """

    name: ClassVar[str] = "gaussian-noise"
    summary: ClassVar[str] = "Gaussian noise on every feature"
    source: ClassVar[str] = "Zhang et al. 2022, Section 5.1"
    formal: ClassVar[bool] = False

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(1e-6 <= self.sigma <= 1000, "sigma", "a number above 0, up to 1000,")

    def learn(
        self, pilot: Rows, users: npt.NDArray[np.int64], rng: Randomness, progress: Progress
    ) -> dict[str, npt.NDArray[Any]]:
        """See :class:`Privatizer`: nothing but the normalisation is learnt."""
        return {}

    def privatize(self, state: State, rows: Rows, rng: Randomness) -> Rows:
        """See :class:`Privatizer`."""
        return add_gaussian(rows, self.sigma, rng)

    def promise(self, state: State, features: int, *, seeded: bool) -> Guarantee:
        """See :class:`Privatizer`: none is made."""
        return Guarantee(
            model=TrustModel.OBFUSCATION,
            unit=Unit.REPORT,
            epsilon=None,
            adversary=Adversary.REPORTS,
            disclosure=Reveals.GAUSSIAN(deviation=float(self.sigma)),
            assumptions=(Assumes.UNLINKED_REPORTS(), Assumes.PILOT_PUBLIC(), Assumes.ATTACKERS_TRIED()),
            seeded=seeded,
        )
