"""A release from local reports: every phone randomizes in this process, the server estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mapveil.cli.console import Console
from mapveil.cli.release_request import ReleaseRequest
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.cli.accounting import Accounting
    from mapveil.geo.counts import Counts
    from mapveil.geo.points import Points
    from mapveil.maps.density_map import DensityMap
    from mapveil.mechanisms.mechanism import Progress


def release_by_local_reports(
    console: Console,
    request: ReleaseRequest,
    read: Points | Counts,
    account: Callable[[], Accounting],
    rng: Randomness,
    progress: Progress,
) -> tuple[DensityMap, Accounting]:
    """Release; the epsilon of a report is charged before any phone reports."""
    from mapveil.geo.points import Points
    from mapveil.mechanisms.mechanism import check_tiling

    cells = None
    if isinstance(read, Points):
        if request.region is None:
            raise ParameterError(
                "--trust local needs a --region: phones report about its cells, and nobody sees the places it could "
                "be found from"
            )
        read.check()
        cells = request.cells(request.region, read)
        check_tiling(cells)
    accounting = account()
    accounting.spend(request.budget)
    return request.mechanism().release(read, cells, rng=rng, progress=progress), accounting
