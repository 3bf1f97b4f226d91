"""The devices of a fleet, from a table: one for each user, with that user's rows as locations. For simulations."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mapveil_client.device_locations import Whereabouts

if TYPE_CHECKING:
    from mapveil.geo.points import Points


def whereabouts_of(points: Points) -> list[Whereabouts]:
    """The locations of each user of a table, in the order of their ids.

    Memory follows the table: a process that simulates all clients holds all their locations.

    Parameters
    ----------
    points : Points
        Rows outside any region are kept: each collection's terms say how a device treats them.

    Raises
    ------
    InputError
        The table cannot be used.
    """
    from mapveil.engines.contributions import user_rows

    weighted = points.columns.weight is not None
    made = []
    for rows in user_rows(points):
        starts = np.flatnonzero(np.diff(rows.user, prepend=-1, append=-1)).tolist()
        for first, last in pairwise(starts):
            lon, lat, weights = (column[first:last] for column in rows[1:])
            made.append(Whereabouts(lon, lat, weights if weighted else None))
    return made
