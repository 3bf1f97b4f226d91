from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.geo.counts import Counts
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.mechanisms.hierarchical_histogram import HierarchicalHistogram
from mapveil.mechanisms.spatial_decomposition import SpatialDecomposition
from mapveil.trust.secure_aggregation.model import SecureAggregation
from reproductions.bagdasaryan.data import evened
from reproductions.bagdasaryan.every_level import EveryLevel
from reproductions.bagdasaryan.runs import spread

TRUST = SecureAggregation(shard_size=500, tolerated_dropout=0, corrupt=0)
TILING = Quadtree(Region.without_georeference(16, 16), 4)
COUNTS = Counts(np.random.default_rng(4).integers(0, 40, TILING.size), TILING, "made up")


@pytest.mark.parametrize("kind", [HierarchicalHistogram, SpatialDecomposition])
def test_every_level_is_what_that_level_alone_would_show(
    kind: type[HierarchicalHistogram] | type[SpatialDecomposition],
) -> None:
    inner = kind(epsilon=2, trust=TRUST)
    shown = EveryLevel.of(inner, (1, 2, 3, 9)).release(COUNTS, rng=7)
    assert len(shown.measurements) == 3  # the raster has no level 9
    for level, measured in zip((1, 2, 3), shown.measurements, strict=True):
        alone = kind(epsilon=2, trust=TRUST, level=level)
        assert spread(measured, TILING) == pytest.approx(alone.release(COUNTS, rng=7).values)
    first = kind(epsilon=2, trust=TRUST, level=1)
    assert shown.values == pytest.approx(first.release(COUNTS, rng=7).values)
    assert [share.epsilon for share in shown.guarantee.shares] == [
        share.epsilon for share in inner.release(COUNTS, rng=7).guarantee.shares
    ]


def test_without_noise_the_levels_are_the_plain_ones() -> None:
    inner = HierarchicalHistogram(epsilon=Fraction(10**6), trust=TRUST)
    shown = EveryLevel.of(inner, (1, 2, 3, 4)).release(COUNTS, rng=1)
    for level, measured in zip((1, 2, 3, 4), shown.measurements, strict=True):
        assert spread(measured, TILING) == pytest.approx(evened(COUNTS.values.astype(float), TILING, level))
