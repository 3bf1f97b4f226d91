r"""The relaxed notions of Table 1: what each promises depends on the places, so none is offered for a release.

*Condensed LDP* and *geo-indistinguishability* report a site by the exponential mechanism,

.. math:: q(y \mid x) \propto e^{-\lambda\, d(x, y)}, \qquad \frac{q(y \mid x)}{q(y \mid x')} \le e^{2 \lambda d(x, x')}

where: d is the distance in metres. For geo-indistinguishability :math:`2 \lambda = \epsilon / D`, D the distance of the
two farthest sites. For condensed LDP, :math:`\lambda` gives an adversary with a uniform prior the confidence that
generalized randomized response gives with :math:`\epsilon`:

.. math:: \max_{x, y} \frac{q(y \mid x)}{\sum_{x'} q(y \mid x')} = \frac{e^\epsilon}{e^\epsilon + d - 1}

*Input-discriminative LDP* gives each site i a budget :math:`\epsilon_i`: unary encoding whose bits are 1 with
probability 1/2 at the place and :math:`b_i` at another site i,

.. math:: \frac{\Pr[Y \mid x]}{\Pr[Y \mid x']} \le \frac{1 - b_{x'}}{b_x} \le e^{\min(\epsilon_x, \epsilon_{x'})}

Deviation: the b are those of least total variance that keep all pairs, not the solution of the published convex
programme for the worst case, which depends on the loss that is chosen.

Source: Wang et al. (2022), section 5, Table 1; Gursoy, Tamersoy, Truex, Wei, Liu, "Secure and Utility-Aware Data
Collection with Condensed Local Differential Privacy" (2019); Gu, Li, Cao, Xiong, "Providing Input-Discriminative
Protection for Local Differential Privacy" (2020), MinID-LDP.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mapveil.local.estimators.covariance import SiteNoise
from mapveil.local.randomizers.planar_laplace import TableRandomizer
from mapveil.local.randomizers.randomizer import SetRandomizer, Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import power
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.planar_laplace import distances_m, exponential_weights
from mapveil_client.local.random_sets import ONE, independent_bits, put_bits
from mapveil_client.randomness.random import Randomness, uniform_below

_STEPS = 60  # bisections of lambda


def greatest_confidence(channel: FloatArray) -> float:
    """The greatest posterior probability of any place under a uniform prior, after any report."""
    return float((channel / channel.sum(axis=0)).max())


def condensed_randomizer(domain: Domain, epsilon: Fraction) -> TableRandomizer:
    """Condensed LDP on a domain of at most 4,096 sites; its exact epsilon is larger than ``epsilon``."""
    distance = distances_m(domain)
    goal = math.exp(float(epsilon))
    goal = goal / (goal + domain.size - 1)

    def confidence(rate: float) -> float:
        made = np.exp(-rate * distance)
        return greatest_confidence(made / made.sum(axis=1, keepdims=True))

    low, high = 0.0, 1 / float(distance.max())
    while confidence(high) < goal:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if confidence(middle) <= goal else (low, middle)
    return TableRandomizer(domain, epsilon, exponential_weights(distance, low))


def geo_randomizer(domain: Domain, epsilon: Fraction) -> TableRandomizer:
    """Geo-indistinguishability on a domain of at most 4,096 sites; the two farthest keep ``epsilon``."""
    distance = distances_m(domain)
    rate = float(epsilon) / (2 * float(distance.max()))
    return TableRandomizer(domain, epsilon, exponential_weights(distance, rate))


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
        Number of sites of each, :math:`n_i`.
    """
    from scipy.optimize import Bounds, LinearConstraint, minimize

    count = len(levels)
    pairs = [(i, j, power(min(levels[i], levels[j]))) for i in range(count) for j in range(count)]
    rows = np.zeros((len(pairs), count))
    for row, (i, j, kept) in zip(rows, pairs, strict=True):
        row[i] += float(kept)
        row[j] += 1
    number = np.asarray(sites, dtype=float)
    even = 1 / (1 + float(power(min(levels))))  # keeps all pairs
    found = minimize(  # type: ignore[call-overload]
        lambda b: float(number @ (b * (1 - b) / (0.5 - b) ** 2)),
        np.full(count, even),
        bounds=Bounds(1e-9, 0.5 - 1e-6),
        constraints=LinearConstraint(rows, 1, np.inf),
        method="SLSQP",
    )
    chances = [max(1, math.ceil(float(b) * ONE)) for b in np.asarray(found.x)]
    for i, j, kept in pairs:  # what rounding broke
        least = Fraction(ONE) / (kept + 1) if i == j else (ONE - chances[j]) / kept
        chances[i] = max(chances[i], math.ceil(least))
    return chances


class InputDiscriminativeRandomizer(SetRandomizer):
    """Both halves of input-discriminative LDP on one domain, given the budget of each site."""

    def __init__(self, domain: Domain, budgets: Sequence[Fraction]) -> None:
        if len(budgets) != domain.size:
            raise ParameterError(f"budgets must be {domain.size}, one for each site, got {len(budgets)}")
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
