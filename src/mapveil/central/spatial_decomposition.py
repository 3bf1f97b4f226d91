"""A complete quadtree with geometric budgets and least squares: Cormode et al. (2012)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.central.mechanism import CentralMechanism, noisy_sums
from mapveil.central.pyramid import Pyramid
from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.inference.tree_least_squares import tree_least_squares
from mapveil.mechanisms.mechanism import Estimate, Progress
from mapveil.privacy.claim import Share
from mapveil_client.arrays import IntArray
from mapveil_client.epsilon import split_epsilon
from mapveil_client.randomness.random import Randomness

_HIGHEST = 10


@dataclass(frozen=True, kw_only=True)
class SpatialDecomposition(CentralMechanism):
    r"""Measure every node of a quadtree, more of the budget for finer levels, and make the tree consistent.

    .. math:: \epsilon_i = 2^{i / 3}\, \epsilon\, \frac{\sqrt[3]{2} - 1}{2^{(h + 1) / 3} - 1}, \qquad i = 0, \ldots, h

    where: :math:`\epsilon` is ``epsilon``, h is ``height``, i counts levels from the root; then the least-squares
    estimate of all nodes (:mod:`mapveil.inference.tree_least_squares`). Run by: the curator.

    Afterwards a node estimated below ``prune_below`` is not divided further (the paper's pruning): its users are
    spread evenly over it. Without pruning, a tree as deep as the tiling shows little but noise.

    Deviation: levels count from the root here, from the leaves in the paper. Deviation: negative leaves become zero.
    Deviation: the kd-trees of the paper are not built; it finds the quadtree as good.

    Source: Cormode, Procopiuc, Srivastava, Shen, Yu, "Differentially Private Spatial Decompositions" (ICDE
    2012), Lemma 3 and section 5.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    height : int, optional
        Levels below the root; the tiling's depth, at most 10, by default.
    prune_below : float, optional
        Users; 0 prunes nothing. By default 32 / epsilon: the paper's 32 at an epsilon of 1, and as much more as
        the noise is wider.
    """

    name: ClassVar[str] = "spatial-decomposition"
    summary: ClassVar[str] = "a complete noisy quadtree, geometric budgets, least squares, pruned"
    source: ClassVar[str] = "Cormode et al., Differentially Private Spatial Decompositions, ICDE 2012"

    height: int | None = None
    prune_below: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.height is None or 0 <= self.height <= 23, "height", "a level from 0 to 23, or none,")
        self._check(
            self.prune_below is None or 0 <= self.prune_below < math.inf,
            "prune_below",
            "a finite number of at least 0, or none,",
        )

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Measure the tree; see :meth:`CentralMechanism.estimate`."""
        pyramid = Pyramid.over(tiling.lattice())
        height = min(_HIGHEST if self.height is None else self.height, pyramid.depth)
        budgets = split_epsilon(self.budget, [2 ** (level / 3) for level in range(height + 1)])
        exact, members = pyramid.sums(sums), pyramid.members
        noisy = []
        for level, budget in enumerate(budgets):
            progress("measure", level / len(budgets))
            noisy.append(noisy_sums(exact[level], budget, rng))
        progress("measure", 1.0)
        estimates = tree_least_squares(
            noisy,
            [float(2 / budget**2) for budget in budgets],
            [count == 0 for count in members[: height + 1]],
        )
        least = 32 / float(self.budget) if self.prune_below is None else self.prune_below
        density = pyramid.density(0, estimates[0])
        divided = np.ones(1, dtype=np.bool_)
        for level in range(1, height + 1):
            if least > 0:
                divided &= estimates[level - 1] >= least
            divided = np.repeat(divided, 4)
            density = np.where(divided, pyramid.density(level, estimates[level]), np.repeat(density, 4))
        leaves = np.repeat(np.maximum(density, 0.0), 1 << (2 * (pyramid.depth - height)))
        return Estimate(
            values=pyramid.to_cells(leaves),
            measurements=tuple(
                pyramid.measurement(level, values, budget, UNIT)
                for level, (values, budget) in enumerate(zip(noisy, budgets, strict=True))
            ),
            shares=tuple(Share(f"level {level}", budget) for level, budget in enumerate(budgets)),
        )
