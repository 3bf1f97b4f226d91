"""Bandwidths: the paper's by an oracle, the public one by simulation, smoothing by what it achieves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mapveil.random_features.bandwidth import neighbour_bandwidth, public_bandwidth, smooth, smoothing_scale
from mapveil.random_features.exact_density import kernel_density
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness
from tests.random_features.direct_surface import kernel_sum


def test_all_places_give_the_mean_distance_to_the_kth_neighbour():
    places = np.random.default_rng(1).normal(0, 100, (2, 300))
    distance = np.sort(np.hypot(*(places[:, :, None] - places[:, None, :])), axis=1)
    for k in (1, 7, 120):
        found = neighbour_bandwidth(places, Randomness(1), neighbours=k, part=1.0)
        assert found == pytest.approx(distance[:, k].mean())


def test_a_tenth_of_the_places_is_read_and_estimates_it():
    places = np.random.default_rng(1).normal(0, 100, (2, 20_000))
    whole = neighbour_bandwidth(places, Randomness(1), neighbours=200, part=1.0)
    parts = [neighbour_bandwidth(places, Randomness(seed), neighbours=200) for seed in range(5)]
    assert len(set(parts)) == 5
    np.testing.assert_allclose(parts, whole, rtol=0.08)


@pytest.mark.parametrize(
    ("places", "options", "message"),
    [
        (np.zeros((2, 10)), {"neighbours": 10}, "below the number of places, 10, got 10"),
        (np.zeros((2, 600)), {}, "lie at one point"),
    ],
)
def test_too_few_or_equal_places_are_errors(places, options, message):
    with pytest.raises(InputError, match=message):
        neighbour_bandwidth(places, Randomness(1), **options)
    with pytest.raises(ParameterError):
        neighbour_bandwidth(np.ones((2, 9)), Randomness(1), part=0.0)


def test_the_public_bandwidth_is_that_of_people_spread_evenly():
    side, users = 1000.0, 20_000
    places = np.random.default_rng(2).uniform(0, side, (2, users))
    middle = places[:, (np.abs(places - side / 2) < side / 4).all(axis=0)]
    from scipy.spatial import KDTree

    for k in (1, 20, 200):
        away = KDTree(places.T).query(middle.T, k=[k + 1])[0].mean()
        assert public_bandwidth(side**2, users, neighbours=k) == pytest.approx(away, rel=0.03)
        assert public_bandwidth(side**2 * 1.3, users, neighbours=k) != pytest.approx(away, rel=0.1)
    assert public_bandwidth(1.0, 3, neighbours=500) == public_bandwidth(1.0, 3, neighbours=3)


def surface(users, seed, features=1, spread=60.0):
    grid = EvenGrid((0.0, 0.0), (8.0, 8.0), (64, 48))
    query = Query((10.0, 10.0), (0.0, 0.0), (512.0, 384.0), features, "gaussian", grid)
    places = np.random.default_rng(seed).normal([[250.0], [200.0]], spread, (2, users))
    rng = Randomness(seed)
    reports = client_reports(unit_frequencies(users, features, query.law, 2, rng), Visits(places), query)
    exact = kernel_density(places, None, grid, Gaussian(), (10.0, 10.0))
    return kernel_sum(reports, query), exact, query


@pytest.mark.parametrize(("users", "features"), [(2000, 1), (20_000, 1), (20_000, 5)])
def test_the_chosen_scale_is_near_the_best_one(users, features):
    noisy, exact, query = surface(users, 3, features)
    chosen = smoothing_scale(noisy, query, users)

    def loss(scale):
        return float(np.mean(np.square(smooth(noisy, query.grid, scale) - exact)))

    best = min(loss(scale) for scale in np.geomspace(2, 100, 60))
    assert loss(chosen.scale) < 1.25 * best
    assert loss(chosen.scale) < 0.5 * loss(0.0)
    assert chosen.bandwidth == pytest.approx(math.hypot(chosen.scale, 10.0))


def test_the_risk_is_an_unbiased_estimate_of_the_loss():
    risks, losses = [], []
    for seed in range(24):
        noisy, exact, query = surface(3000, seed)
        chosen = smoothing_scale(noisy, query, 3000)
        risks.append(chosen.risk_unsmoothed)
        losses.append(np.mean(np.square(noisy - exact)))
    # Half the kernel's own square is left out of the variance: a few per cent here.
    assert np.mean(risks) == pytest.approx(np.mean(losses), rel=0.1)
    assert np.mean(risks) != pytest.approx(1.3 * np.mean(losses), rel=0.1)


def test_a_surface_without_chance_is_not_smoothed():
    _, exact, query = surface(2000, 1)
    assert smoothing_scale(exact * 1e6, query, 2000).scale < 3


def test_more_people_are_smoothed_less():
    scales = [
        smoothing_scale(*(surface(users, 5)[at] for at in (0, 2)), users).scale
        for users in (300, 3000, 100_000)
    ]
    assert scales[0] > scales[1] > scales[2]


def test_smoothing_keeps_the_total_and_is_a_gaussians():
    grid = EvenGrid((0.0, 0.0), (2.0, 2.0), (61, 71))
    point = np.zeros(grid.count)
    point[30, 35] = 1.0
    made = smooth(point, grid, 8.0)
    assert made.sum() == pytest.approx(1.0)
    x, y = np.meshgrid(grid.axis(0) - 60, grid.axis(1) - 70, indexing="ij")
    np.testing.assert_allclose(made, 4 * np.exp(-(x**2 + y**2) / 128) / (2 * np.pi * 64), atol=1e-6)
    np.testing.assert_allclose(smooth(made, grid, 0.0), made, atol=1e-15)


def test_only_what_can_be_smoothed_is_accepted():
    noisy, _, query = surface(100, 1)
    from dataclasses import replace

    for other in (replace(query, kernel="cauchy"), replace(query, grid=None)):
        with pytest.raises(InputError, match="Gaussian kernel and an even grid"):
            smoothing_scale(noisy, other, 100)
