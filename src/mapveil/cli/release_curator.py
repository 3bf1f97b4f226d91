"""A release by the trusted curator: exact sums, then the ledger, then noise."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from mapveil.cli.accounting import Accounting
from mapveil.cli.console import Console
from mapveil.cli.release_request import REGION_SHARE, ReleaseRequest
from mapveil_client.epsilon import split_epsilon
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mapveil.central.mechanism import CentralMechanism
    from mapveil.engines import UserSums
    from mapveil.geo.counts import Counts
    from mapveil.geo.points import Points
    from mapveil.maps.density_map import DensityMap
    from mapveil.mechanisms.mechanism import Progress


def release_by_curator(
    console: Console,
    request: ReleaseRequest,
    read: Points | Counts,
    account: Callable[[], Accounting],
    rng: Randomness,
    progress: Progress,
) -> tuple[DensityMap, Accounting]:
    """Release; what can fail on account of the table fails before anything is spent."""
    from mapveil.geo.points import Points

    prepared = _prepare(request, read, progress)
    accounting = account()
    accounting.spend(request.budget)
    if isinstance(prepared, Points):
        return _release_with_region(console, request, prepared, rng, progress), accounting
    return request.mechanism().release(prepared, rng=rng, progress=progress), accounting


def _prepare(
    request: ReleaseRequest, read: Points | Counts, progress: Progress
) -> Points | Counts | UserSums:
    """The exact sums where the cells are known; otherwise the checked table."""
    from mapveil.engines import user_sums
    from mapveil.geo.points import Points
    from mapveil.mechanisms.mechanism import check_tiling

    if not isinstance(read, Points):
        check_tiling(read.tiling)
        return read
    if request.region is None:
        progress("check the table", 0.0)
        read.check()
        progress("check the table", 1.0)
        return read
    cells = request.cells(request.region, read)
    check_tiling(cells)
    return user_sums(read, cells, progress=progress)


def _release_with_region(
    console: Console, request: ReleaseRequest, points: Points, rng: Randomness, progress: Progress
) -> DensityMap:
    """Find the region with a share of the budget, and release with the rest."""
    from mapveil.central.private_region import choose_region

    part, rest = split_epsilon(request.budget, [float(REGION_SHARE), float(1 - REGION_SHARE)])
    console.note(f"no --region: {float(part):g} of epsilon is spent on finding one")
    place, share = choose_region(points, part, rng, progress)
    mechanism = cast("CentralMechanism", request.mechanism(rest))
    made = mechanism.release(points, request.cells(place, points), rng=rng, progress=progress)
    epsilon = share.epsilon + mechanism.budget
    if epsilon > request.budget:
        raise AssertionError("the parts exceed the budget")
    guarantee = dataclasses.replace(made.guarantee, epsilon=epsilon, shares=(share, *made.guarantee.shares))
    return dataclasses.replace(
        made, guarantee=guarantee, notes=(*made.notes, "the region was chosen privately")
    )
