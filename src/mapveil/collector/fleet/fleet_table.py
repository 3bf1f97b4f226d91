"""The devices of a fleet, from a table: one for each user, with that user's rows as its places. For simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mapveil_client.places import Whereabouts

if TYPE_CHECKING:
    from mapveil.geo.points import Points


def whereabouts_of(points: Points) -> list[Whereabouts]:
    """Where each user of a table was, in the order of their ids.

    Memory follows the table: a process that plays all phones holds what they know.

    Parameters
    ----------
    points : Points
        Rows outside any region are kept: what becomes of them is each collection's to say.

    Raises
    ------
    InputError
        The table cannot be used.
    """
    import duckdb

    from mapveil.geo.tables import reading

    points.check()
    weighted = points.columns.weight is not None
    with duckdb.connect() as connection, reading(points.source):
        found = connection.execute(
            f"SELECT DENSE_RANK() OVER (ORDER BY user_id) AS device, lon, lat{', weight' if weighted else ''} "
            f"FROM ({points.scan(connection)}) AS points ORDER BY device"
        ).fetchnumpy()
    lon, lat = (np.asarray(found[axis], dtype=np.float64) for axis in ("lon", "lat"))
    weight = np.asarray(found["weight"], dtype=np.float64) if weighted else None
    starts = np.flatnonzero(np.diff(found["device"], prepend=0))
    ends = np.append(starts[1:], lon.size)
    return [
        Whereabouts(lon[first:last], lat[first:last], None if weight is None else weight[first:last])
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
