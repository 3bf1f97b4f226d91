"""The Laplace histogram: unbiased unless clipped, at its stated scale, inside its stated bounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram

TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=6)
CERTAIN = 1e-9


def some_sums(seed=1):
    generator = np.random.default_rng(seed)
    return UserSums(generator.poisson(3, TILING.size).astype(np.int64) * UNIT, TILING)


def noise(epsilon, seed=2):
    sums = some_sums()
    heat = LaplaceHistogram(epsilon=epsilon, clip=False).release(sums, rng=seed)
    return heat.values - sums.sums / UNIT


@pytest.mark.parametrize("epsilon", [0.1, 1, 10])
def test_unclipped_noise_is_laplace_of_the_stated_scale_and_the_test_has_power(epsilon):
    def pvalue(noisy):
        return stats.kstest(noisy, stats.laplace(scale=1 / epsilon).cdf).pvalue

    assert pvalue(noise(epsilon)) > CERTAIN
    assert pvalue(noise(epsilon) * 1.3) < CERTAIN
    assert pvalue(noise(epsilon) * 0.7) < CERTAIN


def test_clipping_changes_negative_cells_only():
    sums = some_sums()
    clipped = LaplaceHistogram(epsilon=0.5).release(sums, rng=4)
    plain = LaplaceHistogram(epsilon=0.5, clip=False).release(sums, rng=4)
    np.testing.assert_array_equal(clipped.values, np.maximum(plain.values, 0))
    assert (plain.values < 0).any()


def test_bounds_hold_as_often_as_they_say():
    sums = some_sums()
    for alpha in (0.5, 0.05):
        bounds = LaplaceHistogram(epsilon=1).release(sums, rng=5).error(alpha)
        truth = sums.sums / UNIT
        missed = int(((truth < bounds.lower) | (truth > bounds.upper)).sum())
        assert stats.binomtest(missed, truth.size, alpha, alternative="greater").pvalue > CERTAIN
        assert stats.binomtest(missed, truth.size, alpha / 3, alternative="less").pvalue > CERTAIN


def test_bounds_are_not_wider_than_needed():
    heat = LaplaceHistogram(epsilon=1, clip=False).release(some_sums(), rng=5)
    bounds = heat.error(0.05)
    widths = (bounds.upper - heat.values)[bounds.lower > 0]
    np.testing.assert_allclose(widths, np.log(1 / 0.05), rtol=1e-6)


def test_the_whole_budget_is_one_share():
    heat = LaplaceHistogram(epsilon="1/3").release(some_sums(), rng=1)
    (share,) = heat.guarantee.shares
    assert share.epsilon == heat.guarantee.epsilon == heat.measurements[0].epsilon
    assert heat.parameters == {"epsilon": "1/3", "clip": True, "users": None, "users_share": 0.02}
