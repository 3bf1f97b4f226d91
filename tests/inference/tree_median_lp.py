"""The l1 reconstruction over a tree as a linear program, by HiGHS: the oracle and the peer of ``tree_median``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mapveil.inference.tree_median import KeptTree, Masses
from mapveil_client.arrays import FloatArray


def cost(tree: KeptTree, noisy: Sequence[FloatArray], masses: Masses) -> float:
    """The objective of the module's header at a solution, in units of ``2**-L``."""
    total = 0.0
    for height, (y, mass) in enumerate(zip(reversed(noisy), reversed(masses.kept), strict=True)):
        total += 2.0**height * float(np.abs(y - mass).sum())
    for height, left_out in enumerate(reversed(masses.left_out), start=1):
        total += (2.0**height - 1) * float(left_out.sum())
    return total


def reconstruct_lp(tree: KeptTree, noisy: Sequence[FloatArray]) -> Masses:
    """Solve the same problem as a linear program by HiGHS: the oracle of :func:`reconstruct`.

    Same parameters and result; where the optimum is not unique, another one may come out.

    Raises
    ------
    RuntimeError
        HiGHS did not reach the optimum.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    levels = len(noisy)
    sizes = np.array([y.size for y in noisy])
    nodes = int(sizes.sum())
    first = np.concatenate([[0], np.cumsum(sizes)])
    weights = np.repeat(2.0 ** np.arange(levels - 1, -1, -1), sizes)
    # Variables: masses, left-out masses of all but the last level, shortfalls, excesses.
    inner = int(first[levels - 1])
    every, above = np.arange(nodes), np.arange(inner)
    children = np.arange(int(sizes[0]), nodes)
    parents = np.concatenate(
        [found + first[j] for j, found in enumerate(tree.parents)] or [np.zeros(0, dtype=np.int64)]
    )
    row = np.concatenate([every, every, every, nodes + above, nodes + above, nodes + parents])
    col = np.concatenate(
        [every, nodes + inner + every, 2 * nodes + inner + every, above, nodes + above, children]
    )
    one = np.ones(nodes)
    value = np.concatenate([one, one, -one, np.ones(inner), -np.ones(inner), -np.ones(parents.size)])
    equal: Any = coo_array((value, (row, col)), shape=(nodes + inner, 3 * nodes + inner)).tocsc()
    is_open = np.concatenate([*tree.open, np.zeros(0, dtype=bool)])
    upper = np.full(3 * nodes + inner, np.inf)
    upper[nodes : nodes + inner][~is_open] = 0.0
    solve: Any = linprog  # its stubs know no sparse matrices
    found = solve(
        np.concatenate([np.zeros(nodes), weights[:inner] - 1, weights, weights]),
        A_eq=equal,
        b_eq=np.concatenate([*noisy, np.zeros(inner)]),
        bounds=np.stack([np.zeros_like(upper), upper], axis=1),
        method="highs",
    )
    if found.status != 0:
        raise RuntimeError(f"HiGHS stopped before the optimum: {found.message}")
    masses = np.maximum(found.x[:nodes], 0.0)
    left_out = np.maximum(found.x[nodes : nodes + inner], 0.0)
    return Masses(
        tuple(np.split(masses, first[1:-1])), tuple(np.split(left_out, first[1 : levels - 1]))[: levels - 1]
    )
