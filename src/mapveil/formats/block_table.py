"""The blocks of a map that its noisy sums tell from zero, as a table: one polygon each, with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mapveil.formats.table import Chunk, cell_outlines
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import IntArray

if TYPE_CHECKING:
    import numpy.typing as npt

    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import DrawnBlocks


def told_from_zero(blocks: DrawnBlocks, cells: IntArray) -> npt.NDArray[np.bool_]:
    """Whether each of some cells lies in a block that is told from zero, shape (cells,)."""
    return np.asarray(blocks.of_cell[cells] >= 0)


def block_outlines(tiling: Tiling, of_cell: IntArray) -> tuple[IntArray, npt.NDArray[np.object_]]:
    """The blocks that have cells, and the outline of each in WGS84 degrees; ``of_cell`` is -1 in none."""
    import shapely

    cells = np.flatnonzero(of_cell >= 0)
    order = cells[np.argsort(of_cell[cells], kind="stable")]
    held, starts = np.unique(of_cell[order], return_index=True)
    parts = np.split(cell_outlines(tiling, order), starts[1:])
    geometry = np.empty(held.size, dtype=np.object_)
    geometry[:] = [each[0] if each.size == 1 else shapely.coverage_union_all(each) for each in parts]
    return held, geometry


def block_table(released: ReleasedMap, blocks: DrawnBlocks) -> Chunk:
    """Outlines, estimates and intervals of blocks; ``significance`` is the noisy sum over the deviation of its noise.

    Parameters
    ----------
    released : ReleasedMap
        A map of cells.
    blocks : DrawnBlocks
        Its blocks, as its scene has them.
    """
    import pyarrow as pa

    held, geometry = block_outlines(released.tiling, blocks.of_cell)
    area, users = blocks.area[held], blocks.users[held]
    numbers = {
        "users": users,
        "lower": blocks.lower[held],
        "upper": blocks.upper[held],
        "users_per_km2": np.divide(users, area, out=np.full(held.size, np.nan), where=area > 0),
        "significance": np.divide(
            blocks.noisy[held], blocks.deviation[held], out=np.full(held.size, np.inf),
            where=blocks.deviation[held] > 0,
        ),
        "area_km2": area,
    }  # fmt: skip
    columns = {name: pa.array(values, mask=~np.isfinite(values)) for name, values in numbers.items()}
    count = pa.array(np.bincount(blocks.of_cell[blocks.of_cell >= 0], minlength=blocks.users.size)[held])
    return Chunk({"block": pa.array(held), **columns, "cells": count}, geometry)
