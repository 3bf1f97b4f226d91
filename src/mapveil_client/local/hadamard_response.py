"""Hadamard response: a symbol of half of a block, which half being a row of a Hadamard matrix."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import LocalMethod, SymbolRandomizer, odds_for
from mapveil_client.randomness.random import Randomness, uniform_below


def walsh_hadamard(values: FloatArray) -> FloatArray:
    r"""The product of every row with the Hadamard matrix :math:`H_{i y} = (-1)^{|i \wedge y|}`, in O(b log b).

    where: :math:`|i \wedge y|` is the number of bits that i and y share, and b the length of a row, a power of two.

    Examples
    --------
    >>> walsh_hadamard(np.array([[1.0, 0, 0, 2]])).tolist()
    [[3.0, -1.0, -1.0, 3.0]]
    """
    rows, length = values.shape
    made = np.array(values, dtype=np.float64)
    half = 1
    while half < length:
        pairs = made.reshape(rows, length // (2 * half), 2, half)
        made = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        half *= 2
    return made.reshape(rows, length)


class HadamardRandomizer(SymbolRandomizer):
    """The randomizer of :class:`HadamardResponse` on one domain: B is ``blocks`` and b is ``length``."""

    kind: ClassVar[int] = 3

    def __init__(self, domain: Domain, epsilon: Fraction, blocks: int | None) -> None:
        super().__init__(domain, epsilon)
        most = 1 << (domain.size - 1).bit_length()
        if blocks is None:
            wanted = math.ceil(math.log2(min(math.exp(min(float(epsilon), 60.0)), 2.0 * domain.size)))
            blocks = 1 << max(wanted - 1, 0)
        check(blocks <= most, "blocks", f"{most} at most for {domain.size} sites", blocks)
        self.length = 1 << (-(-domain.size // blocks)).bit_length()
        self.blocks = -(-domain.size // (self.length - 1))
        self.weights = odds_for(epsilon, self.symbols)
        self._surplus = (self.weights.more - self.weights.less) * (self.length // 2)
        self._total = self._surplus + self.weights.less * self.symbols

    @property
    def symbols(self) -> int:
        """K = B b."""
        return self.blocks * self.length

    @property
    def step(self) -> float:
        """The change of a site's estimate, up or down, by one report of the site's block."""
        return self._total / self._surplus

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        block, row = np.divmod(sites, self.length - 1)
        row = row + 1
        left = uniform_below(sites.size, self._total, rng) - self._surplus
        drawn = left // self.weights.less
        chosen = np.flatnonzero(left < 0)
        if chosen.size:
            at, of = uniform_below(chosen.size, self.length, rng), row[chosen]
            # Half of all symbols have an odd number of the row's bits: one bit more or less makes it even.
            at ^= np.where(_odd(at & of), of & -of, 0)
            drawn[chosen] = block[chosen] * self.length + at
        return drawn

    def _rows(self, values: FloatArray) -> FloatArray:
        """Values of sites as the rows of blocks, shape (B, b), 0 for rows that are no site."""
        grid = np.zeros((self.blocks, self.length - 1))
        grid.reshape(-1)[: self.size] = values
        return np.concatenate([np.zeros((self.blocks, 1)), grid], axis=1)

    def _sites(self, rows: FloatArray) -> FloatArray:
        return np.ascontiguousarray(rows[:, 1:]).reshape(-1)[: self.size]

    def forward(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.forward`: O(K log b)."""
        return self._product(self._rows(distribution), distribution.sum()).reshape(-1)

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`: O(K log b)."""
        return self._sites(self._product(values.reshape(self.blocks, self.length), values.sum()))

    def _product(self, rows: FloatArray, total: float) -> FloatArray:
        """The symmetric channel of the blocks' rows, times values of them that sum to ``total``."""
        bent = self._surplus / self.length * (walsh_hadamard(rows) + rows.sum(axis=1, keepdims=True))
        return np.asarray((bent + self.weights.less * total) / self._total)

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"hadamard {self.blocks} {self.weights.more}:{self.weights.less}"


def _odd(values: IntArray) -> IntArray:
    """Whether numbers below 2**32 have an odd number of bits."""
    folded = values.copy()
    for shift in (16, 8, 4, 2, 1):
        folded ^= folded >> shift
    return folded & 1


@dataclass(frozen=True, kw_only=True)
class HadamardResponse(LocalMethod):
    r"""Report one of K symbols; those of the place's set :math:`C_x` are likelier.

    .. math:: q(y \mid x) = \frac{e^\epsilon}{e^\epsilon s + K - s} \text{ if } y \in C_x, \quad
        \frac{1}{e^\epsilon s + K - s} \text{ otherwise}, \qquad s = |C_x| = b / 2, \quad K = B b

    where: the sites are dealt to B blocks of b symbols; the i-th site of a block has the symbols y of the block for
    which row i of the b x b Hadamard matrix is +1. The sets of two sites of one block share half of their symbols, so
    that the estimate is one Hadamard transform. Blocks that no site is left for have no symbols.

    Source: Acharya, Sun, Zhang, "Hadamard Response: Estimating Distributions Privately, Efficiently, and with Little
    Communication" (2019), of which B = 1 is what Wang et al. (2022) call HR.

    Parameters
    ----------
    blocks : int, optional
        B, a power of two; by default :math:`2^{\lceil \log_2 \min(e^\epsilon, 2 d) \rceil - 1}`.
    """

    name: ClassVar[str] = "hr"
    summary: ClassVar[str] = "each client reports a symbol of half of a block, by a row of a Hadamard matrix"
    source: ClassVar[str] = "Acharya et al. 2019"
    randomizer = HadamardRandomizer

    blocks: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        power = isinstance(self.blocks, int) and self.blocks >= 1 and not self.blocks & (self.blocks - 1)
        self._check(self.blocks is None or power, "blocks", "a power of two, or none")
