"""Staircase randomized response: the nearer a site, the likelier its report, in m steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import LocalMethod, SymbolRandomizer
from mapveil_client.local.staircase_groups import (
    Extremes,
    Steps,
    best_thresholds,
    block_extremes,
    blocks_at,
    calibrate,
    check_thresholds,
    nested_sizes,
    staircase_ratio,
)
from mapveil_client.randomness.random import Randomness, uniform_below_each

_TOTAL_BITS = 62


def group_number(epsilon: Fraction, sites: int) -> int:
    r"""The number of groups of Lemma 3.4, rounded to the nearest of at least two.

    .. math:: m = \frac{2\, (c\, d - e^{1 + \ln c})}{(c - 1)\, d}, \qquad c = e^\epsilon

    where: d is ``sites``. It minimises an upper bound on the mutual information of place and report, over all
    distributions: not a measure of accuracy. For an epsilon above about 4 it is 2, and the mechanism is generalized
    randomized response.
    """
    c = math.exp(min(float(epsilon), 700.0))
    return max(2, round(2 * (sites - math.e) / ((1 - 1 / c) * sites)))


class StaircaseRandomizer(SymbolRandomizer):
    """The randomizer of :class:`StaircaseResponse` on one domain.

    Attributes
    ----------
    thresholds : tuple of int
        Least number of bits that the sites of each group share with the place, descending.
    steps : Steps
        c, as whole numbers.
    extremes : Extremes
        Extremes of the domain, by which c is calibrated.
    """

    kind: ClassVar[int] = 2

    def __init__(
        self, domain: Domain, epsilon: Fraction, groups: int | None, thresholds: Sequence[int] | None
    ) -> None:
        super().__init__(domain, epsilon)
        codes = domain.codes
        if thresholds is not None:
            self.thresholds = check_thresholds(codes, thresholds)
        else:
            self.thresholds = best_thresholds(codes, groups or group_number(epsilon, domain.size))
        self._blocks = [blocks_at(codes, threshold) for threshold in self.thresholds[:-1]]
        self.extremes: Extremes = block_extremes(self._blocks, domain.size)
        lower = len(self._blocks)
        room = _TOTAL_BITS - 1 - (lower * domain.size).bit_length()
        self.steps: Steps = calibrate(self.extremes, epsilon, room)
        if self.steps.more == 0:
            raise ParameterError(f"epsilon must be 2**-20 or more, got {float(epsilon):g}")
        self._even = lower * self.steps.less  # weight that every site has
        nested = nested_sizes(self._blocks, domain.size)
        self._total: IntArray = self._even * domain.size + self.steps.more * nested

    @property
    def totals(self) -> FloatArray:
        """W, the sum of all weights of a place, in the order of the codes."""
        return self._total.astype(np.float64)

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`."""
        return staircase_ratio(self.extremes, self.steps)

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        codes = self.domain.codes
        rank = codes.rank[sites]
        # The law is a mixture: uniform on everything, and on each of the blocks around the place.
        left = uniform_below_each(self._total[rank], rng)
        everywhere = self._even * self.size
        drawn = left // self._even
        inside = np.flatnonzero(left >= everywhere)
        if inside.size:
            offset = (left[inside] - everywhere) // self.steps.more
            place, chosen = rank[inside], np.empty(inside.size, dtype=np.int64)
            for blocks in self._blocks:
                block = blocks.of_rank[place]
                here = (offset >= 0) & (offset < blocks.size[block])
                chosen[here] = blocks.first[block[here]] + offset[here]
                offset -= blocks.size[block]
            drawn[inside] = chosen
        return codes.site[drawn]

    def forward(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.forward`: O(d m), by sums over blocks."""
        codes = self.domain.codes
        made = np.empty(self.size)
        made[codes.site] = self._mix(distribution[codes.site] / self._total)
        return made

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`: O(d m), by sums over blocks."""
        codes = self.domain.codes
        made = np.empty(self.size)
        made[codes.site] = self._mix(values[codes.site]) / self._total
        return made

    def _mix(self, values: FloatArray) -> FloatArray:
        """The unnormalised, symmetric matrix times values in the order of the codes."""
        mixed = np.full(self.size, self._even * values.sum())
        for blocks in self._blocks:
            if blocks.first.size == self.size:
                mixed += self.steps.more * values
            else:
                mixed += blocks.spread(self.steps.more * blocks.sums(values))
        return mixed

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        cut = ",".join(str(threshold) for threshold in self.thresholds)
        return f"staircase {cut} {self.steps.more}:{self.steps.less}"


@dataclass(frozen=True, kw_only=True)
class StaircaseResponse(LocalMethod):
    r"""Report a site of group j of the place with probability :math:`\alpha_j(x)`, falling in equal steps.

    .. math:: q(y \mid x) = \alpha_j(x), \quad y \in G_j(x), \qquad
        \alpha_j(x) = \alpha_{\min}(x) \Big(c - \frac{(j - 1)(c - 1)}{m - 1}\Big), \qquad
        \alpha_{\min}(x) = \frac{m - 1}{(m - 1)\, d\, c - (c - 1) \sum_{j=2}^m (j - 1) |G_j(x)|}

    where: d is the number of sites, m that of groups; the groups :math:`G_j(x)` and c, the largest number with which
    the exact ratio of probabilities is at most :math:`e^\epsilon`, are those of
    :mod:`mapveil_client.local.staircase_groups`.

    Deviation: the published c, about :math:`e^\epsilon`, does not keep the promise on uneven domains. Deviation: the
    sum runs to m, without which the probabilities do not sum to 1. Deviation: the first group is the place alone
    unless thresholds say otherwise, because groups of several sites cannot be told apart.

    Source: Wang et al., "L-SRR: Local Differential Privacy for Location-Based Services with Staircase Randomized
    Response" (2022), equations 2 to 4, Lemma 3.4, Algorithm 1.

    Parameters
    ----------
    groups : int, optional
        m; that of Lemma 3.4 by default.
    thresholds : sequence of int, optional
        Bits, descending, instead of the best ones; the published experiments used 46, 30, 2. Also as text, "46,30,2".
    """

    name: ClassVar[str] = "srr"
    summary: ClassVar[str] = "each client reports a site, the nearer the likelier, in steps"
    source: ClassVar[str] = "Wang et al. 2022"
    randomizer = StaircaseRandomizer

    groups: int | None = None
    thresholds: tuple[int, ...] | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        held = self.groups is None or (isinstance(self.groups, int) and self.groups >= 2)
        self._check(held, "groups", "a whole number of at least 2, or none")
        if self.thresholds is not None:
            given = self.thresholds
            try:
                parts = given.split(",") if isinstance(given, str) else given
                object.__setattr__(self, "thresholds", tuple(int(part) for part in parts))
            except (TypeError, ValueError):
                self._check(False, "thresholds", "bits such as 46,30,2, or none")
