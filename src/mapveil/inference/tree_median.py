r"""The exact l1 reconstruction over a tree of noisy sums: Algorithm 2, line 9, of Ghazi et al. (2023).

.. math:: \min_{m, o \ge 0}\ \sum_v 2^{-i(v)} |y_v - m_v| + \sum_v (2^{-i(v)} - 2^{-L})\, o_v
   \qquad \text{where } m_v = o_v + \sum_{c \in \mathrm{kept}(v)} m_c \text{ above the last level } L

where: :math:`y_v` is the noisy sum of a kept node v, :math:`i(v)` its level, :math:`m_v` its estimate, and
:math:`o_v` the mass in those of its children that were left out. A left-out node was measured as zero at its
own level and at every level below, :math:`\sum_{j=i+1}^{L} 2^{-j} = 2^{-i} - 2^{-L}` a unit; one variable per
parent holds them all, so there are O(w * levels) variables.

:func:`reconstruct` solves it from the leaves up. The least cost of a node's subtree, as a function of the
node's mass, is convex and piecewise linear. In units of :math:`2^{-L}` its slopes at height
:math:`h = L - i` are the odd integers from :math:`-(2^{h+1} - 1)` to :math:`2^{h+1} - 1`, the last without end;
so a row of :math:`2^{h+1} - 1` lengths says it all. Adding the children's functions under a common mass (the
infimal convolution) adds their rows; adding :math:`2^h |y - m|` cuts the row at y and lowers what lies before
the cut by :math:`2^h`, raising the rest by as much, which puts both side by side again. No sorting, no heap:
O(sqrt(w) 2^L) additions in all, a small multiple of the number of cells at most.

Two consequences worth knowing: the nodes of the first level weigh more than everything below them, so their
estimates are the positive parts of their noisy sums; and where the optimum is not unique (several
children with the same slope), each takes its part in proportion to its length, and mass beyond all
measurements goes to the left-out children before the kept ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mapveil_client.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Sequence


class KeptTree(NamedTuple):
    """The kept nodes of consecutive levels, the first level's being roots.

    ``parents[j]`` gives for each node of level j + 1 the position of its parent in level j, ascending;
    ``open[j]`` says for each node of level j whether some of its children were left out. A node without
    kept children must be open.
    """

    parents: tuple[IntArray, ...]
    open: tuple[BoolArray, ...]  # one entry per level but the last


class Masses(NamedTuple):
    """A solution: each kept node's mass, and the mass in its left-out children."""

    kept: tuple[FloatArray, ...]  # one entry per level
    left_out: tuple[FloatArray, ...]  # one entry per level but the last; 0 where not open


def reconstruct(tree: KeptTree, noisy: Sequence[FloatArray]) -> Masses:
    """Solve the problem of the module's header exactly. Run by: the curator (post-processing).

    Parameters
    ----------
    tree : KeptTree
        The kept nodes.
    noisy : sequence of ndarray of float64
        Noisy sums of the kept nodes, one array per level, in any one unit.

    Returns
    -------
    Masses
        In the same unit, none below zero.

    Examples
    --------
    One root measured as 5 whose only kept leaf was measured as 3: the other 2 go to its left-out children.

    >>> one = np.zeros(1, dtype=np.int64)
    >>> made = reconstruct(KeptTree((one,), (np.array([True]),)), [np.array([5.0]), np.array([3.0])])
    >>> made.kept[1], made.left_out[0]
    (array([3.]), array([2.]))
    """
    rows: list[FloatArray] = [np.maximum(noisy[-1], 0.0)[:, None]]
    merged: list[FloatArray] = []
    for parents, y in zip(reversed(tree.parents), reversed(noisy[:-1]), strict=True):
        below = _sum_by_parent(rows[-1], parents, y.size)
        merged.append(below)
        rows.append(_add_distance(below, y))
    rows.reverse()
    merged.reverse()
    kept = [np.maximum(noisy[0], 0.0)]
    left_out: list[FloatArray] = []
    for parents, is_open, below, lengths in zip(tree.parents, tree.open, merged, rows[1:], strict=True):
        mass = kept[-1]
        ends = np.cumsum(below, axis=1)
        taken = np.clip(mass[:, None] - (ends - below), 0.0, below)
        part = np.divide(taken, below, out=np.zeros_like(below), where=below > 0)
        beyond = np.maximum(mass - ends[:, -1], 0.0)
        children = np.bincount(parents, minlength=mass.size)
        share = np.where(is_open, 0.0, beyond / np.maximum(children, 1))
        kept.append(np.einsum("ck,ck->c", part[parents], lengths) + share[parents])
        left_out.append(np.where(is_open, beyond, 0.0))
    return Masses(tuple(kept), tuple(left_out))


def _sum_by_parent(rows: FloatArray, parents: IntArray, count: int) -> FloatArray:
    """Add up the rows of each parent's children; the lengths of a common slope add."""
    total = np.zeros((count, rows.shape[1]))
    if parents.size:
        starts = np.flatnonzero(np.diff(parents, prepend=-1))
        total[parents[starts]] = np.add.reduceat(rows, starts, axis=0)
    return total


def _add_distance(below: FloatArray, y: FloatArray) -> FloatArray:
    """Add the cost of missing y to functions whose finite lengths are given by slope."""
    ends = np.concatenate([np.cumsum(below, axis=1), np.full((y.size, 1), np.inf)], axis=1)
    before = np.diff(np.minimum(ends, np.maximum(y, 0.0)[:, None]), axis=1, prepend=0.0)
    return np.concatenate([before, np.maximum(below - before[:, :-1], 0.0)], axis=1)
