"""The l1 reconstruction of EmdHeatmap: the exact bottom-up solution beside HiGHS, same instance."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.record import Context, Result, best_of, line
from mapveil.inference import tree_median
from mapveil.mechanisms import emd_heatmap
from mapveil_client.morton import interleave
from tests.inference.tree_median_lp import cost, reconstruct_lp


def run(context: Context) -> list[Result]:
    """Measure the paper's size and a large one."""
    results = []
    for width, depth in ((20, 8), (2_000, 10), (20_000, 10)):
        if context.quick and width > 20:
            continue
        generator = np.random.default_rng(width)
        leaves = np.zeros(4**depth)
        at = (generator.normal(0.5, 0.1, (2, 20 * width)).clip(0, 0.999) * (1 << depth)).astype(np.int64)
        np.add.at(leaves, interleave(at[0], at[1]), 1.0)
        first = (width.bit_length() - 1) // 2
        levels = [leaves.reshape(4**level, -1).sum(axis=1) for level in range(first, depth + 1)]
        noise = [values + generator.laplace(0, 3, values.size) for values in levels]
        chosen = emd_heatmap.select(noise, [np.ones(values.size, dtype=np.int64) for values in levels], width)
        tree, noisy = chosen.tree, chosen.noisy
        fast, slow = tree_median.reconstruct(tree, noisy), reconstruct_lp(tree, noisy)
        if not np.isclose(cost(tree, noisy, fast), cost(tree, noisy, slow)):
            raise AssertionError("the two solutions differ in cost")
        ours = best_of(3, partial(tree_median.reconstruct, tree, noisy))
        theirs = best_of(1, partial(reconstruct_lp, tree, noisy))
        results.append(
            line(f"l1 reconstruction, w = {width:,}, depth {depth}", ours, "s", "HiGHS", theirs, ">= 5 x",
                 theirs >= 5 * ours)
        )  # fmt: skip
    return results
