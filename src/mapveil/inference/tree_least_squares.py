r"""The exact least-squares estimate on a quadtree with independent noise: two passes.

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

from typing import TYPE_CHECKING

import numpy as np

from mapveil_client.arrays import BoolArray, FloatArray

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
    estimate = np.where(empty[-1], 0.0, noisy[-1])
    variance = np.where(empty[-1], 0.0, variances[-1])
    up = [(estimate, variance)]
    below: list[tuple[FloatArray, FloatArray]] = []
    for y, own in zip(reversed(noisy[:-1]), reversed(variances[:-1]), strict=True):
        total, spread = (part.reshape(-1, 4).sum(axis=1) for part in up[-1])
        below.append((total, spread))
        if np.isinf(own):
            up.append((total, spread))
        else:
            weight = spread / (spread + own)  # 0 where all children are known to be empty
            up.append((total + weight * (y - total), weight * own))
    final = [up[-1][0]]
    for (estimate, variance), (total, spread) in zip(reversed(up[:-1]), reversed(below), strict=True):
        missing = np.divide(final[-1] - total, spread, out=np.zeros_like(total), where=spread > 0)
        final.append(estimate + variance * np.repeat(missing, 4))
    return tuple(final)
