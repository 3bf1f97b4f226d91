"""Trees that are known before anybody is asked: quarters of the map, or what an earlier or public map suggests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import FloatArray
from mapveil_client.morton import PrefixTree, interleave


def start_tree(depth: int, deepest: int, nodes: Sequence[tuple[int, int]] | None) -> PrefixTree:
    """The tree to begin with on a raster of ``depth``: the four quadrants, or the ``nodes`` given; and the root.

    The root catches whoever stands at none of the nodes. Nodes deeper than ``deepest`` give way to their ancestors
    there.
    """
    if nodes is None:
        tree = PrefixTree.uniform(depth, min(1, deepest))
        level, code = tree.level, tree.code
    else:
        pairs = np.asarray(nodes, dtype=np.int64)
        level, code = (
            np.minimum(pairs[:, 0], deepest),
            pairs[:, 1] >> 2 * np.maximum(pairs[:, 0] - deepest, 0),
        )
    return PrefixTree.of_nodes(depth, np.append(level, 0), np.append(code, 0))


def expected_tree(tiling: Tiling, users: FloatArray, most: float, deepest: int | None = None) -> PrefixTree:
    """Divide every node that expects more than ``most`` people, down to ``deepest``: the leaves.

    Parameters
    ----------
    tiling : Tiling
        The cells.
    users : ndarray of float64, shape (tiling.size,)
        People expected in each, none negative.
    most : float
        Users.
    deepest : int, optional
        A level; that of the tiling's lattice by default.
    """
    lattice = tiling.lattice()
    depth = lattice.depth if deepest is None else min(deepest, lattice.depth)
    site = interleave(lattice.row, lattice.col)
    running: npt.NDArray[Any] = np.bincount(site >> 2 * (lattice.depth - depth), users, 1 << 2 * depth)
    sums = [running]
    for _ in range(depth):
        sums.append(sums[-1].reshape(-1, 4).sum(axis=1))
    levels, codes = [], []
    reached = np.zeros(1, dtype=np.int64)
    for level, expected in enumerate(reversed(sums)):
        divided = (expected[reached] > most) if level < depth else np.zeros(reached.size, dtype=np.bool_)
        codes.append(reached[~divided])
        levels.append(np.full(codes[-1].size, level, dtype=np.int64))
        reached = ((reached[divided] << 2)[:, None] + np.arange(4)).reshape(-1)
    return PrefixTree.of_nodes(lattice.depth, np.concatenate(levels), np.concatenate(codes))
