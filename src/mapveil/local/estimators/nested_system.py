r"""Systems of equations over nested blocks, solved directly in O(d m).

.. math:: \Big(a I + \sum_{l} b_l \sum_{B \in \mathcal{B}_l} 1_B 1_B^T + e\, 1 1^T\Big) g = c

where: :math:`\mathcal{B}_l` are partitions into intervals, each coarser than the one before. An upward pass writes the
sum of g over each block as :math:`s_B = u_B - v_B\, t_B`, with :math:`t_B` the sum of the coarser terms at each entry
of the block; a downward pass finds the t.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray
from mapveil_client.local.staircase_groups import Blocks


@dataclass(frozen=True, eq=False)
class NestedSystem:
    """The system of the module's header.

    Parameters
    ----------
    own : float
        a, above 0.
    blocks : list of Blocks
        The partitions, finest first.
    weights : list of float
        b of each, not negative.
    everywhere : float
        e, not negative.
    """

    own: float
    blocks: list[Blocks]
    weights: list[float]
    everywhere: float

    def solve(self, c: FloatArray) -> FloatArray:
        """g, shape (d,).

        Examples
        --------
        >>> pair = Blocks(np.array([0, 2]), np.array([2, 1]), np.array([0, 0, 1]))
        >>> system = NestedSystem(2.0, [pair], [1.0], 1.0)
        >>> matrix = 2 * np.eye(3) + [[2, 2, 1], [2, 2, 1], [1, 1, 2]]
        >>> bool(np.allclose(matrix @ system.solve(np.array([3.0, 1, 2])), [3, 1, 2]))
        True
        """
        u, v = c / self.own, np.full(c.shape, 1 / self.own)
        first = np.zeros(1, dtype=np.int64)
        parents: list[npt.NDArray[np.int64]] = []
        made: list[tuple[FloatArray, FloatArray]] = [(u, v)]
        starts = np.arange(c.size)
        for blocks, weight in zip(self.blocks, self.weights, strict=True):
            child = np.searchsorted(starts, blocks.first)
            parents.append(np.repeat(np.arange(child.size), np.diff(np.append(child, starts.size))))
            u, v = _merge(u, v, child, weight)
            made.append((u, v))
            starts = blocks.first
        parents.append(np.zeros(starts.size, dtype=np.int64))
        u, _ = _merge(u, v, first, self.everywhere)
        total, above = u, np.zeros(1)  # s and t of a level's blocks
        for level, weight in zip(
            reversed(range(len(made))), [self.everywhere, *reversed(self.weights)], strict=True
        ):
            added = (above + weight * total)[parents[level]]
            u, v = made[level]
            total, above = u - v * added, added
        return total

    def square_sums(self, weights: FloatArray) -> FloatArray:
        r""":math:`\sum_y \pi_y (M^{-1})_{x y}^2` for every row of the inverse, shape (d,), in O(d l^2).

        Each partition changes the inverse by rank one in each block (Sherman and Morrison), so that within all blocks
        :math:`M^{-1} = I / a - \sum_l \sum_B \kappa_B\, h_l h_l^T`.

        Parameters
        ----------
        weights : ndarray of float64, shape (d,)
            :math:`\pi`.
        """
        size = weights.size
        everything = Blocks(np.zeros(1, dtype=np.int64), np.array([size]), np.zeros(size, dtype=np.int64))
        h = np.full(size, 1 / self.own)
        made = weights / self.own**2
        before: list[tuple[FloatArray, FloatArray]] = []
        for blocks, weight in zip([*self.blocks, everything], [*self.weights, self.everywhere], strict=True):
            shrunk = 1 + weight * blocks.sums(h)
            kappa = blocks.spread(weight / shrunk)
            made -= 2 / self.own * weights * kappa * h * h
            made += np.square(kappa * h) * blocks.spread(blocks.sums(weights * h * h))
            before.append((kappa, h))
            h = h / blocks.spread(shrunk)
        # Two partitions meet in the finer one's block.
        for finer, blocks in enumerate(self.blocks):
            for coarser in range(finer + 1, len(before)):
                (k1, h1), (k2, h2) = before[finer], before[coarser]
                made += 2 * k1 * h1 * k2 * h2 * blocks.spread(blocks.sums(weights * h1 * h2))
        return made


def _merge(
    u: FloatArray, v: FloatArray, child: npt.NDArray[np.int64], weight: float
) -> tuple[FloatArray, FloatArray]:
    """u and v of blocks from those of their parts."""
    shrunk = 1 + weight * np.add.reduceat(v, child)
    return np.add.reduceat(u, child) / shrunk, np.add.reduceat(v, child) / shrunk
