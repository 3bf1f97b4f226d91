"""Disks on rasters."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.randomizers.disk_area import DiskArea
from mapveil.local.randomizers.randomizer import Tally
from mapveil_client.errors import ParameterError
from mapveil_client.local.disk_area import best_radius, disk_kernel, pixel_raster
from mapveil_client.local.domain import Domain

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def test_the_kernel_covers_the_disks_area() -> None:
    raster = pixel_raster(Domain(mv.Quadtree(REGION, depth=5)))
    high, wide = raster.pixel_m
    for radius in (2 * high, 5.3 * wide, 9.9 * high):
        kernel = disk_kernel(radius, raster)
        assert kernel.sum() * high * wide == pytest.approx(math.pi * radius**2, rel=0.01)
        np.testing.assert_array_equal(kernel, kernel[::-1, ::-1])
        assert kernel.max() == 1
        # By points, as it is defined.
        up, along = (side // 2 for side in kernel.shape)
        offset = (np.arange(40) + 0.5) / 40 - 0.5
        y = (np.arange(-up, up + 1)[:, None] + offset).reshape(-1) * high
        x = (np.arange(-along, along + 1)[:, None] + offset).reshape(-1) * wide
        slow = (y[:, None] ** 2 + x**2 <= radius**2).reshape(2 * up + 1, 40, 2 * along + 1, 40).mean((1, 3))
        slow[up, along] = 1
        np.testing.assert_allclose(kernel, slow, atol=0.03)


def test_a_disk_smaller_than_a_pixel_is_the_pixel() -> None:
    raster = pixel_raster(Domain(mv.Quadtree(REGION, depth=3)))
    assert disk_kernel(0.0, raster).tolist() == [[1.0]]


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(4)])
def test_the_radius_is_where_information_is_greatest(epsilon: Fraction) -> None:
    def information(b: float, w: float, h: float) -> float:
        e, disk = math.exp(epsilon), math.pi * b * b
        area = w * h + 2 * (w + h) * b + disk
        q = 1 / (disk * (e - 1) + area)
        return math.log(area) + disk * e * q * math.log(e * q) + (area - disk) * q * math.log(q)

    for w, h in ((1.0, 1.0), (3.0, 0.5)):
        found = best_radius(epsilon, w, h)
        grid = np.linspace(1e-3, w + h, 4001)
        best = grid[np.argmax([information(b, w, h) for b in grid])]
        assert found == pytest.approx(best, abs=2 * (grid[1] - grid[0]))
    assert best_radius(epsilon, 1000, 1000) == pytest.approx(1000 * best_radius(epsilon, 1, 1), rel=1e-5)


def test_every_place_has_its_whole_disk_and_the_same_total() -> None:
    randomizer = DiskArea(epsilon=1).on(Domain(mv.Quadtree(REGION, depth=3)))
    matrix = randomizer.transition_matrix()
    peaks = np.isclose(matrix, matrix.max()).sum(axis=1)
    assert peaks.min() == peaks.max() > 1
    np.testing.assert_allclose(matrix.max(axis=1), matrix.max(), rtol=1e-9)


def test_sites_of_one_pixel_cannot_be_told_apart_and_the_message_says_so() -> None:
    lon = np.array([-74.0, -74.0 + 1e-7, -73.95, -73.92])
    domain = Domain(mv.Places(lon, np.array([40.75, 40.75, 40.71, 40.80]), REGION))
    randomizer = DiskArea(epsilon=1).on(domain)
    with pytest.raises(ParameterError, match=r"singular.*'smoothed-em'"):
        randomizer.invert(Tally(np.ones(randomizer.symbols, dtype=np.int64), randomizer.symbols))
    heat = DiskArea(epsilon=1, estimator="em").release(
        mv.Counts(np.array([90, 10, 50, 50]), domain.tiling), rng=1
    )
    assert heat.values[0] == pytest.approx(heat.values[1])


def test_the_noise_of_least_squares_is_that_of_the_matrix() -> None:
    domain = Domain(mv.Grid(REGION, rows=4, columns=5))
    randomizer = DiskArea(epsilon=1).on(domain)
    matrix = randomizer.transition_matrix()
    p = np.random.default_rng(0).dirichlet(np.full(domain.size, 0.5))
    rows = np.stack([randomizer.invert(Tally(one, 1)) for one in np.eye(randomizer.symbols)], axis=1)
    np.testing.assert_allclose(rows, np.linalg.pinv(matrix.T), atol=1e-7 * np.abs(rows).max())
    wanted = np.zeros((domain.size, domain.size))
    for part, law in zip(p, matrix, strict=True):
        mean = rows @ law
        wanted += part * ((rows * law) @ rows.T - np.outer(mean, mean))
    found = randomizer.covariance(p)
    np.testing.assert_allclose(found.matrix, wanted, rtol=1e-7, atol=1e-9 * wanted.max())
    order = np.random.default_rng(1).permutation(domain.size)
    np.testing.assert_allclose(
        found.of_sums(order, np.array([3]), np.array([9])), wanted[np.ix_(order[3:12], order[3:12])].sum()
    )


def test_least_squares_of_many_pixels_are_refused_with_a_way_out() -> None:
    randomizer = DiskArea(epsilon=1).on(Domain(mv.Quadtree(REGION, depth=6)))
    with pytest.raises(ParameterError, match=r"2\*\*23.*4096 sites.*'smoothed-em'"):
        randomizer.covariance(np.full(4096, 1 / 4096))


@pytest.mark.parametrize("radius", [-1.0, float("nan"), float("inf")])
def test_a_senseless_radius_is_refused(radius: float) -> None:
    with pytest.raises(ParameterError, match="radius_m"):
        DiskArea(epsilon=1, radius_m=radius)


def test_a_radius_that_asks_for_too_many_pixels_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"2\*\*25"):
        DiskArea(epsilon=1, radius_m=1e7).on(Domain(mv.Quadtree(REGION, depth=5)))


def test_the_noise_of_sites_is_the_diagonal_and_intervals_cover() -> None:
    tiling = mv.Quadtree(REGION, depth=3)
    mechanism = DiskArea(epsilon=2)
    randomizer = mechanism.on(Domain(tiling))
    p = np.random.default_rng(2).dirichlet(np.full(tiling.size, 0.3))
    found = randomizer.site_noise(p)
    np.testing.assert_allclose(found.variance, np.diag(randomizer.covariance(p).matrix), rtol=1e-9)
    rows = np.linalg.pinv(randomizer.transition_matrix().T)
    assert found.step == pytest.approx((rows.max(axis=1) - rows.min(axis=1)).max(), rel=1e-6)
    users = np.random.default_rng(3).multinomial(20_000, p)
    missed = []
    for seed in range(20):
        bounds = mechanism.release(mv.Counts(users, tiling), rng=seed).error(0.05)
        assert bounds.upper.min() < 20_000
        missed.append((users < bounds.lower) | (users > bounds.upper))
    assert np.mean(missed) <= 0.02


def test_where_least_squares_would_take_long_a_map_says_how_many_reported() -> None:
    tiling = mv.Quadtree(REGION, depth=5)
    users = np.ones(tiling.size, dtype=np.int64)
    bounds = DiskArea(epsilon=2).release(mv.Counts(users, tiling), rng=1).error(0.05)
    assert bounds.lower.max() == 0
    assert (bounds.upper == users.sum()).all()
