"""The exact density: the transform against the direct sum, near edges, far places, wide and narrow kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.random_features.exact_density import direct_density, kernel_density, kernel_density_at
from mapveil_client.random_features.kernels import KERNELS, Gaussian
from mapveil_client.random_features.query import EvenGrid

GRIDS = {
    1: EvenGrid((1.0,), (-1.0,), (64,)),
    2: EvenGrid((1.0, 2.0), (1.0, -1.5), (31, 24)),
    3: EvenGrid((0.0, 0.0, 0.0), (1.0, 2.0, 30.0), (9, 8, 7)),
}


def naive(places, weights, points, bandwidth):
    """Place by place and point by point."""
    made = []
    for point in points.T:
        square = sum(((place - at) / h) ** 2 for place, at, h in zip(places, point, bandwidth, strict=True))
        made.append(float((weights * np.exp(-square / 2)).sum()))
    return np.array(made)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("h", [0.15, 1.0, 8.0])
def test_the_transform_is_the_naive_sum(dimension, h):
    grid, rng = GRIDS[dimension], np.random.default_rng(0)
    # Places far outside too, some of which just reach the edge.
    places = rng.uniform(-60, 90, (dimension, 400))
    weights = rng.uniform(0, 1, 400)
    bandwidth = (h, 1.5 * h, 20 * h)[:dimension]
    wanted = naive(places, weights, grid.points(), bandwidth)
    scale = max(np.abs(wanted).max(), 1e-3)
    assert (
        np.abs(kernel_density(places, weights, grid, Gaussian(), bandwidth).ravel() - wanted).max()
        < 1e-7 * scale
    )
    direct = direct_density(places, weights, grid.points(), Gaussian(), bandwidth)
    np.testing.assert_allclose(direct, wanted, atol=1e-12 * scale)
    points = rng.uniform(-5, 30, (dimension, 50))
    at = kernel_density_at(places, weights, points, Gaussian(), bandwidth)
    assert np.abs(at - naive(places, weights, points, bandwidth)).max() < 1e-7 * scale


@settings(max_examples=30)
@given(st.floats(0.05, 30), st.floats(-40, 70), st.floats(-70, 40), st.integers(1, 40), st.integers(1, 40))
def test_one_place_is_one_kernel(h, x, y, columns, rows):
    grid = EvenGrid((0.0, 0.0), (1.0, -1.0), (columns, rows))
    place = np.array([[x], [y]])
    found = kernel_density(place, None, grid, Gaussian(), (h, h)).ravel()
    wanted = naive(place, np.ones(1), grid.points(), (h, h))
    np.testing.assert_allclose(found, wanted, atol=2e-8)


@pytest.mark.parametrize("kernel", [*KERNELS.values()][1:], ids=[*KERNELS][1:])
def test_other_kernels_are_summed_directly(kernel):
    grid, rng = GRIDS[2], np.random.default_rng(1)
    places = rng.uniform(0, 30, (2, 50)) * np.array([[1], [-1]])
    found = kernel_density(places, None, grid, kernel, (2.0, 2.0))
    distance = np.hypot(*(grid.points()[:, :, None] - places[:, None, :])) / 2
    np.testing.assert_allclose(found.ravel(), kernel.values(distance, 2).sum(axis=1))


def test_nobody_has_no_density():
    grid = GRIDS[2]
    assert not kernel_density(np.zeros((2, 0)), None, grid, Gaussian(), (1.0, 1.0)).any()
    assert not kernel_density(np.full((2, 1), 1e7), None, grid, Gaussian(), (1.0, 1.0)).any()
    assert not kernel_density_at(np.zeros((2, 0)), None, grid.points(), Gaussian(), (1.0, 1.0)).any()
