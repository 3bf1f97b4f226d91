"""From how many people a node is divided, and below how few it is given up: the paper's three answers by name.

All are compared with noisy counts of people, so all are of the noise of a whole sum, over all shards.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, Literal, NamedTuple, get_args

from mapveil.mechanisms.budget_schedule import TARGET_DEVIATIONS, laplace_deviation

SplitRule = Literal["experiments", "equation-6", "algorithm-2"]

RULES: Final[tuple[str, ...]] = get_args(SplitRule)
"""The thresholds that adapt to the noise."""


class Thresholds(NamedTuple):
    """Users of a node."""

    split: float  # more are divided
    collapse: float  # as many, or fewer, fall back to the node above; minus infinity for never


class Noise(NamedTuple):
    """What the noise of a node's count is made of."""

    terms: float  # discrete Laplace variables
    sensitivity: int  # units that one device moves a sum by
    scale: int  # units per user

    def deviation(self, epsilon: Fraction) -> float:
        """Standard deviation of a node's count at a given epsilon, users."""
        return float(self.terms**0.5 * laplace_deviation(epsilon, self.sensitivity) / self.scale)


def thresholds(
    rule: SplitRule | float,
    k: float,
    collapse: float | None,
    noise: Noise,
    spent: Fraction,
    remaining: Fraction,
    target: float,
) -> Thresholds:
    r"""When to split and when to collapse, after a round that cost ``spent`` and leaves ``remaining``.

    .. math:: t = k\, \sigma(\max(\epsilon_q, \epsilon_{rem})) \;\text{(experiments)}, \qquad
              t = k\, \sigma(\epsilon_{rem}) \;\text{(equation 6)}, \qquad
              t = 2 \sqrt{r}\, \tilde\sigma_q \;\text{(Algorithm 2)}

    where: :math:`\sigma` is ``noise.deviation``, the :math:`\sqrt{U / S_{max}}\, \tau` of the paper, :math:`\epsilon_q`
    is ``spent``, :math:`\epsilon_{rem}` is ``remaining``, k is ``k``, and :math:`\tilde\sigma_q` is ``target``, the
    round's :func:`~mapveil.mechanisms.budget_schedule.target_deviation` as the two deviations it stands for, over all
    r ``noise.terms``. A number as ``rule`` is t itself.

    Source: Bagdasaryan et al. (2022), equation 6 and Algorithm 2; the first is that of the authors' experiments.

    Parameters
    ----------
    rule : str or float
        Which of them, or a fixed number of users.
    k : float
        Standard deviations that count as more than noise.
    collapse : float, optional
        Nodes collapse at this part of t; never without.
    noise : Noise
        Of the rounds, alike but for their epsilons.
    spent, remaining : Fraction
        Epsilons, above zero.
    target : float
        Deviation that the round aimed at for each discrete Laplace variable, users.
    """
    if rule == "experiments":
        split = k * noise.deviation(max(spent, remaining))
    elif rule == "equation-6":
        split = k * noise.deviation(remaining)
    elif rule == "algorithm-2":
        split = TARGET_DEVIATIONS * noise.terms**0.5 * target
    else:
        split = float(rule)
    return Thresholds(split, -math.inf if collapse is None else collapse * split)
