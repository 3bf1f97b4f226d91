"""A synthetic city's roads: streets, avenues, a ring, a river with few bridges; for tests and simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil.navigation.road_graph import RoadGraph
from mapveil.synthetic import SEA_BOX
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from mapveil.geo.region import Region


_STREET_KMH: Final = 30.0
_AVENUE_KMH: Final = 50.0
_RING_KMH: Final = 80.0
_AVENUE_EVERY: Final = 5
_BRIDGE_EVERY: Final = 2  # avenues
_MISSING: Final = 0.1
_JITTER: Final = 0.18


def synthetic_roads(region: Region | None = None, *, spacing_m: float = 250.0, seed: int = 1) -> RoadGraph:
    """Roads of a city that does not exist, on a bent grid, by default in :data:`mapveil.synthetic.SEA_BOX`.

    Every fifth row and column is an avenue (50 km/h), the outermost are a ring (80 km/h), the others streets
    (30 km/h, ``spacing_m`` metres apart), a tenth of which are missing. A river crosses the middle from west to east:
    every second avenue and the ring have a bridge.

    Examples
    --------
    >>> synthetic_roads(spacing_m=1000)
    RoadGraph(synthetic roads: 182 junctions, 626 roads)
    """
    if region is None:
        from mapveil.geo.region import Region

        region = Region.from_bbox(*SEA_BOX)
    columns, rows = (
        round(side / spacing_m) if spacing_m > 0 else 0 for side in (region.width_m, region.height_m)
    )
    if not (columns >= 3 and rows >= 3 and rows * columns <= 1_000_000):
        raise ParameterError(
            f"spacing_m must give 3 x 3 to a million junctions, got {rows} x {columns} from {spacing_m!r}"
        )
    rng = np.random.default_rng(seed)
    x0, y0, x1, y1 = region.bounds_m
    step_x, step_y = (x1 - x0) / columns, (y1 - y0) / rows
    row, col = (part.ravel() for part in np.indices((rows, columns)))
    bend = rng.uniform(-_JITTER, _JITTER, (2, row.size))
    x = x0 + (col + 0.5 + bend[0]) * step_x
    y = y1 - (row + 0.5 + bend[1]) * step_y
    lon, lat = region.unproject(x, y)
    east, south = np.flatnonzero(col < columns - 1), np.flatnonzero(row < rows - 1)
    tail = np.concatenate([east, south])
    head = np.concatenate([east + 1, south + columns])
    horizontal = np.arange(tail.size) < east.size
    lane = np.where(horizontal, row[tail], col[tail])
    last = np.where(horizontal, rows - 1, columns - 1)
    ring = (lane == 0) | (lane == last)
    avenue = lane % _AVENUE_EVERY == 0
    crosses = ~horizontal & (row[tail] == rows // 2 - 1)
    bridge = ring | (lane % (_AVENUE_EVERY * _BRIDGE_EVERY) == 0)
    there = ring | avenue | (rng.random(tail.size) >= _MISSING)
    kept = there & (~crosses | bridge)
    tail, head = tail[kept], head[kept]
    speed = np.where(ring[kept], _RING_KMH, np.where(avenue[kept], _AVENUE_KMH, _STREET_KMH))
    length = np.hypot(x[tail] - x[head], y[tail] - y[head])
    seconds = length / speed * 3.6
    both = np.concatenate([tail, head]), np.concatenate([head, tail])
    return RoadGraph(
        lon, lat, *both, np.tile(length, 2), np.tile(seconds, 2), source="synthetic roads"
    ).largest_component()
