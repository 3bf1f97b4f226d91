"""Gaussian noise on every feature: the simplest privatizer, and no promise."""

from dataclasses import dataclass
from typing import ClassVar

from mapveil.obfuscation.privatizers.average_case import average_case
from mapveil.obfuscation.privatizers.lattice_noise import add_gaussian
from mapveil.obfuscation.privatizers.privatizer import Privatizer, Progress, State
from mapveil.privacy.claim import Assumes, Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check
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

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check(1e-6 <= self.sigma <= 1000, "sigma", "a number from 1e-6 to 1000", self.sigma)

    @property
    def answers_null(self) -> bool:
        """See :class:`Privatizer`: noise leaves a row that is far from all others far from them."""
        return True

    def learn(self, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> State:
        """See :class:`Privatizer`: nothing but the normalisation is learnt."""
        return {}

    def privatize(self, state: State, rows: FloatArray, rng: Randomness) -> FloatArray:
        """See :class:`Privatizer`."""
        return add_gaussian(rows, self.sigma, rng)

    def promise(self, state: State, features: int) -> Guarantee:
        """See :class:`Privatizer`: none is made."""
        return average_case(
            Reveals.GAUSSIAN(deviation=float(self.sigma)),
            Assumes.UNLINKED_REPORTS(),
            Assumes.PILOT_PUBLIC(),
            Assumes.ATTACKERS_TRIED(),
        )
