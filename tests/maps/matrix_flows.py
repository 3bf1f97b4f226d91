"""Flows of a matrix of trips, for tests."""

from __future__ import annotations

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.maps.flow_map import FlowMap
from mapveil.privacy.guarantee import Guarantee


def matrix_flows(
    trips: np.ndarray, tiling: Tiling, promise: Guarantee, *, least: float = 0.0, unlisted: float = 0.0
) -> FlowMap:
    """The positive entries of at least ``least``, one more each as deviation; the others are unlisted."""
    origin, destination = np.nonzero((trips > 0) & (trips >= least))
    kept = trips[origin, destination]
    rest = max(float(trips.sum() - kept.sum()), 0.0) + unlisted
    return FlowMap(origin, destination, kept, tiling, promise, "by hand", deviation=kept + 1, unlisted=rest)
