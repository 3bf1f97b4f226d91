r"""Blocks measured twice, as a whole and in parts: the best estimate of the parts from both.

.. math::
    v' = \frac{v / V_1 + \sum_i u_i / (k V_2)}{1 / V_1 + 1 / (k V_2)}, \qquad
    u_i' = u_i + \frac{v' - \sum_j u_j}{k}

where: v is a block's noisy sum of variance :math:`V_1`, u the noisy sums of its k parts of variance :math:`V_2` each.
With :math:`V_1 \propto 1 / \alpha^2` and :math:`V_2 \propto 1 / (1 - \alpha)^2` it is the constrained inference of the
adaptive grid. Post-processing: costs no privacy. Source: Qardaji, Yang, Li, "Differentially Private Grids for
Geospatial Data" (ICDE 2013), section IV.
"""

from __future__ import annotations

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray


def block_inference(
    blocks: FloatArray, parts: FloatArray, block: IntArray, block_variance: float, part_variance: float
) -> FloatArray:
    """What both measurements say of the parts together. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    blocks : ndarray of float64, shape (blocks,)
        v, noisy sums of the blocks.
    parts : ndarray of float64, shape (parts,)
        u, noisy sums of their parts.
    block : ndarray of int64, shape (parts,)
        The block of each part.
    block_variance, part_variance : float
        Noise variance of each block and of each part; where both are 0 the parts are right.

    Returns
    -------
    ndarray of float64, shape (parts,)
        The parts of a block sum to its best estimate.

    Examples
    --------
    >>> block_inference(np.array([6.0]), np.array([1.0, 2.0]), np.zeros(2, dtype=int), 2.0, 1.0)
    array([1.75, 2.75])
    """
    count = np.maximum(np.bincount(block, minlength=blocks.size), 1)
    total = np.bincount(block, weights=parts, minlength=blocks.size)
    spread = count * part_variance
    both = block_variance + spread
    weight = np.divide(spread, both, out=np.zeros(count.shape), where=both > 0)
    return np.asarray(parts + (weight * (blocks - total) / count)[block])
