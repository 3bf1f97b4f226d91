"""Algorithm 1: the exact density of users."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.random_features.federated_kde import FederatedKde

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = mv.Grid(REGION, rows=30, columns=24)


def by_hand(user, lon, lat, h, kernel):
    """User by user, equations 1 and 5, times the cells' area."""
    x, y = REGION.project(np.asarray(lon), np.asarray(lat))
    cx, cy = REGION.project(*GRID.centres())
    total = np.zeros(GRID.size)
    for one in np.unique(user):
        mine = np.flatnonzero((np.asarray(user) == one) & REGION.contains(np.asarray(lon), np.asarray(lat)))
        for at in mine:
            r = np.hypot(cx - x[at], cy - y[at]) / h
            total += (
                np.exp(-(r**2) / 2) / (2 * np.pi) if kernel == "gaussian" else np.exp(-r) / (2 * np.pi)
            ) / mine.size
    return total / h**2 * GRID.area_m2()


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_the_map_is_the_sum_of_kernels_of_users(kernel):
    rng = np.random.default_rng(3)
    user = rng.integers(0, 20, 70)
    lon, lat = rng.uniform(-74.05, -73.88, 70), rng.uniform(40.67, 40.85, 70)
    heat = FederatedKde(bandwidth_m=600, kernel=kernel).release(mv.Points.from_arrays(user, lon, lat), GRID)
    wanted = by_hand(user, lon, lat, 600, kernel)
    np.testing.assert_allclose(heat.values, wanted, atol=1e-7 * wanted.max())


def test_well_inside_every_user_counts_one():
    points = mv.Points.from_arrays(np.arange(10), np.full(10, -73.965), np.full(10, 40.76))
    heat = FederatedKde(bandwidth_m=500).release(points, mv.Grid(REGION, 200, 160))
    assert heat.values.sum() == pytest.approx(10, rel=1e-5)
    peak = np.unravel_index(heat.values.argmax(), (200, 160))
    assert peak == tuple(
        np.unravel_index(
            mv.Grid(REGION, 200, 160).locate(np.array([-73.965]), np.array([40.76]))[0], (200, 160)
        )
    )


def test_it_says_that_nothing_is_hidden():
    words = FederatedKde(bandwidth_m=500).guarantee().in_words()
    assert "a surface whose maximum is the client's location" in words
    assert "Hidden: nothing" in words
    assert "posterior error 0 m" in words
