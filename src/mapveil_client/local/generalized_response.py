"""Generalized randomized response: the place itself, or any other with a smaller probability."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import odds
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import TOTAL_BITS, LocalMethod, SymbolRandomizer
from mapveil_client.randomness.random import Randomness, uniform_below


class GeneralizedRandomizer(SymbolRandomizer):
    """The randomizer of :class:`GeneralizedRandomizedResponse` on one domain."""

    kind: ClassVar[int] = 1

    def __init__(self, domain: Domain, epsilon: Fraction) -> None:
        super().__init__(domain, epsilon)
        room = TOTAL_BITS - domain.size.bit_length()
        self.weights = odds(epsilon, TOTAL_BITS - 1, min(room, 40))
        self._total = self.weights.more + (self.size - 1) * self.weights.less

    @property
    def probabilities(self) -> tuple[float, float]:
        """The probability of the place itself, and of each other one."""
        return self.weights.more / self._total, self.weights.less / self._total

    def forward(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.forward`."""
        true, other = self.probabilities
        return np.asarray((true - other) * distribution + other * distribution.sum())

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`: the matrix is symmetric."""
        return self.forward(values)

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"generalized {self.weights.more}:{self.weights.less}"

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        surplus = self.weights.more - self.weights.less
        drawn = uniform_below(sites.size, self._total, rng) - surplus
        # Draws beyond the surplus are any site, the place itself among them.
        return np.where(drawn < 0, sites, drawn // self.weights.less)


@dataclass(frozen=True, kw_only=True)
class GeneralizedRandomizedResponse(LocalMethod):
    r"""Report the place with the larger of two probabilities, each other one with the smaller.

    .. math:: q(y \mid x) = \frac{e^\epsilon}{d + e^\epsilon - 1} \text{ if } y = x, \quad
        \frac{1}{d + e^\epsilon - 1} \text{ otherwise}

    where: d is the number of sites.

    Source: Kairouz, Bonawitz, Ramage, "Discrete Distribution Estimation under Local Privacy" (2016); Wang et al.
    (2022), equation 1.
    """

    name: ClassVar[str] = "grr"
    summary: ClassVar[str] = "each client reports its place, or with some probability any other"
    source: ClassVar[str] = "Kairouz et al. 2016; Wang et al. 2022, equation 1"
    randomizer = GeneralizedRandomizer
