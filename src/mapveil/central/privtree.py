"""A quadtree whose depth follows the data without a limit on it: PrivTree, Zhang et al. (2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.central.mechanism import CentralMechanism, Estimate, IntArray, Progress, noisy_sums
from mapveil.central.pyramid import Pyramid
from mapveil.engines import UNIT
from mapveil.geo.morton import children
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import Measurement
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil.privacy.epsilon import split_epsilon
from mapveil.privacy.guarantee import Share
from mapveil.privacy.random import Randomness

__all__ = ["PrivTree"]

_FANOUT = 4


@dataclass(frozen=True, kw_only=True)
class PrivTree(CentralMechanism):
    r"""Split a node while its biased noisy count is large, then measure the leaves.

    .. math:: b(v) = \max(c(v) - i\, \delta,\ \theta - \delta), \qquad \text{split } v \text{ when }
              b(v) + \mathrm{Lap}(\lambda) > \theta

    .. math:: \lambda = \frac{2 \beta - 1}{\beta - 1} \cdot \frac{1}{\epsilon_1}, \qquad
              \delta = \lambda \ln \beta

    where: c(v) is the users' mass in node v of level i, :math:`\beta = 4` the number of children,
    :math:`\theta` is ``theta``, :math:`\epsilon_1` is ``tree_share`` of ``epsilon``; the leaves' sums get the rest.
    Run by: the curator.

    Why :math:`\epsilon_1` holds when a user is spread over several paths: let the user have mass w in node v. The
    log-ratio of v's decision with and without the user is the integral of the noise's hazard over a stretch of
    length w, and the hazard only falls as the count grows, so it is at most w times the hazard at the count
    without the user. The paper bounds the sum of these hazards along any one path by :math:`\epsilon_1`. Divide each
    node's cost among the user's leaves below it by their mass: every leaf bears one path's sum times its
    mass, and the masses sum to at most one. On the lattice the hazard of the discrete law is
    :math:`1 / \lambda` a user above zero and falls by :math:`e^{-x / \lambda}` below, as the paper's proof needs.

    Deviation: the noise is discrete, and :math:`\delta` is rounded up to the lattice. Deviation: depth ends with
    the tiling; nodes known to be empty are no leaves. Deviation: negative leaves become zero.

    Source: Zhang, Xiao, Xie, "PrivTree: A Differentially Private Algorithm for Hierarchical
    Decompositions" (SIGMOD 2016), Algorithm 2, Theorem 3.1, section 3.4.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    theta : float
        The threshold, users.
    tree_share : float
        Part of the budget for the tree, in (0, 1).
    """

    name: ClassVar[str] = "privtree"
    summary: ClassVar[str] = "a quadtree split where biased noisy counts are large, then noisy leaves"
    source: ClassVar[str] = "Zhang et al., PrivTree, SIGMOD 2016"

    theta: float = 0.0
    tree_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(math.isfinite(self.theta), "theta", "a finite number")
        self._check(0 < self.tree_share < 1, "tree_share", "a number between 0 and 1")

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Grow the tree and measure its leaves; see :meth:`CentralMechanism.estimate`."""
        pyramid = Pyramid.over(tiling.lattice())
        tree_epsilon, leaf_epsilon = split_epsilon(self.budget, [self.tree_share, 1 - self.tree_share])
        exact = pyramid.sums(sums)
        # Which leaf covers each leaf of the lattice: numbered as they are found, from the root down.
        label = np.full(1, -1, dtype=np.int64)
        leaves: list[IntArray] = []
        masses: list[IntArray] = []
        found = 0
        nodes = np.zeros(1, dtype=np.int64)
        for level in range(pyramid.depth + 1):
            progress("grow", level / (pyramid.depth + 1))
            split = self._split(exact[level][nodes], level, tree_epsilon, rng)
            if level == pyramid.depth:
                split = np.zeros(nodes.size, dtype=np.bool_)
            ends = nodes[~split]
            label[ends] = found + np.arange(ends.size)
            found += ends.size
            leaves.append(pyramid.members[level][ends])
            masses.append(exact[level][ends])
            if level == pyramid.depth:
                break
            label = np.repeat(label, _FANOUT)
            nodes = children(nodes[split]).reshape(-1)
            nodes = nodes[pyramid.members[level + 1][nodes] > 0]
        progress("grow", 1.0)
        members = np.concatenate(leaves)
        noisy = noisy_sums(np.concatenate(masses), leaf_epsilon, rng)
        density = np.maximum(noisy, 0.0) / np.maximum(members, 1)
        return Estimate(
            values=pyramid.to_cells(np.where(label >= 0, density[np.maximum(label, 0)], 0.0)),
            measurements=(Measurement(label[pyramid.codes], noisy, leaf_epsilon, UNIT),),
            shares=(Share("the tree", tree_epsilon), Share("its leaves", leaf_epsilon)),
        )

    def _split(
        self, masses: IntArray, level: int, epsilon: Fraction, rng: Randomness
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which nodes of a level are split; everything in units of 1 / UNIT user."""
        scale = epsilon * (_FANOUT - 1) / (2 * _FANOUT - 1)  # 1 / lambda
        delta = math.ceil(UNIT * math.log(_FANOUT) / float(scale))
        theta = round(self.theta * UNIT)
        biased = np.maximum(masses - level * delta, theta - delta)
        return np.asarray(biased + discrete_laplace(masses.size, scale, UNIT, rng) > theta)
