"""A complete quadtree with geometric budgets and least squares: Cormode et al. (2012)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.inference.tree_least_squares import tree_least_squares
from mapveil.mechanisms.level_choice import LevelMechanism, ask_levels, show_levels
from mapveil.trust.queries import Estimate, Plan, Setting
from mapveil_client.arrays import FloatArray, IntArray, quotient
from mapveil_client.epsilon import split_epsilon
from mapveil_client.level_encoding import level_members

_LEAST = 1e-300  # a level without any noise weighs nearly infinitely


@dataclass(frozen=True, kw_only=True)
class SpatialDecomposition(LevelMechanism):
    r"""Measure every node of a quadtree, more of the budget for finer levels, and make the tree consistent.

    .. math:: \epsilon_i = \epsilon\, \frac{g^i}{\sum_{j=0}^{h} g^j}, \qquad i = 0, \ldots, h

    where: :math:`\epsilon` is ``epsilon``, h the finest level, i counts levels from the root and g is ``growth``, the
    cube root of 2; then the least-squares estimate of all nodes (:mod:`mapveil.inference.tree_least_squares`).
    Without pruning, a tree as deep as the tiling shows little but noise. Two remedies:

    - the paper's pruning: a node estimated below ``prune_below`` is not divided further, its users are spread evenly;
    - each subregion shows the level that the noise allows (:mod:`mapveil.mechanisms.level_choice`).

    Each level is a query of its own; none depends on an earlier answer, so a deployment may send all levels at once.

    Deviation: levels count from the root here, from the leaves in the paper. Deviation: negative nodes become zero.
    Deviation: the kd-trees of the paper are not built; it finds the quadtree as good. Deviation: Bagdasaryan et al.
    give more of the budget to higher levels (``growth`` = 2 ** (-1 / 3) reproduces their errors) and show the best
    level, chosen with the truth in hand, as ``level`` can; their Table 1 counts the leaves' coordinates only,
    1,048,576 of 1,398,101.

    Source: Cormode, Procopiuc, Srivastava, Shen, Yu, "Differentially Private Spatial Decompositions" (ICDE
    2012), Lemma 3 and section 5; Bagdasaryan et al. (2022), section 6.2.

    Parameters
    ----------
    growth : float
        Ratio of the budget of each level to that of the level above, above 0.
    prune_below : float, optional
        Users; 0 prunes nothing. By default a curator's tree is pruned at 32 / epsilon (the paper's 32 at an epsilon
        of 1, and as much more as the noise is wider), and one of secure sums shows levels by the rule.
    deepest, level, subregions
        See :class:`~mapveil.mechanisms.level_choice.LevelMechanism`.
    """

    name: ClassVar[str] = "spatial-decomposition"
    summary: ClassVar[str] = "a complete noisy quadtree, geometric budgets, least squares"
    source: ClassVar[str] = "Cormode et al., ICDE 2012; Bagdasaryan et al. 2022, section 6.2"

    coarsest: ClassVar[int] = 0
    finest: ClassVar[int] = 10

    growth: float = 2 ** (1 / 3)
    prune_below: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(0 < self.growth <= 16, "growth", "a number above 0 and at most 16")
        self._check(
            self.prune_below is None or 0 <= self.prune_below < math.inf,
            "prune_below",
            "a finite number of at least 0, or none",
        )
        self._check(
            self.level is None or self.prune_below is None, "level", "a level or prune_below, not both,"
        )

    def plan(self, setting: Setting) -> Plan:
        """One query for each level; see :meth:`SumMechanism.plan`."""
        levels = self.levels(setting)
        budgets = split_epsilon(self.budget, [self.growth**level for level in levels])
        measured, measurements = yield from ask_levels(setting, levels, budgets)
        held = level_members(setting.members)
        estimates = tree_least_squares(
            [each.sums for each in measured],
            [max(each.variance, _LEAST) for each in measured],
            [held[level] == 0 for level in levels],
        )
        if self.level is None and (setting.curator or self.prune_below is not None):
            least = 32 / float(self.budget) if self.prune_below is None else self.prune_below
            return Estimate(_pruned(estimates, held, least), measurements)
        chosen = self.chosen(measured, setting)
        shown = [each._replace(sums=estimate) for each, estimate in zip(measured, estimates, strict=True)]
        return Estimate(show_levels(shown, setting.members, chosen), measurements)


def _pruned(estimates: tuple[FloatArray, ...], held: tuple[IntArray, ...], least: float) -> FloatArray:
    """Each site's part of the deepest node above it whose ancestors are all estimated at ``least`` or more."""
    density = np.zeros(1)
    divided = np.ones(1, dtype=np.bool_)
    for level, estimate in enumerate(estimates):
        if level and least > 0:
            divided = divided & (estimates[level - 1] >= least)
        if level:
            divided, density = divided.repeat(4), density.repeat(4)
        density = np.where(divided, quotient(estimate, held[level]), density)
    leaves = np.maximum(density, 0.0).repeat(held[-1].size // density.size)
    return np.asarray(leaves * held[-1])
