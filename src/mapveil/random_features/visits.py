"""The clients of a random-features collection in one process, a chunk at a time: memory is that of a chunk."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from mapveil.engines.contributions import CHUNK, check_same_tiling, user_rows
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.random_features.feature_policy import PlaceChoice
from mapveil_client.random_features.report import Visits
from mapveil_client.randomness.random import Randomness

_MOST_WORKERS = 8  # each holds a chunk


def visits_of(
    source: Points | Counts, tiling: Tiling, places: PlaceChoice = "mean", *, chunk: int = CHUNK
) -> Iterator[Visits]:
    """Each user's rows inside the region as the visits of one device. Not private. Run by: a simulation.

    Rows outside are dropped; a client without other rows abstains, so an answer reveals presence in the region.

    Parameters
    ----------
    source : Points or Counts
        A table, one device per user; or counts, one device at the centre of a cell for each unit.
    tiling : Tiling
        The query is about its region.
    places : str
        ``"mean"``: all visits, in proportion to their weights; ``"most-visited"``: the cell with the largest weight,
        at the mean of its visits.
    chunk : int
        Rows (or devices) held at one time; the rows of one user are never split.

    Raises
    ------
    InputError
        The table cannot be used, or counts are of another tiling.
    """
    if isinstance(source, Counts):
        yield from _from_counts(source, tiling, chunk)
        return
    for rows in user_rows(source, tiling, chunk=chunk):
        inside = tiling.region.contains(rows.lon, rows.lat)
        if not inside.any():
            continue
        device, lon, lat, weight = rows.take(inside)
        xy = np.stack(tiling.region.metric_projection.project(lon, lat))
        if places == "most-visited":
            yield _most_visited(device, tiling.locate(lon, lat), xy, weight)
        else:
            yield Visits(xy, np.flatnonzero(np.concatenate([[True], np.diff(device) != 0, [True]])), weight)


def all_places(source: Points | Counts, tiling: Tiling) -> FloatArray:
    """The most visited location of every device in the region, shape (2, devices), metres. Not private."""
    found = [visits.places for visits in visits_of(source, tiling, "most-visited")]
    return np.concatenate(found, axis=1) if found else np.zeros((2, 0))


def _from_counts(counts: Counts, tiling: Tiling, chunk: int) -> Iterator[Visits]:
    check_same_tiling(counts.tiling, tiling)
    x, y = tiling.region.metric_projection.project(*tiling.centres())
    stop = np.cumsum(counts.values)
    for first in range(0, int(stop[-1]), chunk):
        last = min(first + chunk, int(stop[-1]))
        low, high = np.searchsorted(stop, [first, last - 1], side="right")
        cells = np.arange(low, high + 1)
        ends = np.clip(stop[low : high + 1], first, last)
        held = np.diff(ends, prepend=first)
        yield Visits(np.stack([np.repeat(x[cells], held), np.repeat(y[cells], held)]))


def _most_visited(device: IntArray, cell: IntArray, xy: FloatArray, weight: FloatArray) -> Visits:
    order = np.lexsort((cell, device))
    device, cell, xy, weight = device[order], cell[order], xy[:, order], weight[order]
    new = np.flatnonzero(np.concatenate([[True], (np.diff(device) != 0) | (np.diff(cell) != 0)]))
    total = np.add.reduceat(weight, new)
    middle = np.add.reduceat(xy * weight, new, axis=1) / total
    best = np.lexsort((-total, device[new]))
    first = np.concatenate([[True], np.diff(device[new][best]) != 0])
    return Visits(middle[:, best[first]])


class Chunk(NamedTuple):
    """Some devices, with a stream of random bits of their own."""

    visits: Visits
    rng: Randomness
    threads: int | None  # for a transform; None for all


class ChunkSum(NamedTuple):
    """The sum over the devices of some chunks."""

    values: FloatArray
    devices: int


def sum_chunks(
    visits: Iterator[Visits],
    rng: Randomness,
    surface_of: Callable[[Chunk], FloatArray],
    tell: Callable[[int], None],
) -> ChunkSum:
    """Add up the surfaces of all chunks; the sum does not depend on the number of cores.

    Parameters
    ----------
    visits : iterator of Visits
        The chunks; at least one.
    rng : Randomness
        Each chunk's own stream is derived from it.
    surface_of : callable
        Called in threads; must touch nothing but its chunk.
    tell : callable
        Called with the number of devices done.
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
                # The transform of a single chunk has all cores; those of many chunks have one each.
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
