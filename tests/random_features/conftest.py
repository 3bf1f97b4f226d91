"""Queries and devices that several tests ask."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness

GRIDS = {
    1: EvenGrid((-15.0,), (0.25,), (121,)),
    2: EvenGrid((-5.0, 40.0), (2.0, -1.5), (33, 28)),
    3: EvenGrid((0.0, 0.0, 100.0), (1.5, 2.0, 60.0), (12, 14, 11)),
}
BANDWIDTH = {1: (2.0,), 2: (3.0, 3.0), 3: (3.0, 3.0, 90.0)}


@pytest.fixture
def make_query():
    def make(dimension: int = 2, features: int = 1, kernel: str = "gaussian", *, grid: bool = True) -> Query:
        axes = GRIDS[dimension]
        ends = np.sort([axes.start, axes.points()[:, -1]], axis=0)
        return Query(
            BANDWIDTH[dimension],
            tuple(ends[0].tolist()),
            tuple(ends[1].tolist()),
            features,
            kernel,
            axes if grid else None,
        )

    return make


@pytest.fixture
def make_reports():
    def make(query: Query, devices: int, seed: int = 1):
        """Reports of devices anywhere in the region, and where they are."""
        rng = Randomness(seed)
        low, high = (np.asarray(end)[:, None] for end in (query.low, query.high))
        places = rng.generator().uniform(low, high, (query.dimension, devices))
        units = unit_frequencies(devices, query.features, query.law, query.dimension, rng)
        return client_reports(units, Visits(places), query), places

    return make
