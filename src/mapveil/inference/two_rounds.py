r"""Two rounds of noisy sums made one: blocks, and the leaves into which each block was divided.

A block was measured as a whole (variance :math:`V_1`) and as k disjoint leaves (variance
:math:`V_2` each). The best linear estimate of its sum, and the leaves made consistent with it, are

.. math::
    T = \frac{v / V_1 + \sum_i u_i / (k V_2)}{1 / V_1 + 1 / (k V_2)}, \qquad
    \operatorname{Var} T = \frac{1}{1 / V_1 + 1 / (k V_2)}, \qquad
    u_i' = u_i + \frac{T - \sum_i u_i}{k}

where: v is the block's noisy sum and u the leaves'. Post-processing: costs no privacy.
Source: Gauss-Markov; Qardaji, Yang, Li (2013), section IV, for the two-level case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mapveil.inference.shrinkage import SplitRule, multiscale_shrinkage
from mapveil_client.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Leaves:
    """Blocks of a square raster, each divided as often as its own depth says.

    Parameters
    ----------
    of_site : ndarray of int64, shape (side, side)
        The leaf each site lies in, -1 for structural zeros.
    members : ndarray of int64, shape (leaves,)
        How many cells each leaf holds, none 0.
    block : ndarray of int64, shape (leaves,)
        The block each leaf is a part of, as an index into the flattened raster of blocks.
    """

    of_site: IntArray
    members: IntArray
    block: IntArray


def divide_blocks(depths: IntArray, members: IntArray) -> Leaves:
    """Divide every block ``depths`` times into quarters.

    Parameters
    ----------
    depths : ndarray of int64, shape (coarse, coarse)
        How often each block is quartered, at most ``log2(side / coarse)``.
    members : ndarray of int64, shape (side, side)
        How many cells each site stands for, 0 for a structural zero.

    Examples
    --------
    >>> divide_blocks(np.array([[0, 1]] * 2), np.ones((4, 4), dtype=np.int64)).of_site.tolist()
    [[0, 0, 1, 2], [0, 0, 3, 4], [5, 5, 6, 7], [5, 5, 8, 9]]
    """
    coarse, side = depths.shape[0], members.shape[0]
    factor = side // coarse
    length = (factor >> depths).repeat(factor, axis=0).repeat(factor, axis=1)
    row, col = np.indices(members.shape)
    anchor = (row // length * length) * side + col // length * length
    inside = members > 0
    # A leaf is numbered by its first site; marking and counting is faster than sorting.
    used = np.zeros(members.size, dtype=np.bool_)
    used[anchor[inside]] = True
    anchors = np.flatnonzero(used)
    of_site = np.full(members.shape, -1, dtype=np.int64)
    of_site[inside] = (np.cumsum(used) - 1)[anchor[inside]]
    held = np.bincount(of_site[inside], members[inside], anchors.size).astype(np.int64)
    return Leaves(of_site, held, anchors // side // factor * coarse + anchors % side // factor)


def shrink_two_rounds(
    blocks: FloatArray,
    block_variance: float,
    sums: FloatArray,
    variance: float,
    leaves: Leaves,
    members: npt.NDArray[Any],
    *,
    shifts: int = 8,
    rule: SplitRule = "prior",
    sampled: bool = False,
) -> FloatArray:
    """Combine noisy sums of blocks and of their leaves, and shrink. Run by: whoever holds them.

    Parameters
    ----------
    blocks : ndarray of float64, shape (coarse, coarse)
        Noisy sums of the blocks.
    block_variance : float
        Noise variance of each, above 0.
    sums : ndarray of float64, shape (leaves,)
        Noisy sums of the leaves.
    variance : float
        Noise variance of each, above 0.
    leaves : Leaves
        How the blocks were divided.
    members : ndarray, shape (side, side)
        How many cells each site stands for.
    shifts, rule, sampled
        See :func:`mapveil.inference.shrinkage.multiscale_shrinkage`.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Non-negative; 0 where there are no members.
    """
    coarse = blocks.size
    count = np.bincount(leaves.block, minlength=coarse)
    total = np.bincount(leaves.block, weights=sums, minlength=coarse)
    parts = np.maximum(count, 1) * variance
    best_variance = 1 / (1 / block_variance + 1 / parts)
    best = (blocks.reshape(-1) / block_variance + total / parts) * best_variance
    consistent = sums + ((best - total) / np.maximum(count, 1))[leaves.block]
    leaf_variance = np.where(count > 1, variance, best_variance)[leaves.block]
    held = np.bincount(leaves.block, weights=leaves.members, minlength=coarse)[leaves.block]
    inside = leaves.of_site >= 0
    leaf = leaves.of_site[inside]

    def on_sites(values: FloatArray) -> FloatArray:
        square = np.zeros(members.shape)
        square[inside] = values[leaf] * members[inside]
        return square

    return multiscale_shrinkage(
        on_sites(consistent / leaves.members),
        on_sites(leaf_variance / leaves.members),
        members,
        block=members.shape[0] // blocks.shape[0],
        block_variance=on_sites(best_variance[leaves.block] / held),
        leaves=on_sites(1 / leaves.members),
        shifts=shifts,
        rule=rule,
        sampled=sampled,
    )
