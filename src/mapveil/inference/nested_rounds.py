r"""Groups of sites measured round by round, each inside one of the round before: best estimates, and their shrinkage.

For two rounds the least-squares estimate (:mod:`mapveil.inference.tree_least_squares`) is

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

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.inference.shrinkage import multiscale_shrinkage
from mapveil.inference.tree_least_squares import NestedEstimates, nested_least_squares
from mapveil_client.arrays import FloatArray, IntArray

_LEAST: Final = 1e-12  # variance, users squared: a large budget's is zero in floating point


class Round(NamedTuple):
    """Noisy sums of disjoint square groups of sites."""

    values: FloatArray  # users, shape (groups,)
    variance: float  # of each
    side: IntArray  # sites along a side of each group, shape (groups,)
    group: IntArray  # in which each leaf lies, shape (leaves,)


class Leaves(NamedTuple):
    """The groups of the last round on a square raster."""

    of_site: IntArray  # the leaf each site lies in, -1 for structural zeros, shape (side, side)
    members: npt.NDArray[Any]  # cells that each leaf holds, or their weight; none 0, shape (leaves,)


def block_inference(
    blocks: FloatArray, parts: FloatArray, block: IntArray, block_variance: float, part_variance: float
) -> FloatArray:
    """Estimates of parts, which sum to the best estimates of their blocks. Run by: whoever holds the noisy sums.

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
    >>> block_inference(np.array([6.0]), np.array([1.0, 2.0]), np.zeros(2, dtype=int), 2.0, 1.0)
    array([1.75, 2.75])
    """
    return nested_least_squares(
        [blocks, parts], [max(block_variance, _LEAST), max(part_variance, _LEAST)], [block]
    ).values[1]


def shrink_rounds(
    rounds: Sequence[Round],
    leaves: Leaves,
    members: npt.NDArray[Any],
    *,
    shifts: int = 8,
    sampled: bool = False,
    uneven: bool = False,
) -> FloatArray:
    """Combine the noisy sums of all rounds and shrink them. Run by: whoever holds them.

    Parameters
    ----------
    rounds : sequence of Round
        The coarsest first; the groups of each lie inside groups of the round before.
    leaves : Leaves
        The groups of the last round.
    members : ndarray, shape (side, side)
        Number of cells that each site stands for, or its weight.
    shifts, sampled, uneven
        See :func:`mapveil.inference.shrinkage.multiscale_shrinkage`.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Non-negative; 0 where there are no members.
    """
    raster = sites_of_rounds(rounds, leaves, members)
    return multiscale_shrinkage(
        raster.noisy,
        raster.variance,
        members,
        coarser=raster.coarser,
        leaves=raster.parts,
        shifts=shifts,
        sampled=sampled,
        uneven=uneven,
    )


class SitesOfRounds(NamedTuple):
    """The replies of all rounds on the sites of a raster, of shape (side, side), each leaf divided by its members."""

    noisy: FloatArray
    variance: FloatArray
    coarser: list[tuple[int, FloatArray | float]]  # see multiscale_shrinkage
    parts: FloatArray  # each site's part of its leaf


def sites_of_rounds(rounds: Sequence[Round], leaves: Leaves, members: npt.NDArray[Any]) -> SitesOfRounds:
    """Combine the noisy sums of all rounds, and divide the leaves over their sites; see :func:`shrink_rounds`."""
    made = combine_rounds(rounds)

    def on_sites(values: FloatArray) -> FloatArray:
        # Structural zeros, leaf -1, take the last leaf's value times no members.
        return np.asarray(values.take(leaves.of_site, mode="wrap") * members)

    def noise_on_sites(density: FloatArray) -> FloatArray | float:
        return float(density[0]) if bool((density == density[0]).all()) else on_sites(density)

    noise = _noise_of_boxes(rounds, made.variances, leaves.members, members.shape[0])
    return SitesOfRounds(
        on_sites(made.values[-1] / leaves.members),
        on_sites(noise[-1][1]),
        [(side, noise_on_sites(density)) for side, density in noise[:-1]],
        on_sites(1 / leaves.members),
    )


def combine_rounds(rounds: Sequence[Round]) -> NestedEstimates:
    """The least-squares estimates of the groups of every round. Run by: whoever holds the noisy sums."""
    return nested_least_squares(
        [each.values for each in rounds],
        [max(each.variance, _LEAST) for each in rounds],
        [_parents(above, below) for above, below in pairwise(rounds)],
    )


def _parents(above: Round, below: Round) -> IntArray:
    parent = np.zeros(below.values.size, dtype=np.int64)
    parent[below.group] = above.group
    return parent


def _noise_of_boxes(
    rounds: Sequence[Round], variances: Sequence[FloatArray], members: npt.NDArray[Any], side: int
) -> list[tuple[int, FloatArray]]:
    """The noise in boxes of sites, by the least length of a box, descending: variance per member in each leaf.

    A box takes the noise of the largest groups that fit into it: their estimates are nearly independent, while those of
    parts of one group are not. An undivided group's measurements all fit together.
    """
    densities, fits = [], []
    before: FloatArray | None = None
    for at, (each, variance) in enumerate(zip(rounds, variances, strict=True)):
        spread = variance
        if before is not None:
            parent = _parents(rounds[at - 1], each)
            alone = np.bincount(parent, minlength=before.size)[parent] == 1
            spread = np.where(alone, before[parent], variance)
        before = spread
        held = np.bincount(each.group, weights=members, minlength=each.values.size)
        densities.append((spread / np.maximum(held, 1))[each.group])
        fits.append(each.side[each.group])
    found: list[tuple[int, FloatArray]] = []
    length = side
    while length:
        density = densities[-1]
        for own, group in zip(reversed(densities[:-1]), reversed(fits[:-1]), strict=True):
            density = np.where(group <= length, own, density)
        if found and np.array_equal(density, found[-1][1]):
            found.pop()
        found.append((length, density))
        length >>= 1
    return found
