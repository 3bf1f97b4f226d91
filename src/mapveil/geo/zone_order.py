"""A spatial order of the cells of a tiling: neighbours on a line that is halved, so that runs of it are districts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import BoolArray, FloatArray, IntArray


class ZoneOrder(NamedTuple):
    """Cells on a line of ``2**depth`` places; public."""

    depth: int
    place: IntArray  # of each cell, -1 where nobody can be, shape (cells,)
    plane: FloatArray  # centres of the cells in metres, shape (2, cells)

    @property
    def cell(self) -> IntArray:
        """The cell at each place, -1 for none, shape (2**depth,)."""
        found = np.full(1 << self.depth, -1, dtype=np.int64)
        held = np.flatnonzero(self.place >= 0)
        found[self.place[held]] = held
        return found

    @property
    def held(self) -> BoolArray:
        """The places that have a cell, shape (2**depth,)."""
        return np.asarray(self.cell >= 0)


def zone_order(tiling: Tiling) -> ZoneOrder:
    """Order cells by halving them at the median of their centres, east-west and north-south in turn.

    Cells without anybody inside the region's polygon have no place.

    Examples
    --------
    >>> import mapveil as mv
    >>> zone_order(mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=1)).place.tolist()
    [1, 3, 0, 2]
    """
    lattice = tiling.lattice()
    inside = np.ones(tiling.size, dtype=np.bool_) if lattice.inside is None else lattice.inside
    cells = np.flatnonzero(inside)
    centres = tiling.centres()
    plane = np.stack(tiling.region.metric_projection.project(centres.lon, centres.lat))
    depth = max(cells.size - 1, 0).bit_length()
    run = np.zeros(cells.size, dtype=np.int64)
    for level in range(depth):
        order = np.lexsort((plane[level % 2, cells], run))
        start = np.searchsorted(run[order], run[order])
        size = np.bincount(run, minlength=1)[run[order]]
        later = np.arange(cells.size) - start >= (size + 1) // 2
        run[order] = 2 * run[order] + later
    place = np.full(tiling.size, -1, dtype=np.int64)
    place[cells] = run
    return ZoneOrder(depth, place, plane)
