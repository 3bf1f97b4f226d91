"""Unary encoding: a bit for every site, each randomized by itself."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.epsilon import keeps, power
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.random_sets import ONE, independent_bits, put_bits
from mapveil_client.local.randomizer import LocalMethod, SetRandomizer
from mapveil_client.randomness.random import Randomness, uniform_below

Variant = Literal["optimized", "symmetric"]


class UnaryRandomizer(SetRandomizer):
    """The randomizer of :class:`UnaryEncoding` on one domain: ``chances`` are p and q, over 2**32."""

    kind: ClassVar[int] = 4

    def __init__(self, domain: Domain, epsilon: Fraction, variant: Variant) -> None:
        super().__init__(domain, epsilon)
        self.chances = _chances(epsilon, variant)
        if self.chances[0] <= self.chances[1]:
            raise ParameterError(f"epsilon must be 2**-20 or more, got {float(epsilon):g}")
        self.held, self.other = (chance / ONE for chance in self.chances)

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`: the bits of two places flipped, the others alike."""
        return _ratio(*self.chances)

    def _draw(self, sites: IntArray, rng: Randomness) -> npt.NDArray[np.uint8]:
        sets = independent_bits(sites.size, self.size, self.chances[1], rng)
        put_bits(sets, sites, uniform_below(sites.size, ONE, rng) < self.chances[0])
        return sets

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"unary {self.chances[0]}:{self.chances[1]}"


def _ratio(p: int, q: int) -> Fraction:
    return Fraction(p * (ONE - q), q * (ONE - p))


def _chances(epsilon: Fraction, variant: Variant) -> tuple[int, int]:
    factor = power(epsilon)
    if variant == "optimized":
        return ONE // 2, math.ceil(ONE / (1 + factor))
    q = max(1, math.ceil(ONE / (1 + math.exp(min(float(epsilon), 60.0) / 2))))
    while not keeps(_ratio(ONE - q, q), epsilon):
        q += 1
    return ONE - q, q


@dataclass(frozen=True, kw_only=True)
class UnaryEncoding(LocalMethod):
    r"""Report a bit for every site: 1 with probability p at the place, q elsewhere.

    .. math:: \frac{p\,(1 - q)}{q\,(1 - p)} = e^\epsilon, \qquad
        p = \tfrac12,\ q = \frac{1}{e^\epsilon + 1} \text{ (optimized)}, \quad
        p = 1 - q = \frac{e^{\epsilon / 2}}{e^{\epsilon / 2} + 1} \text{ (symmetric)}

    where: p and q are multiples of 2^-32, q rounded up. Two places differ in two bits. A report takes d / 8 bytes,
    and about 2 d random bits are drawn for it.

    Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (2017); the
    optimized form is the PLDP of Wang et al. (2022), section 6.2, with one protection region for all.

    Parameters
    ----------
    variant : str
        ``"optimized"`` or ``"symmetric"``.
    """

    name: ClassVar[str] = "unary"
    summary: ClassVar[str] = "each client reports one randomized bit for every site"
    source: ClassVar[str] = "Wang et al. 2017"
    randomizer = UnaryRandomizer

    variant: Variant = "optimized"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.variant in ("optimized", "symmetric"), "variant", "optimized or symmetric")
