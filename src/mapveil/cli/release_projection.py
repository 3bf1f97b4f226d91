"""A release from projections: every device in this process; no epsilon, so nothing for the ledger."""

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


def release_by_projection(
    console: Console,
    request: ReleaseRequest,
    read: Points | Counts,
    account: Callable[[], Accounting],
    rng: Randomness,
    progress: Progress,
) -> tuple[DensityMap, None]:
    """Release; what was measured of the devices' privacy is said as a warning where it is small."""
    from mapveil.geo.points import Points
    from mapveil.random_features.measured import hiding_warnings

    cells = None
    if isinstance(read, Points):
        if request.region is None:
            raise ParameterError(
                "--trust projection needs a --region: devices answer for a region they can check, and nobody sees "
                "the places it could be found from"
            )
        read.check()
        cells = request.cells(request.region, read)
    made = request.mechanism().release(read, cells, rng=rng, progress=progress)
    console.warn("not differential privacy: see what was measured of it below")
    for text in hiding_warnings(made.guarantee.measured):
        console.warn(text.removeprefix("WARNING: "))
    return made, None
