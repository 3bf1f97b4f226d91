"""Devices in chunks over the cores: each chunk's sum is made by itself, and added in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.report import Visits
from mapveil_client.randomness.random import Randomness

_MOST_WORKERS = 8  # each holds a chunk


class Chunk(NamedTuple):
    """Some devices, with a stream of random bits of their own."""

    visits: Visits
    rng: Randomness
    threads: int | None  # for a transform; None for all


class ChunkSum(NamedTuple):
    """What a chunk adds."""

    values: FloatArray
    devices: int


def sum_chunks(
    visits: Iterator[Visits],
    rng: Randomness,
    surface_of: Callable[[Chunk], FloatArray],
    tell: Callable[[int], None],
) -> ChunkSum:
    """Add up what ``surface_of`` makes of each chunk, the same whatever the number of cores.

    Parameters
    ----------
    visits : iterator of Visits
        The chunks; at least one.
    rng : Randomness
        Each chunk's own stream is derived from it.
    surface_of : callable
        Called in threads; must touch nothing but its chunk.
    tell : callable
        Told the number of devices done.
    """
    workers = min(os.cpu_count() or 1, _MOST_WORKERS)
    total: FloatArray | None = None
    devices = 0
    pending: deque[tuple[int, Future[FloatArray]]] = deque()

    def take() -> None:
        nonlocal total, devices
        count, future = pending.popleft()
        made = future.result()
        total = made.copy() if total is None else np.add(total, made, out=total)
        devices += count
        tell(devices)

    with ThreadPoolExecutor(workers) as pool:
        try:
            held = next(visits, None)
            number = 0
            while held is not None:
                following = next(visits, None)
                # One chunk alone has all cores for its transform; many share them out among themselves.
                threads = None if number == 0 and following is None else 1
                chunk = Chunk(held, rng.child(f"chunk {number}"), threads)
                pending.append((held.devices, pool.submit(surface_of, chunk)))
                number, held = number + 1, following
                if len(pending) > workers:
                    take()
            while pending:
                take()
        finally:
            for _, future in pending:
                future.cancel()
    if total is None:
        raise AssertionError("there was no chunk to add")
    return ChunkSum(total, devices)
