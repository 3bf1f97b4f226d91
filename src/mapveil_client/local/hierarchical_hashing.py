"""Local hashing of a random level of the hierarchy, with constrained inference over all of them."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.domain import Codes, Domain
from mapveil_client.local.local_hashing import HashedReports, best_buckets, is_prime
from mapveil_client.local.randomizer import LocalMethod, SymbolRandomizer
from mapveil_client.local.staircase_groups import Blocks, blocks_at
from mapveil_client.randomness.random import Randomness, uniform_below

_LARGEST_TABLES = 1 << 25  # counts of all levels together
_MOST = 1 << 10  # largest growth and site weight
_GROWTH, _SITE_WEIGHT = 8, 4  # where terms do not say


def levels_of(codes: Codes, growth: int) -> list[Blocks]:
    """The levels asked for, coarsest first, the sites last: each has at least ``growth`` times the nodes before."""
    last = blocks_at(codes, codes.bits)
    found = [last]
    for length in range(codes.bits - 2, 0, -2):
        blocks = blocks_at(codes, length)
        if blocks.first.size < 2:
            break
        if blocks.first.size * growth <= found[-1].first.size:
            found.append(blocks)
    return found[::-1]


class HierarchicalHashingRandomizer(SymbolRandomizer):
    """The randomizer of :class:`HierarchicalHashing` on one domain."""

    kind: ClassVar[int] = 7

    def __init__(
        self,
        domain: Domain,
        epsilon: Fraction,
        buckets: int | None,
        growth: int | None,
        site_weight: int | None,
    ) -> None:
        super().__init__(domain, epsilon)
        self._levels = levels_of(domain.codes, growth or _GROWTH)
        self._weights = [1] * (len(self._levels) - 1) + [site_weight or _SITE_WEIGHT]
        self._weight = sum(self._weights)
        room, nodes = _LARGEST_TABLES // len(self._levels), [blocks.first.size for blocks in self._levels]
        self._reports = [
            HashedReports(each, epsilon, buckets or best_buckets(epsilon, each, room)) for each in nodes
        ]
        self._starts = np.cumsum([0, *(each.symbols for each in self._reports)])

    @property
    def symbols(self) -> int:
        """One for each level, function and bucket."""
        return int(self._starts[-1])

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`: the level does not depend on the place."""
        return max(Fraction(*each.weights) for each in self._reports)

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        rank = self.domain.codes.rank[sites]
        level = np.minimum(uniform_below(sites.size, self._weight, rng), len(self._levels) - 1)
        drawn = np.empty(sites.size, dtype=np.int64)
        for number, (blocks, reports) in enumerate(zip(self._levels, self._reports, strict=True)):
            of = np.flatnonzero(level == number)
            drawn[of] = self._starts[number] + reports.draw(blocks.of_rank[rank[of]], rng)
        return drawn

    def forward(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.forward`."""
        ordered = distribution[self.domain.codes.site]
        parts = [
            weight * reports.forward(blocks.sums(ordered))
            for weight, blocks, reports in zip(self._weights, self._levels, self._reports, strict=True)
        ]
        return np.concatenate(parts) / self._weight

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`."""
        ordered = np.zeros(self.size)
        for weight, blocks, reports, part in zip(
            self._weights, self._levels, self._reports, self._parts(values), strict=True
        ):
            ordered += weight * blocks.spread(reports.backward(part))
        made = np.empty(self.size)
        made[self.domain.codes.site] = ordered / self._weight
        return made

    def _parts(self, values: FloatArray) -> list[FloatArray]:
        return [values[start:stop] for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True)]

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        each = " ".join(
            f"{part.hashes.sites}/{part.hashes.buckets}/{part.weights.more}:{part.weights.less}"
            for part in self._reports
        )
        return f"hierarchical hashing {self._weights[-1]} {each}"


@dataclass(frozen=True, kw_only=True)
class HierarchicalHashing(LocalMethod):
    r"""Report, by local hashing with the whole epsilon, in which node of one random level the place is.

    The level is drawn from those of :func:`levels_of`, whatever the place. The server makes the unbiased estimates of
    all levels consistent (:mod:`mapveil.local.estimators.tree_consistency`), or smooths their likelihood.

    Deviation: levels that have fewer than ``growth`` times the nodes of the next coarser one are left out, and the
    sites can be asked about more often than each other level. Which is best depends on epsilon, the sites and the
    number of reports: a server that knows them states both. ``growth=2, site_weight=1`` is the published method, but
    for levels that hardly differ.

    Source: Wang et al., "Answering Multi-Dimensional Analytical Queries under Local Differential Privacy" (2019), as
    the OLH-H of Wang et al. (2022), section 6.2; Hay et al. (2010) for the inference.

    Parameters
    ----------
    buckets : int, optional
        g of every level, a prime; each level's best by default.
    growth : int, optional
        Least ratio of the nodes of a level to those of the next coarser one; 8 where terms do not say.
    site_weight : int, optional
        Probability that the sites are asked about, as a multiple of that of each other level; 4 where terms do not say.
    """

    name: ClassVar[str] = "olh-h"
    summary: ClassVar[str] = (
        "each client reports a hashed node of one random level; all levels are made consistent"
    )
    source: ClassVar[str] = "Wang et al. 2019; Wang et al. 2022, section 6.2"
    randomizer = HierarchicalHashingRandomizer

    buckets: int | None = None
    growth: int | None = None
    site_weight: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.buckets is None or is_prime(self.buckets), "buckets", "a prime, or none")
        for name, value, least in (("growth", self.growth, 2), ("site_weight", self.site_weight, 1)):
            held = value is None or (isinstance(value, int) and least <= value <= _MOST)
            self._check(held, name, f"a whole number from {least} to {_MOST}, or none")
