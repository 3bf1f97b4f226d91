r"""Estimates of the nodes of a tree of any shape, made consistent: constrained inference.

.. math:: \min_x \sum_v \frac{(y_v - x_v)^2}{\sigma_v^2} \qquad \text{where } x_v = \sum_{c \in C(v)} x_c

where: C(v) are the children of node v, :math:`y_v` is the estimate of node v and :math:`\sigma_v^2` the variance of
its level's. Upwards each node combines its own estimate with the sum of its children's by inverse variance; downwards
what the children lack of their parent is divided in proportion to their variances.

Source: Hay, Rastogi, Miklau, Suciu, "Boosting the Accuracy of Differentially Private Histograms Through Consistency"
(2010), for trees whose nodes have any number of children.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray


def make_consistent(
    estimates: Sequence[FloatArray],
    variances: Sequence[float],
    children: Sequence[IntArray],
    total: float | None = None,
) -> FloatArray:
    """The leaves of the consistent tree, shape (leaves,). Run by: the server.

    Parameters
    ----------
    estimates : sequence of ndarray of float64
        Of the nodes of each level, the coarsest first.
    variances : sequence of float
        Of each level's estimates, above 0.
    children : sequence of ndarray of int64
        For each level but the last, how many children each node has, at least one; children follow in order.
    total : float, optional
        What all leaves sum to, where it is known.

    Examples
    --------
    >>> make_consistent([np.array([8.0]), np.ones(4)], [1.0, 1.0], [np.array([4])]).tolist()
    [1.8, 1.8, 1.8, 1.8]
    """
    up = [(estimates[-1], np.full(estimates[-1].size, variances[-1]))]
    sums: list[tuple[FloatArray, FloatArray]] = []
    for y, own, count in zip(
        reversed(estimates[:-1]), reversed(variances[:-1]), reversed(children), strict=True
    ):
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        below, spread = (np.add.reduceat(part, first) for part in up[-1])
        sums.append((below, spread))
        weight = spread / (spread + own)
        up.append((below + weight * (y - below), weight * own))
    top, spread = up[-1]
    if total is not None:
        top = top + (total - top.sum()) * spread / spread.sum()
    for (estimate, variance), (below, spread), count in zip(
        reversed(up[:-1]), reversed(sums), children, strict=True
    ):
        lack = np.repeat((top - below) / spread, count)
        top = estimate + variance * lack
    return top
