"""The delay on roads by the users near them: two congestion models, and delays from a traffic map."""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from mapveil.engines.contributions import locator
from mapveil.geo.tiling import Tiling
from mapveil.navigation.road_graph import RoadGraph
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import Outside
from mapveil_client.errors import Checked, InputError, check
from mapveil_client.local.domain import Domain

CONGESTIONS: Final = ("volume", "step")
"""Names of the models: :class:`VolumeDelay` and :class:`StepDelay`."""


class Congestion(Protocol):
    """A congestion model: the delay of a road by the users in the cell where it ends."""

    def delay(self, users: FloatArray, seconds: FloatArray) -> FloatArray:
        """Delay in seconds of roads that take ``seconds`` when empty, with ``users`` in their cell."""
        ...


@dataclass(frozen=True)
class StepDelay(Checked):
    """A fixed delay of the roads that end in a cell with more users than a threshold.

    Source: Wang et al. (2022), appendix C.1: 50 users, 3 seconds.

    Parameters
    ----------
    threshold : float
        Users of a cell in one time window, above 0.
    seconds : float
        Delay of a road, seconds, above 0.
    """

    threshold: float = 50.0
    seconds: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("threshold", "seconds")

    def delay(self, users: FloatArray, seconds: FloatArray) -> FloatArray:
        """See :class:`Congestion`."""
        return np.where(users > self.threshold, self.seconds, 0.0) + np.zeros_like(seconds)


@dataclass(frozen=True)
class VolumeDelay(Checked):
    r"""A delay that grows with the fourth power of the load.

    .. math:: \Delta s = 0.15\, s\, \min(u / C, 3)^4

    where: s is the free time, u the users of the cell and C ``capacity``; the load is capped at 3.
    Source: the function of the US Bureau of Public Roads (1964).

    Parameters
    ----------
    capacity : float
        Users of a cell at a time that its roads carry with a delay of 15 %, above 0.
    """

    capacity: float = 50.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("capacity")

    def delay(self, users: FloatArray, seconds: FloatArray) -> FloatArray:
        """See :class:`Congestion`."""
        load = np.clip(users / self.capacity, 0.0, 3.0)
        return np.asarray(0.15 * seconds * load**4)


def congestion_named(kind: str, capacity: float, delay_s: float = 3.0) -> Congestion:
    """The model of one of :data:`CONGESTIONS`, with its capacity (or threshold) in users of a cell."""
    check(kind in CONGESTIONS, "congestion", f"{' or '.join(CONGESTIONS)}", kind)
    return StepDelay(capacity, delay_s) if kind == "step" else VolumeDelay(capacity)


def junction_cells(graph: RoadGraph, tiling: Tiling) -> IntArray:
    """The cell in which the users of each junction are reported, shape (nodes,).

    The nearest site stands for a cell whose centre lies outside a polygon. A junction outside the tiling's region is an
    ``InputError``.
    """
    outside = ~tiling.region.contains(graph.lon, graph.lat)
    if outside.any():
        raise InputError(
            f"{graph.source}: {int(outside.sum())} junctions lie outside {tiling.region}; choose a larger region "
            "or fewer roads"
        )
    return locator(tiling, Domain(tiling).cells, Outside.NEAREST)(graph.lon, graph.lat)
