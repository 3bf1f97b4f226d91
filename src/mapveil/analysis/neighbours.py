"""Release the nearest users of every cell: one function for tables and for released maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mapveil.analysis.neighbour_map import NeighbourMap
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.mechanism import Progress
from mapveil.privacy.accounting import Accounting
from mapveil.privacy.ledger import Ledger
from mapveil.trust.release import release
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

DEFAULT_CELLS: Final = "quadtree:5"


def neighbours(
    points: Points | DensityMap,
    tiling: Tiling | str | None = None,
    *,
    k: int = 25,
    epsilon: EpsilonLike | None = None,
    method: str | LocalMechanism | None = None,
    options: Mapping[str, Any] | None = None,
    region: Region | None = None,
    account: Ledger | Accounting | None = None,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> NeighbourMap:
    """Find the k nearest users of every cell, from randomized reports or from a released map.

    Parameters
    ----------
    points : Points or DensityMap
        A table, of which every user reports one randomized location; or a released map, which costs nothing further
        and takes none of the parameters below ``k``.
    tiling : Tiling or str, optional
        The cells, or their specification in ``region``; ``"quadtree:5"`` by default.
    k : int
        Users in a list, at least 1.
    epsilon, method, options, region, account, rng, progress
        As for :func:`mapveil.trust.release.release` with trust ``"local"``.

    Raises
    ------
    ParameterError
        k is below 1, or a map is given with parameters of a release.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> heat = mv.release(city, mv.Grid(city.region, rows=8, columns=8), epsilon=1)
    >>> mv.neighbours(heat, k=5).lists.cell.shape
    (64, 5)
    """
    if k < 1:
        raise ParameterError(f"k must be at least 1, got {k}")
    if isinstance(points, DensityMap):
        if any(given is not None for given in (tiling, epsilon, method, region, account)) or options:
            raise ParameterError(
                "a released map brings its own tiling, region, method and guarantee; leave them out"
            )
        return NeighbourMap.of(points, k)
    cells = DEFAULT_CELLS if tiling is None else tiling
    heat = release(
        points,
        cells,
        epsilon=epsilon,
        method=method,
        trust="local",
        options=options,
        region=region,
        account=account,
        rng=rng,
        progress=progress,
    )
    return NeighbourMap.of(heat, k)
