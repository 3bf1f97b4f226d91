"""A quadtree whose depth follows the data without a limit on it: PrivTree, Zhang et al. (2016)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.engines import UNIT
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.claim import Share
from mapveil.privacy.discrete_laplace import check_noise, discrete_laplace
from mapveil.trust.queries import Estimate, Plan, Progress, Query, Setting
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.encodings import NodeEncoding
from mapveil_client.epsilon import split_epsilon
from mapveil_client.level_encoding import level_members
from mapveil_client.morton import PrefixTree, children
from mapveil_client.randomness.random import Randomness

_FANOUT = 4
_LARGEST_THETA = 1 << 32  # users; in units of 1 / UNIT user it stays below 2**61, within int64


@dataclass(frozen=True, kw_only=True)
class PrivTree(SumMechanism):
    r"""Split a node while its biased noisy count is large, then measure the leaves.

    .. math:: b(v) = \max(c(v) - i\, \delta,\ \theta - \delta), \qquad \text{split } v \text{ when }
              b(v) + \mathrm{Lap}(\lambda) > \theta

    .. math:: \lambda = \frac{2 \beta - 1}{\beta - 1} \cdot \frac{1}{\epsilon_1}, \qquad
              \delta = \lambda \ln \beta

    where: :math:`c(v)` is the users' mass in node v of level i, :math:`\beta = 4` the number of children,
    :math:`\theta` is ``theta``, :math:`\epsilon_1` is ``tree_share`` of ``epsilon``; the leaves' sums get the rest.

    Why :math:`\epsilon_1` holds for a user who is spread over several paths: such a user is at most U =
    :data:`~mapveil.engines.UNIT` lattice units, each of them in one cell, so it is enough that one unit changes no
    tree's log-probability by more than :math:`\epsilon_1 / U`; units added one after the other do the rest. Let
    :math:`\Lambda = U \lambda` and :math:`\Delta = \lceil U \delta \rceil`, and let biased counts be integers.

    - A node of biased count x is split with probability :math:`S(x) = \Pr[X > \theta - x]`, X discrete Laplace
      of scale :math:`\Lambda`. For the discrete law :math:`\ln S(x) - \ln S(x - 1) \le \Lambda^{-1}
      \min(1, e^{-(x - \theta - 1) / \Lambda})`, as for the continuous one.
    - A unit moves only the nodes of its path with :math:`c(v) - i \Delta > \theta - \Delta` once it is there: the first
      ones, for that number falls by at least :math:`\Delta` a level. The last of them costs at most
      :math:`\Lambda^{-1}`; the one above it has a biased count of at least :math:`\theta + 1`, and each further one
      :math:`\Delta` more, so that together they cost at most :math:`\Lambda^{-1} \sum_{j \ge 0} e^{-j \Delta /
      \Lambda} \le \Lambda^{-1} \beta / (\beta - 1)`. In all: :math:`\Lambda^{-1} (2 \beta - 1) / (\beta - 1) =
      \epsilon_1 / U`.
    - In the other direction only the one leaf on the path becomes less likely, by at most :math:`\Lambda^{-1}`.
    - A node that is never split (a cell of the tiling, or known to be empty) only takes a factor away.

    Deviation: the noise is discrete, and :math:`\delta` is rounded up to the lattice. Deviation: depth ends with
    the tiling; nodes known to be empty are no leaves. Deviation: negative leaves become zero.

    Source: Zhang, Xiao, Xie, "PrivTree: A Differentially Private Algorithm for Hierarchical
    Decompositions" (SIGMOD 2016), Algorithm 2, Theorem 3.1, section 3.4.

    Parameters
    ----------
    theta : float
        The threshold, users, from -2**32 to 2**32.
    tree_share : float
        Part of the budget for the tree, from 0.0001 to 0.9999.
    """

    name: ClassVar[str] = "privtree"
    summary: ClassVar[str] = "a quadtree split where biased noisy counts are large, then noisy leaves"
    source: ClassVar[str] = "Zhang et al., PrivTree, SIGMOD 2016"

    unanswerable: ClassVar[Mapping[str, str]] = {
        "distributed": "every level's decisions would be a round of its own, and its noise is not on sums",
        "operators": "its noise is not on sums, which are what operators answer",
    }

    theta: float = 0.0
    tree_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(abs(self.theta) <= _LARGEST_THETA, "theta", "a number from -2**32 to 2**32")
        self._check_share("tree_share")

    def plan(self, setting: Setting) -> Plan:
        """Ask for the tree, then for its leaves; see :meth:`SumMechanism.plan`."""
        tree_epsilon, leaf_epsilon = split_epsilon(self.budget, [self.tree_share, 1 - self.tree_share])
        tree: PrefixTree = yield TreeQuery(setting.members, tree_epsilon, self.theta)
        order = np.lexsort((tree.code, tree.level))
        sums = yield Query("its leaves", NodeEncoding(tree), leaf_epsilon, order)
        values = tree.spread(np.maximum(sums.values, 0.0), setting.members)
        return Estimate(values, (sums.measurement(tree.owner(np.arange(setting.members.size))),))


@dataclass(frozen=True, eq=False)
class TreeQuery:
    """The leaves of PrivTree: every decision to split, for one epsilon (the proof is :class:`PrivTree`'s).

    Parameters
    ----------
    members : ndarray of int64, shape (4**depth,)
        Cells on each site, in Morton order.
    epsilon : Fraction
        Budget of all decisions together.
    theta : float
        The threshold, users.
    """

    members: IntArray
    epsilon: Fraction
    theta: float

    kind: ClassVar[type] = PrefixTree

    @property
    def share(self) -> Share:
        """Its entry in the guarantee."""
        return Share("the tree", self.epsilon)

    @property
    def _rate(self) -> Fraction:
        r""":math:`1 / \lambda`, per user."""
        return self.epsilon * (_FANOUT - 1) / (2 * _FANOUT - 1)

    def check(self) -> None:
        """Refuse noise that cannot be drawn."""
        check_noise(self._rate, UNIT)

    def reply(self, sums: IntArray, rng: Randomness, progress: Progress) -> PrefixTree:
        """Grow the tree over exact sums per site, units of 1 / UNIT user. Run by: the curator."""
        exact, members = level_members(sums), level_members(self.members)
        depth = len(members) - 1
        levels, codes = [], []
        nodes = np.zeros(1, dtype=np.int64)
        for level in range(depth + 1):
            progress("grow", level / (depth + 1))
            split = self._split(exact[level][nodes], level, rng) & (level < depth)
            codes.append(nodes[~split])
            levels.append(np.full(codes[-1].size, level))
            if level < depth:
                nodes = children(nodes[split]).reshape(-1)
                nodes = nodes[members[level + 1][nodes] > 0]
        progress("grow", 1.0)
        return PrefixTree.of_nodes(depth, np.concatenate(levels), np.concatenate(codes))

    def _split(self, masses: IntArray, level: int, rng: Randomness) -> BoolArray:
        """Decide which nodes of a level are split; masses in units of 1 / UNIT user."""
        # The proof needs at least lambda ln(4): the factor outweighs the rounding of the floats.
        delta = math.ceil(UNIT * math.log(_FANOUT) / float(self._rate) * (1 + 2**-50))
        theta = round(self.theta * UNIT)
        biased = np.maximum(masses - level * delta, theta - delta)
        return np.asarray(biased + discrete_laplace(masses.size, self._rate, UNIT, rng) > theta)
