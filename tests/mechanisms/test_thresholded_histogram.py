from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.thresholded_histogram import ThresholdedHistogram
from mapveil_client.errors import ParameterError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
MUCH = 10**11


def sums_on(tiling: Tiling, seed: int = 0) -> UserSums:
    values = np.random.default_rng(seed).permutation(tiling.size).astype(np.int64)
    return UserSums(values * UNIT, tiling)


@pytest.mark.parametrize(
    ("percent", "cells", "kept"),
    [(0.01, 65536, 7), (0.01, 10, 1), (7, 100, 7), (12.5, 8, 1), (100, 33, 33), (50, 3, 2)],
)
def test_the_percentage_is_rounded_up_exactly(percent: float, cells: int, kept: int) -> None:
    assert ThresholdedHistogram(epsilon=1, keep_percent=percent).kept_cells(cells) == kept


def test_without_noise_the_largest_cells_stay_and_the_rest_is_zero() -> None:
    tiling = mv.Grid(REGION, rows=300, columns=300)
    sums = sums_on(tiling)
    truth = sums.sums / UNIT
    values = ThresholdedHistogram(epsilon=MUCH).release(sums, rng=1).values
    kept = np.argsort(-truth)[:9]
    np.testing.assert_array_equal(values[kept], truth[kept])
    assert np.count_nonzero(values) == 9


def test_what_is_kept_are_the_largest_noisy_sums() -> None:
    tiling = mv.Quadtree(REGION, depth=4)
    heat = ThresholdedHistogram(epsilon=0.1, keep_percent=10).release(sums_on(tiling), rng=2)
    noisy = heat.measurements[0].noisy
    kept = np.flatnonzero(heat.values)
    assert kept.size <= 26
    np.testing.assert_array_equal(heat.values[kept], noisy[kept])
    assert noisy[kept].min() > np.delete(noisy, kept).max()


def test_keeping_everything_is_the_plain_histogram() -> None:
    sums = sums_on(mv.Quadtree(REGION, depth=4))
    ours = ThresholdedHistogram(epsilon=1, keep_percent=100).release(sums, rng=3).values
    plain = mv.mechanisms.LaplaceHistogram(epsilon=1).release(sums, rng=3).values
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("percent", [0, -1, 100.5, float("nan")])
def test_a_senseless_percentage_is_refused(percent: float) -> None:
    with pytest.raises(ParameterError, match="keep_percent"):
        ThresholdedHistogram(epsilon=1, keep_percent=percent)
