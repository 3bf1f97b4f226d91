"""The exact earth mover's distance on a grid, beside OR-tools' minimum-cost flow on the same arcs."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.record import Context, Result, best_of, line
from mapveil.metrics.emd import emd
from mapveil.metrics.emd_bounds import emd_within
from mapveil.metrics.emd_network import lattice_network, minimum_cost


def run(context: Context) -> list[Result]:
    """Measure dense maps of independent cells, and the certified bounds beside the exact value."""
    results = []
    for side in (64,) if context.quick else (128, 256):
        generator = np.random.default_rng(side)
        truth, estimate = generator.random((2, side, side))
        position = np.arange(side) / side  # in widths of the region, as emd() has it
        supply = (truth / truth.sum() - estimate / estimate.sum()).reshape(-1)
        network = lattice_network(position, position)
        exact = best_of(2, partial(emd, truth, estimate))
        flow = best_of(1, partial(minimum_cost, network, supply, "flow"))
        bounds = best_of(2, partial(emd_within, truth, estimate))
        peer = "OR-tools' minimum-cost flow"
        results += [
            line(f"exact EMD, dense {side} x {side}", exact, "s", peer, flow, ">= 1 x", flow >= exact),
            line(f"EMD within 5e-5 of itself, dense {side} x {side}", bounds, "s", "our exact EMD", exact),
        ]
    return results
