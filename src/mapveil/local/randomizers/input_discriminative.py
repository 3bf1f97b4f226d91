r"""Input-discriminative LDP, for the paper's comparison of relaxed notions only: sites with budgets of their own.

Unary encoding whose bits are 1 with probability 1/2 at the place and :math:`b_i` at another site i:

.. math:: \frac{\Pr[Y \mid x]}{\Pr[Y \mid x']} \le \frac{1 - b_{x'}}{b_x} \le e^{\min(\epsilon_x, \epsilon_{x'})}

where: :math:`\epsilon_i` is site i's budget. Any two sites are told apart by at most the smaller of their budgets:
with several levels of budgets this is **not** the same promise to everybody. All pairs are kept with min(max e, 2 min
e).

Deviation: the b are those of least total variance that keep all pairs, not the solution of the published convex
programme for the worst case, which depends on the loss that is chosen.

Source: Gu, Li, Cao, Xiong, "Providing Input-Discriminative Protection for Local Differential Privacy" (2020),
MinID-LDP; Wang et al. (2022), section 5, Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.local.estimators.covariance import Covariance, IndependentCovariance, SiteNoise
from mapveil.local.randomizers.randomizer import SetRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import power
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.random_sets import ONE, independent_bits, put_bits
from mapveil_client.randomness.random import Randomness, uniform_below


def level_chances(levels: Sequence[Fraction], sites: Sequence[int]) -> list[int]:
    r"""The b of each level of budgets, over 2**32, rounded up.

    .. math:: \min \sum_i n_i \frac{b_i (1 - b_i)}{(1/2 - b_i)^2} \quad \text{where} \quad
        e^{\min(\epsilon_i, \epsilon_j)}\, b_i + b_j \ge 1
        \text{ for all i, j}

    Parameters
    ----------
    levels : sequence of Fraction
        The budgets.
    sites : sequence of int
        How many sites have each, :math:`n_i`.
    """
    from scipy.optimize import Bounds, LinearConstraint, minimize

    count = len(levels)
    rows, factors = [], []
    for i in range(count):
        for j in range(count):
            row = np.zeros(count)
            factor = float(power(min(levels[i], levels[j])))
            row[i] += factor
            row[j] += 1
            rows.append(row)
            factors.append((i, j, power(min(levels[i], levels[j]))))
    bounds, number = np.array(rows), np.asarray(sites, dtype=float)
    even = 1 / (1 + float(power(min(levels))))  # keeps all pairs
    found = minimize(  # type: ignore[call-overload]
        lambda b: float(number @ (b * (1 - b) / (0.5 - b) ** 2)),
        np.full(count, even),
        bounds=Bounds(1e-9, 0.5 - 1e-6),
        constraints=LinearConstraint(bounds, 1, np.inf),
        method="SLSQP",
    )
    chances = [max(1, math.ceil(float(b) * ONE)) for b in np.asarray(found.x)]
    for i, j, kept in factors:  # what rounding broke
        least = Fraction(ONE) / (kept + 1) if i == j else (ONE - chances[j]) / kept
        chances[i] = max(chances[i], math.ceil(least))
    return chances


class InputDiscriminativeRandomizer(SetRandomizer):
    """Both halves on one domain.

    Parameters
    ----------
    domain : Domain
        The sites.
    budgets : sequence of Fraction
        Of each site.
    """

    kind: ClassVar[int] = 10

    def __init__(self, domain: Domain, budgets: Sequence[Fraction]) -> None:
        if len(budgets) != domain.size:
            raise ParameterError(f"{len(budgets)} budgets for {domain.size} sites; expected one each")
        super().__init__(domain, max(budgets))
        levels = sorted(set(budgets))
        number = np.array([levels.index(budget) for budget in budgets])
        self.chances = level_chances(levels, np.bincount(number, minlength=len(levels)).tolist())
        self._levels, self._number = levels, number
        self.held = 0.5
        self._other: FloatArray = np.array(self.chances)[number] / ONE

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`: over all pairs of sites."""
        used = np.unique(self._number).tolist()
        alone = np.bincount(self._number, minlength=len(self._levels)) == 1
        return max(
            Fraction(ONE - self.chances[j], self.chances[i])
            for i in used
            for j in used
            if i != j or not alone[i] or len(used) == 1
        )

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`."""
        return np.asarray((tally.counts / max(tally.reports, 1) - self._other) / (self.held - self._other))

    def holding(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SetRandomizer.holding`."""
        return np.asarray(self._other + (self.held - self._other) * distribution)

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: bits are independent."""
        return IndependentCovariance(self.site_noise(distribution).variance)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`."""
        q = self._other
        variance = (distribution / 4 + (1 - distribution) * q * (1 - q)) / (self.held - q) ** 2
        return SiteNoise(variance, float(1 / (self.held - q).min()))

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"input-discriminative {self.chances} {self._number.tolist()}"

    def _draw(self, sites: IntArray, rng: Randomness) -> npt.NDArray[np.uint8]:
        sets = np.zeros((sites.size, self.bytes), dtype=np.uint8)
        for level, chance in enumerate(self.chances):
            of = np.packbits(self._number == level)
            sets |= independent_bits(sites.size, self.size, chance, rng) & of
        put_bits(sets, sites, uniform_below(sites.size, 2, rng) == 0)
        return sets
