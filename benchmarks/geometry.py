"""Morton codes per second beside reading and writing the same memory."""

from __future__ import annotations

import numpy as np

from benchmarks.record import Context, Result, best_of, line
from mapveil_client.morton import deinterleave, interleave

COUNT = 10_000_000


def run(context: Context) -> list[Result]:
    """Measure both directions at 23 bits an axis."""
    generator = np.random.default_rng(0)
    row, col = generator.integers(0, 1 << 23, (2, COUNT))
    codes = interleave(row, col)
    limit = COUNT / best_of(3, lambda: row + col) / 1e6
    there = COUNT / best_of(3, lambda: interleave(row, col)) / 1e6
    back = COUNT / best_of(3, lambda: deinterleave(codes)) / 1e6
    peer = "one addition of two such arrays"
    return [
        line("Morton codes", there, "M/s", peer, limit, ">= 50 M/s", there >= 50),
        line("Morton codes, back", back, "M/s", peer, limit, ">= 50 M/s", back >= 50),
    ]
