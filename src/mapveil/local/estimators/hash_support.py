r"""Hashed reports as the sets of nodes that they support, which is cheaper to iterate on than their buckets.

A report supports the nodes of its level that its function sends to its bucket: the place's with probability
:math:`q_1`, any one other with :math:`q_0`. With h the number of reports that support a node, and
:math:`\pi = q_0 + (q_1 - q_0)\, p` its expected fraction,

.. math:: c(x) = p(x) \sum_l \Big( q_1 \frac{h_l}{\pi_l} + (1 - q_1) \frac{n_l - h_l}{1 - \pi_l} \Big)

is the number of users that the reports suggest at x, at x's node of each level l with :math:`n_l` reports (nodes of
one level as if independent). It takes O(d) a level, where the exact likelihood of the buckets takes Fourier transforms.

Source: Mapveil; see :mod:`mapveil.local.estimators.smoothed_likelihood`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from mapveil.local.randomizers.randomizer import Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.staircase_groups import Blocks


class LevelSupport(NamedTuple):
    """The reports about one level."""

    nodes: Blocks
    supports: FloatArray  # h, shape (nodes,)
    reports: float  # n
    held: float  # q_1
    other: float  # q_0

    def expected(self, ordered: FloatArray) -> FloatArray:
        """Probability that a report supports each node, for a distribution in the order of the codes."""
        return np.asarray(self.other + (self.held - self.other) * self.nodes.sums(ordered))


class HashSupport:
    """The supports of all levels, with the site of each of a domain's codes."""

    def __init__(self, site: IntArray, levels: list[LevelSupport]) -> None:
        self._site, self._levels = site, levels

    def users(self, p: FloatArray) -> FloatArray:
        """c of the module's header, shape (sites,). Run by: the server."""
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
        """The Fisher information about a change of the distribution p. Run by: the server."""
        ordered, moved = p[self._site], change[self._site]
        total = 0.0
        for level in self._levels:
            pi = level.expected(ordered)
            slope = (level.held - level.other) * level.nodes.sums(moved)
            total += level.reports * float((slope**2 / (pi * (1 - pi))).sum())
        return total


class Supporting(ABC):
    """A randomizer whose reports support nodes of a hierarchy."""

    @abstractmethod
    def support(self, tally: Tally) -> HashSupport:
        """The nodes that the reports support. Run by: the server."""
