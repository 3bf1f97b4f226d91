r"""The exact least-squares estimate on a tree with independent noise: two passes.

.. math:: \min_x\ \sum_v \frac{(y_v - x_v)^2}{\sigma_v^2} \qquad \text{where } x_v = \sum_{c \in
   \mathrm{children}(v)} x_c

where: :math:`y_v` is the noisy sum of node v and :math:`\sigma_v^2` its variance; a node that was not measured
has an infinite one, a node that is known to be empty has :math:`x_v = 0`. Upwards, each node combines its
own noisy sum with the sum of its children's estimates by inverse variance; downwards, the difference between
a parent's final estimate and that sum is divided in proportion to the children's variances. With four
children everywhere and one variance per level this is the method of Cormode et al. (2012), section 5; kept
per node, it is exact where parts of the tree are known to be empty too.

Source: Cormode, Procopiuc, Srivastava, Shen, Yu, "Differentially Private Spatial Decompositions" (ICDE 2012),
section 5; Hay, Rastogi, Miklau, Suciu, "Boosting the Accuracy of Differentially Private Histograms Through
Consistency" (VLDB 2010).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mapveil_client.arrays import BoolArray, FloatArray, IntArray, quotient

if TYPE_CHECKING:
    from collections.abc import Sequence


def tree_least_squares(
    noisy: Sequence[FloatArray], variances: Sequence[float], empty: Sequence[BoolArray]
) -> tuple[FloatArray, ...]:
    """Solve the problem of the module's header. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    noisy : sequence of ndarray of float64, shapes (4**i,)
        Noisy sums of every node in Morton order, the root's level first.
    variances : sequence of float
        The variance of each level's noise; ``inf`` for a level that was not measured, finite for the last.
    empty : sequence of ndarray of bool, same shapes
        The nodes that are known to be empty; a parent is where all its children are.

    Returns
    -------
    tuple of ndarray of float64
        The estimates of every node, consistent: four children sum to their parent.

    Examples
    --------
    >>> noisy, none = [np.array([8.0]), np.array([1.0, 1, 1, 1])], [np.zeros(1, bool), np.zeros(4, bool)]
    >>> tree_least_squares(noisy, [1.0, 1.0], none)[1]
    array([1.8, 1.8, 1.8, 1.8])
    """
    spread = [np.where(none, 0.0, variance) for variance, none in zip(variances, empty, strict=True)]
    known = [np.where(none, 0.0, y) for y, none in zip(noisy, empty, strict=True)]
    parents = [np.arange(each.size) // 4 for each in known[1:]]
    return nested_least_squares(known, spread, parents).values


class NestedEstimates(NamedTuple):
    """Estimates of the groups of every round, consistent: those inside a group sum to it."""

    values: tuple[FloatArray, ...]  # the first round first
    variances: tuple[FloatArray, ...]  # of each group's estimate from its own sum and those inside it


def nested_least_squares(
    noisy: Sequence[FloatArray], variances: Sequence[FloatArray | float], parents: Sequence[IntArray]
) -> NestedEstimates:
    """Solve the problem of the module's header for groups in groups. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    noisy : sequence of ndarray of float64, shapes (groups,)
        Noisy sums of the groups of each round, the coarsest round first.
    variances : sequence of ndarray of float64 or float
        Variance of each; 0 where a group's sum is exact, ``inf`` where it was not measured, finite in the last round.
    parents : sequence of ndarray of int64
        For every round but the first, the group of the round before in which each group lies.

    Examples
    --------
    >>> nested_least_squares([np.array([6.0]), np.array([1.0, 2.0])], [2.0, 1.0], [np.zeros(2, int)]).values[1]
    array([1.75, 2.75])
    """
    estimate = noisy[-1]
    up = [(estimate, np.broadcast_to(np.asarray(variances[-1], dtype=np.float64), estimate.shape))]
    below: list[tuple[FloatArray, FloatArray]] = []
    for y, given, parent in zip(
        reversed(noisy[:-1]), reversed(variances[:-1]), reversed(parents), strict=True
    ):
        total, spread = (
            np.asarray(np.bincount(parent, weights=part, minlength=y.size), dtype=np.float64)
            for part in up[-1]
        )
        below.append((total, spread))
        own = np.broadcast_to(np.asarray(given, dtype=np.float64), y.shape)
        weight = quotient(spread, spread + own)  # 0 where all children are known to be empty
        variance = spread.copy()
        np.multiply(weight, own, out=variance, where=np.isfinite(own))
        up.append((total + weight * (y - total), variance))
    final = [up[-1][0]]
    for (estimate, variance), (total, spread), parent in zip(
        reversed(up[:-1]), reversed(below), parents, strict=True
    ):
        missing = quotient(final[-1] - total, spread)
        final.append(estimate + variance * missing[parent])
    return NestedEstimates(tuple(final), tuple(variance for _, variance in reversed(up)))
