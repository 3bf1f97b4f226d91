"""The parts that privatizers without an (epsilon, delta) share: the weights of their game, and their guarantee."""

from dataclasses import dataclass

import numpy as np

from mapveil.obfuscation.privatizers.privatizer import Privatizer
from mapveil.privacy.claim import Adversary, Assumption, Disclosure, Measured, TrustModel, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import check


@dataclass(frozen=True, kw_only=True)
class TradeOff(Privatizer):
    """Base of privatizers that are fitted by a game between utility and an attacker.

    Parameters
    ----------
    rho : float
        Weight of utility against privacy, from 0 to 1.
    v1, v2 : float
        Weights of user and place in the attacker's loss, not below 0.
    w1, w2 : float
        Weights of distortion and of the linear model's error in the utility, not below 0.
    """

    rho: float = 0.4
    v1: float = 1.0
    v2: float = 1.0
    w1: float = 1.0
    w2: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.rho <= 1, "rho", "a number from 0 to 1", self.rho)
        for name in ("v1", "v2", "w1", "w2"):
            weight = getattr(self, name)
            check(0 <= weight < np.inf, name, "a finite number of at least 0", weight)


def average_case(
    disclosure: Disclosure, *assumptions: Assumption, measured: tuple[Measured, ...] = ()
) -> Guarantee:
    """The guarantee of a report that no (epsilon, delta) covers."""
    return Guarantee(
        model=TrustModel.OBFUSCATION,
        unit=Unit.REPORT,
        epsilon=None,
        adversary=Adversary.REPORTS,
        disclosure=disclosure,
        assumptions=assumptions,
        measured=measured,
    )
