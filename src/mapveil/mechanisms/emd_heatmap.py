"""Sparse aggregation under the earth mover's distance: Ghazi et al. (2023), Algorithms 1 and 2."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from mapveil.inference.tree_median import KeptTree, Masses, reconstruct
from mapveil.mechanisms.level_choice import ask_levels
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.mechanisms.thresholded_histogram import largest
from mapveil.trust.queries import Estimate, Plan, Setting
from mapveil_client.arrays import BoolArray, FloatArray, IntArray, quotient
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import is_whole
from mapveil_client.level_encoding import level_members
from mapveil_client.morton import children


class Selection(NamedTuple):
    """Nodes of the noisy pyramid that Algorithm 2 keeps: one entry per level from the first measured."""

    nodes: tuple[IntArray, ...]  # S_i, Morton codes, ascending
    noisy: tuple[FloatArray, ...]  # their noisy sums
    tree: KeptTree


def select(noisy: Sequence[FloatArray], members: Sequence[IntArray], width: int) -> Selection:
    """Keep the largest w among the children of what was kept: Algorithm 2, lines 3 to 7.

    Parameters
    ----------
    noisy : sequence of ndarray of float64
        Noisy sums of all nodes, in Morton order, of consecutive levels.
    members : sequence of ndarray of int64, same shapes
        Number of cells in each node; a node with none is known to be empty and never kept.
    width : int
        w.
    """
    nodes = [np.flatnonzero(members[0])]
    parents: list[IntArray] = []
    is_open: list[BoolArray] = []
    for values, count in zip(noisy[1:], members[1:], strict=True):
        candidates = children(nodes[-1]).reshape(-1)
        candidates = candidates[count[candidates] > 0]
        kept = candidates[largest(values[candidates], width)]
        position = np.searchsorted(nodes[-1], kept >> 2)
        offered = np.searchsorted(nodes[-1], candidates >> 2)
        size = nodes[-1].size
        is_open.append(np.bincount(offered, minlength=size) > np.bincount(position, minlength=size))
        parents.append(position)
        nodes.append(kept)
    chosen = tuple(values[kept] for values, kept in zip(noisy, nodes, strict=True))
    return Selection(tuple(nodes), chosen, KeptTree(tuple(parents), tuple(is_open)))


@dataclass(frozen=True, kw_only=True)
class EmdHeatmap(SumMechanism):
    r"""Measure a pyramid with budgets that peak at one level, keep the largest, and fit in l1.

    .. math:: y_i = 2^{-i} (P_i s + \nu_i), \quad \nu_i \sim \mathrm{Lap}(1 / \epsilon_i), \quad
              \epsilon_i = \gamma^{|i - q|} \epsilon / Z, \quad i = q, \ldots, \ell

    .. math:: \hat{s} = \arg\min_{s \ge 0} \lVert y|_S - P s \rVert_1

    where: :math:`s` is the sum of the users' distributions, :math:`P_i` sums it into the level-i nodes of a quadtree,
    :math:`\epsilon` is ``epsilon``, :math:`\gamma` is ``decay``, :math:`w` is ``width``,
    :math:`q = \lfloor \log_4 w \rfloor`, :math:`Z` makes the budgets sum to :math:`\epsilon`, and S keeps at each level
    the w largest children of what was kept above.

    Deviation: the answer is :math:`\hat{s}` in users, not normalised. Deviation: the mass of cells that were left
    out is uniform over them, which the paper leaves open. Deviation: the program is solved
    exactly over the tree (:mod:`mapveil.inference.tree_median`). Deviation: q is the base-4 logarithm (notes on the
    paper's section 4), and Z sums the measured levels only.

    Source: Ghazi, He, Kohlhoff, Kumar, Manurangsi, Navalpakkam, Valliappan, "Differentially Private
    Heatmaps" (AAAI 2023), Algorithms 1 and 2, section 4.

    Parameters
    ----------
    width : int
        Number of nodes kept per level, at least 1.
    decay : float
        Ratio of the budgets of neighbouring levels away from level q, in (1/2, 1].
    """

    name: ClassVar[str] = "emd"
    summary: ClassVar[str] = (
        "noisy pyramid, top-w selection, l1 reconstruction: close in earth mover's distance"
    )
    source: ClassVar[str] = "Ghazi et al., Differentially Private Heatmaps, AAAI 2023"

    width: int = 20
    decay: float = 0.5**0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(is_whole(self.width, 1, 1 << 63), "width", "a whole number of at least 1")
        self._check(0.5 < self.decay <= 1, "decay", "a number above 1/2, at most 1,")

    def first_level(self, depth: int) -> int:
        """q: the last level with at most ``width`` nodes, in a quadtree of ``depth`` levels."""
        return min((self.width.bit_length() - 1) // 2, depth)

    def plan(self, setting: Setting) -> Plan:
        """Algorithm 1, one query for each level; see :meth:`SumMechanism.plan`."""
        first = self.first_level(setting.depth)
        levels = range(first, setting.depth + 1)
        budgets = split_epsilon(self.budget, [self.decay ** (level - first) for level in levels])
        members = level_members(setting.members)[first:]
        measured, measurements = yield from ask_levels(setting, levels, budgets)
        chosen = select([each.sums for each in measured], members, self.width)
        masses = reconstruct(chosen.tree, chosen.noisy)
        note = "mass that cannot be placed within a node is spread evenly over it"
        if not any(mass.any() for mass in masses.kept):
            note = "the reconstruction is empty, so the map is even: no noisy sum of the first level was above zero"
        values = _leaf_densities(chosen, masses, members) * setting.members
        return Estimate(values, measurements, (note,))


def _leaf_densities(chosen: Selection, masses: Masses, members: Sequence[IntArray]) -> FloatArray:
    """Users per cell in each leaf: kept leaves hold their mass, left-out nodes theirs evenly."""
    density = np.zeros(members[0].size)
    for level, left_out in enumerate(masses.left_out):
        nodes, kept, count = chosen.nodes[level], chosen.nodes[level + 1], members[level + 1]
        free = count.copy()
        free[kept] = 0  # cells of each child that was left out
        mine = np.zeros(members[level].size)
        cells = free.reshape(-1, 4).sum(axis=1)[nodes]
        mine[nodes] = quotient(left_out, cells)
        density = np.repeat(density, 4) + np.where(free > 0, np.repeat(mine, 4), 0.0)
    leaves = chosen.nodes[-1]
    density[leaves] += masses.kept[-1] / members[-1][leaves]
    return density
