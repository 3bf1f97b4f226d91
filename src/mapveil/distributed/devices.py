"""The phones of a collection in one process: what each of them knows of its own places.

A real device holds one row of this; a simulation or a test holds many. Nothing here is private, and nothing of
it is ever given to the server half of a mechanism.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tables import reading
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError
from mapveil_client.morton import interleave
from mapveil_client.sum_report import Devices

_WEIGHT_UNITS = 1_000_000

_PLACES_SQL = """
WITH located AS (
    SELECT user_id, {cell} AS cell, {label} AS label, {weight} AS weight FROM ({points}) AS points
),
numbered AS (
    SELECT user_id, row_number() OVER (ORDER BY user_id) - 1 AS device FROM (SELECT DISTINCT user_id FROM located)
)
SELECT device, cell, label, CAST(SUM(weight) AS BIGINT) AS weight
FROM located JOIN numbered USING (user_id)
GROUP BY device, cell, label
ORDER BY device, cell, label
"""


def devices_of(
    source: Points | Counts | Devices,
    tiling: Tiling,
    progress: Callable[[str, float], None] | None = None,
    *,
    may_be_outside: bool = False,
) -> Devices:
    """Put every user's rows on a device of their own. Run by: a simulation.

    Memory follows the users' places: a process that plays all phones must hold what they know.

    Parameters
    ----------
    source : Points, Counts or Devices
        A table, one device per user; or counts, one device at one place for each unit; or devices, as they are.
    tiling : Tiling
        The cells, seen through their lattice.
    progress : callable, optional
        Told the step's name and the done part.
    may_be_outside : bool
        Whether devices none of which is inside are an answer.

    Raises
    ------
    InputError
        The table cannot be used, or counts are of another tiling.
    """
    if isinstance(source, Devices):
        return source
    tell = progress or (lambda step, done: None)
    tell("place the devices", 0.0)
    lattice = tiling.lattice()
    site = interleave(lattice.row, lattice.col)
    compact: npt.NDArray[np.integer] = site.astype(np.int32 if lattice.depth < 16 else np.int64)
    if isinstance(source, Counts):
        if source.tiling is not tiling and source.tiling.to_dict() != tiling.to_dict():
            raise InputError(f"counts on {source.tiling.spec} cannot be released on {tiling.spec}")
        made = Devices(np.repeat(compact, source.values))
    else:
        made = _from_points(source, tiling, compact, may_be_outside)
    tell("place the devices", 1.0)
    return made


def _from_points(
    points: Points, tiling: Tiling, site: npt.NDArray[np.integer], may_be_outside: bool
) -> Devices:
    import duckdb

    from mapveil.engines.user_sums import located_by

    points.check()
    with duckdb.connect() as connection, reading(points.source):
        rows = points.scan(connection)
        located = located_by(connection, tiling)
        weighted = points.columns.weight is not None
        labelled = points.columns.label is not None
        text = _PLACES_SQL.format(
            cell=located.expression,
            label="label" if labelled else "0",
            weight=f"CAST(ROUND(weight * {_WEIGHT_UNITS}) AS HUGEINT)" if weighted else "CAST(1 AS BIGINT)",
            points=rows,
        )
        found = connection.execute(text).fetchnumpy()
    weight = np.asarray(np.ma.filled(found["weight"], 0), dtype=np.int64)
    cells = located.cells(np.ma.filled(found["cell"], -1).astype(np.int64))
    kept = weight > 0
    device = np.asarray(found["device"], dtype=np.int64)
    count = int(device[-1]) + 1
    starts = np.searchsorted(device[kept], np.arange(count + 1))
    sites = np.where(cells >= 0, site[cells], site.dtype.type(-1))[kept]
    if not may_be_outside and not (sites >= 0).any():
        raise InputError(
            f"{points.source}: no row lies inside the region {tiling.region}; "
            "a region that overlaps the points is accepted (west,south,east,north in degrees)"
        )
    labels = _codes(np.asarray(np.ma.filled(found["label"]))[kept]) if labelled else None
    return Devices(sites, starts.astype(np.int64), weight[kept], labels)


def _codes(labels: npt.NDArray[np.generic]) -> IntArray:
    """Labels as whole numbers: as they are, or other values numbered from 0 in their own order; -1 for none.

    A number that stands for a label must not depend on which labels there happen to be.
    """
    if labels.dtype.kind in "biuf":
        numbers = labels.astype(np.float64)
        whole = np.isfinite(numbers) & (numbers == np.rint(numbers)) & (np.abs(numbers) < 1 << 31)
        return np.where(whole, numbers, -1).astype(np.int64)
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.int64)
