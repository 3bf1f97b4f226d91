"""A release over secure sums: every device in this process, and a server that learns noisy sums only.

The ledger is charged round by round, before the round's sums can be known. A round that is aborted before that
costs nothing; sums that the server knows stay charged, whatever becomes of the map.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, cast

from mapveil.cli.accounting import Accounting
from mapveil.cli.console import Console
from mapveil.cli.release_request import REGION_SHARE, ReleaseRequest
from mapveil_client.epsilon import split_epsilon
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mapveil.distributed.mechanism import DistributedMechanism
    from mapveil.geo.counts import Counts
    from mapveil.geo.points import Points
    from mapveil.maps.density_map import DensityMap
    from mapveil.mechanisms.mechanism import Progress
    from mapveil.privacy.claim import Share
    from mapveil.secure_sum.drivers import SecureSum


def release_by_devices(
    console: Console,
    request: ReleaseRequest,
    read: Points | Counts,
    account: Callable[[], Accounting],
    rng: Randomness,
    progress: Progress,
) -> tuple[DensityMap, Accounting]:
    """Release; nothing is spent for what the server never learnt."""
    from mapveil.distributed.private_region import find_region
    from mapveil.geo.points import Points
    from mapveil.mechanisms.mechanism import check_tiling

    if isinstance(read, Points):
        read.check()
    accounting = account()
    accounting.check(request.budget)

    def charge(share: Share) -> None:
        accounting.spend(share.epsilon, share.purpose)

    driver, dropout = _driver(request.secure_sum), request.dropout or 0.0
    if not isinstance(read, Points) or request.region is not None:
        cells = None
        if isinstance(read, Points) and request.region is not None:
            cells = request.cells(request.region, read)
            check_tiling(cells)
        mechanism = cast("DistributedMechanism", request.mechanism())
        made = mechanism.release(
            read, cells, rng=rng, progress=progress, secure_sum=driver, dropout=dropout, before_reveal=charge
        )
        return made, accounting
    part, rest = split_epsilon(request.budget, [float(REGION_SHARE), float(1 - REGION_SHARE)])
    console.note(f"no --region: {float(part):g} of epsilon is spent on finding one")
    searcher = cast("DistributedMechanism", request.mechanism(part))
    found = find_region(
        read,
        searcher,
        rng=rng,
        progress=progress,
        secure_sum=driver,
        dropout=dropout,
        before_reveal=charge,
    )
    mechanism = cast("DistributedMechanism", request.mechanism(rest))
    made = mechanism.release(
        read,
        request.cells(found.region, read),
        rng=rng,
        progress=progress,
        secure_sum=driver,
        dropout=dropout,
        before_reveal=charge,
    )
    guarantee = dataclasses.replace(
        made.guarantee, epsilon=part + rest, shares=(*found.shares, *made.guarantee.shares)
    )
    notes = (*made.notes, "the region was found privately, by asking the devices")
    return (
        dataclasses.replace(made, guarantee=guarantee, notes=notes, rounds=(*found.rounds, *made.rounds)),
        accounting,
    )


def _driver(name: str | None) -> SecureSum:
    from mapveil.secure_sum.drivers import IdealSum, ProtocolSum

    if name in ("protocol", "active"):
        return ProtocolSum(workers=os.cpu_count() or 1, active=name == "active")
    return IdealSum()
