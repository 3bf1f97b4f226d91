r"""The likelihood of reports: the users that they suggest at each site, and the information that they hold.

For a distribution p of the users and n reports, of which the fraction :math:`\hat\pi(y)` is symbol y,

.. math:: c(x) = n\, p(x) \sum_y q(y \mid x)\, \frac{\hat\pi(y)}{\sum_{x'} q(y \mid x')\, p(x')}

is the number of users that the reports suggest at site x, with the channel q.

Other reports are known as the sets of sites, or of nodes of a hierarchy, that they support: a set supports the sites
that it holds, a hashed report the nodes of its level that its function sends to its bucket. With :math:`q_1` the
probability that a report supports its own place, :math:`q_0` any one other, h the number of reports that support a
node, and :math:`\pi = q_0 + (q_1 - q_0)\, p` its expected fraction,

.. math:: c(x) = p(x) \sum_l \Big( q_1 \frac{h_l}{\pi_l} + (1 - q_1) \frac{n_l - h_l}{1 - \pi_l} \Big)

at x's node of each level l with :math:`n_l` reports (nodes of one level as if independent). It takes O(d) a level,
where the exact likelihood of hashed reports takes Fourier transforms.
"""

from typing import Final, NamedTuple, Protocol

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.randomizer import SymbolRandomizer
from mapveil_client.local.staircase_groups import Blocks

TINY: Final = 1e-300
"""Least divisor."""


class Likelihood(Protocol):
    """The likelihood of some reports. Run by: the server."""

    def users(self, p: FloatArray) -> FloatArray:
        """c of the module's header for a distribution p, shape (sites,)."""
        ...

    def information(self, p: FloatArray, change: FloatArray) -> float:
        """The Fisher information about a change of the distribution p, shape (sites,)."""
        ...


class ChannelLikelihood:
    """The likelihood of symbols, by products with their channel."""

    def __init__(self, channel: SymbolRandomizer, counts: IntArray, reports: int) -> None:
        self._channel, self._reports = channel, reports
        self._counts, self._some = counts.astype(np.float64), counts > 0

    def users(self, p: FloatArray) -> FloatArray:
        """See :class:`Likelihood`."""
        expected = np.maximum(self._channel.forward(p), TINY)
        ratio = np.divide(self._counts, expected, out=np.zeros(expected.shape), where=self._some)
        return np.asarray(p * self._channel.backward(ratio))

    def information(self, p: FloatArray, change: FloatArray) -> float:
        """See :class:`Likelihood`."""
        expected = np.maximum(self._channel.forward(p), TINY)
        return float(self._reports * (self._channel.forward(change) ** 2 / expected).sum())


class LevelSupport(NamedTuple):
    """The reports about one level of a hierarchy."""

    nodes: Blocks
    supports: FloatArray  # h, shape (nodes,)
    reports: float  # n
    held: float  # q_1
    other: float  # q_0

    def expected(self, ordered: FloatArray) -> FloatArray:
        """Probability that a report supports each node, for a distribution in the order of the codes."""
        return np.asarray(self.other + (self.held - self.other) * self.nodes.sums(ordered))


class SupportLikelihood:
    """The likelihood of supports at all levels, with the site of each of a domain's codes."""

    def __init__(self, site: IntArray, levels: list[LevelSupport]) -> None:
        self._site, self._levels = site, levels

    def users(self, p: FloatArray) -> FloatArray:
        """See :class:`Likelihood`."""
        ordered = p[self._site]
        total = np.zeros(p.size)
        for level in self._levels:
            pi = level.expected(ordered)
            some = level.held * level.supports / pi
            none = (1 - level.held) * (level.reports - level.supports) / (1 - pi)
            total += level.nodes.spread(some + none)
        made = np.empty(p.size)
        made[self._site] = ordered * total
        return made

    def information(self, p: FloatArray, change: FloatArray) -> float:
        """See :class:`Likelihood`."""
        ordered, moved = p[self._site], change[self._site]
        total = 0.0
        for level in self._levels:
            pi = level.expected(ordered)
            slope = (level.held - level.other) * level.nodes.sums(moved)
            total += level.reports * float((slope**2 / (pi * (1 - pi))).sum())
        return total
