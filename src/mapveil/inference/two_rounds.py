r"""Blocks measured twice, as a whole and in parts: the best estimate of the parts from both, and their shrinkage.

.. math::
    T = \frac{v / V_1 + \sum_i u_i / (k V_2)}{1 / V_1 + 1 / (k V_2)}, \qquad
    \operatorname{Var} T = \frac{1}{1 / V_1 + 1 / (k V_2)}, \qquad
    u_i' = u_i + \frac{T - \sum_j u_j}{k}

where: v is a block's noisy sum of variance :math:`V_1`, u the noisy sums of its k disjoint parts of variance
:math:`V_2` each, T the best linear estimate of the block. With :math:`V_1 \propto 1 / \alpha^2` and
:math:`V_2 \propto 1 / (1 - \alpha)^2` it is the constrained inference of the adaptive grid. Post-processing: costs no
privacy. Source: Gauss-Markov; Qardaji, Yang, Li, "Differentially Private Grids for Geospatial Data" (ICDE 2013),
section IV.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.inference.shrinkage import multiscale_shrinkage
from mapveil_client.arrays import FloatArray, IntArray

_LEAST: Final = 1e-12  # variance, users squared: a large budget's is zero in floating point


class Consistent(NamedTuple):
    """Parts that sum to the best estimates of their blocks."""

    parts: FloatArray  # u', shape (parts,)
    variance: FloatArray  # Var T, shape (blocks,)


class Leaves(NamedTuple):
    """Blocks of a square raster, each divided as often as its own depth says."""

    of_site: IntArray  # the leaf each site lies in, -1 for structural zeros, shape (side, side)
    members: IntArray  # cells that each leaf holds, none 0, shape (leaves,)
    block: IntArray  # of each leaf, as an index into the flattened raster of blocks, shape (leaves,)


def block_inference(
    blocks: FloatArray, parts: FloatArray, block: IntArray, block_variance: float, part_variance: float
) -> Consistent:
    """Estimate the parts from both measurements. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    blocks : ndarray of float64, shape (blocks,)
        v, noisy sums of the blocks.
    parts : ndarray of float64, shape (parts,)
        u, noisy sums of their parts.
    block : ndarray of int64, shape (parts,)
        The block of each part.
    block_variance, part_variance : float
        Noise variance of each block and of each part.

    Examples
    --------
    >>> block_inference(np.array([6.0]), np.array([1.0, 2.0]), np.zeros(2, dtype=int), 2.0, 1.0).parts
    array([1.75, 2.75])
    """
    count = np.maximum(np.bincount(block, minlength=blocks.size), 1)
    total = np.bincount(block, weights=parts, minlength=blocks.size)
    of_whole, of_parts = max(block_variance, _LEAST), count * max(part_variance, _LEAST)
    variance = 1 / (1 / of_whole + 1 / of_parts)
    best = (blocks / of_whole + total / of_parts) * variance
    return Consistent(parts + ((best - total) / count)[block], variance)


def shrink_two_rounds(
    blocks: FloatArray,
    block_variance: float,
    sums: FloatArray,
    variance: float,
    leaves: Leaves,
    members: npt.NDArray[Any],
    *,
    shifts: int = 8,
    sampled: bool = False,
) -> FloatArray:
    """Combine noisy sums of blocks and of their leaves, and shrink. Run by: whoever holds them.

    Parameters
    ----------
    blocks : ndarray of float64, shape (coarse, coarse)
        Noisy sums of the blocks.
    block_variance : float
        Noise variance of each.
    sums : ndarray of float64, shape (leaves,)
        Noisy sums of the leaves.
    variance : float
        Noise variance of each.
    leaves : Leaves
        Division of the blocks.
    members : ndarray, shape (side, side)
        Number of cells that each site stands for.
    shifts, sampled
        See :func:`mapveil.inference.shrinkage.multiscale_shrinkage`.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Non-negative; 0 where there are no members.
    """
    made = block_inference(blocks.reshape(-1), sums, leaves.block, block_variance, variance)
    count = np.bincount(leaves.block, minlength=blocks.size)
    leaf_variance = np.where(count > 1, max(variance, _LEAST), made.variance)[leaves.block]
    held = np.bincount(leaves.block, weights=leaves.members, minlength=blocks.size)[leaves.block]
    inside = leaves.of_site >= 0
    leaf = leaves.of_site[inside]

    def on_sites(values: FloatArray) -> FloatArray:
        square = np.zeros(members.shape)
        square[inside] = values[leaf] * members[inside]
        return square

    return multiscale_shrinkage(
        on_sites(made.parts / leaves.members),
        on_sites(leaf_variance / leaves.members),
        members,
        block=members.shape[0] // blocks.shape[0],
        block_variance=on_sites(made.variance[leaves.block] / held),
        leaves=on_sites(1 / leaves.members),
        shifts=shifts,
        sampled=sampled,
    )
