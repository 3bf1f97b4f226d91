"""The cells of the trips that devices report. Nothing here is private, and nothing of it is given to the server."""

from __future__ import annotations

import numpy as np

from mapveil.analysis.trips import Trips
from mapveil.engines.contributions import locator
from mapveil.geo.tiling import as_tiling
from mapveil.local.devices import check_inside
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Outside
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness


def cells_of_trips(
    trips: Trips, domain: Domain, outside: str, rng: Randomness, *, one_each: bool
) -> tuple[IntArray, IntArray]:
    """Origin and destination cells of the trips that are reported. Run by: a simulation of devices.

    Parameters
    ----------
    trips : Trips
        Everybody's.
    domain : Domain
        The sites.
    outside : Outside or str
        Treatment of a trip with an end outside: it is not reported (``"drop"``), the end counts at the nearest
        site (``"nearest"``), or everything is refused (``"refuse"``).
    rng : Randomness
        Which trip a user takes.
    one_each : bool
        Whether each user reports one trip, any of theirs with the same probability; otherwise all.

    Raises
    ------
    InputError
        An end is outside and that is refused, or no trip has both ends inside.
    """
    rule = Outside(outside)
    locate = locator(as_tiling(domain.tiling), domain.cells, rule)
    origins, destinations = (locate(lon, lat) for lon, lat in (trips.ends[:2], trips.ends[2:]))
    check_inside((origins >= 0) & (destinations >= 0), rule, domain, trips.source)
    inside = np.flatnonzero((origins >= 0) & (destinations >= 0))
    if inside.size == 0:
        raise InputError(
            f"{trips.source}: no trip has both ends in the region {domain.tiling.region}; expected a "
            "region that holds trips (west,south,east,north in degrees)"
        )
    if one_each:
        # A random order, of which the first of each user is one of their trips at random.
        order = inside[rng.generator().permutation(inside.size)]
        inside = order[np.unique(trips.users[order], return_index=True)[1]]
    return origins[inside], destinations[inside]
