"""One release of every method of the curator from ready sums, at 256 x 256 and 1024 x 1024."""

from __future__ import annotations

from functools import partial

import numpy as np

import mapveil as mv
from benchmarks.record import Context, Result, best_of, line
from mapveil.engines import UNIT, UserSums
from mapveil.mechanisms.methods import METHODS


def run(context: Context) -> list[Result]:
    """Measure seconds per release beside the plain Laplace histogram's."""
    results = []
    region = mv.Region.from_bbox(-74.3, 40.4, -73.7, 41.0)
    for depth in (8,) if context.quick else (8, 10):
        tiling = mv.Quadtree(region, depth=depth)
        generator = np.random.default_rng(depth)
        cells = (generator.pareto(1.5, 100_000) * 40).astype(np.int64) % tiling.size
        sums = UserSums(np.bincount(cells, minlength=tiling.size) * UNIT, tiling)
        seconds = {
            method.name: best_of(3, partial(method.make(1).release, sums, account=None))
            for method in METHODS
            if method.trust == "central"
        }
        side = 1 << depth
        results += [
            line(
                f"{name}, one release of {side} x {side} from sums", taken, "s", "laplace", seconds["laplace"]
            )
            for name, taken in seconds.items()
            if name != "laplace"
        ]
    return results
