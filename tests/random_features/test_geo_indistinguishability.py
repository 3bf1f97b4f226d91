"""Planar Laplace noise: its law by Lambert's W, geo-indistinguishability, remapping."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mapveil as mv
from mapveil.random_features.geo_indistinguishability import (
    PlanarLaplace,
    laplace_radius,
    planar_laplace,
    remap,
)
from mapveil.random_features.map_points import map_points
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = mv.Grid(REGION, rows=40, columns=30)
WHERE = map_points(GRID)


@given(st.floats(0, 1, exclude_max=True), st.floats(1e-4, 100))
def test_the_radius_is_the_inverse_of_its_law(probability, epsilon):
    t = float(laplace_radius(np.array([probability]), epsilon)[0]) * epsilon
    # Where the law is flat in double precision, the radius may be off by its own rounding only.
    back = -math.expm1(-t) - t * math.exp(-t)
    assert back == pytest.approx(probability, rel=1e-6, abs=1e-15)
    assert t >= 0


def test_small_probabilities_join_the_branch_without_a_step():
    p = np.concatenate([np.geomspace(1e-300, 1e-6, 50), np.linspace(0.9e-4, 1.1e-4, 101)])
    t = laplace_radius(p, 1.0)
    assert (np.diff(t) > 0).all()
    np.testing.assert_allclose(t[:50], np.sqrt(2 * p[:50]), rtol=2e-3)
    exact = stats.gamma(2).ppf(p[50:])
    np.testing.assert_allclose(t[50:], exact, rtol=1e-6)


def test_the_noise_has_the_planar_law_and_the_test_has_power():
    noise = planar_laplace(200_000, 1 / 150, Randomness(1))
    radius, angle = np.hypot(*noise), np.arctan2(noise[1], noise[0])
    assert stats.kstest(radius, stats.gamma(2, scale=150).cdf).pvalue > 1e-9
    assert stats.kstest(radius, stats.gamma(2, scale=150 * 1.3).cdf).pvalue < 1e-9
    assert stats.kstest(radius, stats.gamma(2, scale=150 * 0.7).cdf).pvalue < 1e-9
    assert stats.kstest(angle, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-9


def test_reports_of_two_places_are_apart_by_at_most_the_promised_factor():
    # Definition 4.1 on boxes of the plane: observed ratios stay within e^(epsilon r), and nearly reach it.
    epsilon, r, count = 1 / 100, 80.0, 2_000_000
    edges = np.linspace(-400, 400, 17)
    drawn = [planar_laplace(count, epsilon, Randomness(seed)) for seed in (1, 2)]
    first, second = (
        np.histogram2d(noise[0] + shift, noise[1], bins=[edges, edges])[0]
        for noise, shift in zip(drawn, (0.0, r), strict=True)
    )
    bound = math.exp(epsilon * r)
    worst = max(
        stats.binomtest(int(a), int(a + b), bound / (1 + bound), alternative="greater").pvalue < 1e-9
        for x, y in ((first, second), (second, first))
        for a, b in zip(x.ravel(), y.ravel(), strict=True)
    )
    assert not worst
    assert (np.maximum(first / second, second / first)).max() > 1 + 0.8 * (bound - 1)


def test_remapping_to_the_region_moves_what_is_outside_only():
    low, high = np.array(WHERE.low)[:, None], np.array(WHERE.high)[:, None]
    places = np.random.default_rng(1).uniform(low - 5000, high + 5000, (2, 1000))
    moved = remap(places, WHERE, 0.01, "region", np.ones(GRID.size))
    inside = ((places >= low) & (places <= high)).all(axis=0)
    np.testing.assert_array_equal(moved[:, inside], places[:, inside])
    assert ((moved >= low) & (moved <= high)).all()
    np.testing.assert_array_equal(remap(places, WHERE, 0.01, "none", np.ones(GRID.size)), places)


def test_remapping_by_a_prior_is_the_posterior_mean():
    prior = np.random.default_rng(2).uniform(0, 1, GRID.size) ** 4
    epsilon = 1 / 600
    at = np.random.default_rng(3).choice(GRID.size, 40)
    reported = WHERE.places[:, at]  # at the middles, where nothing is interpolated
    moved = remap(reported, WHERE, epsilon, "prior", prior)
    for report, found in zip(reported.T, moved.T, strict=True):
        weight = prior * np.exp(-epsilon * np.hypot(*(WHERE.places - report[:, None])))
        np.testing.assert_allclose(found, WHERE.places @ weight / weight.sum(), rtol=1e-7)


def test_remapping_by_the_prior_lowers_the_mean_square_error():
    rng = np.random.default_rng(4)
    prior = np.zeros(GRID.size)
    prior[rng.choice(GRID.size, 40, replace=False)] = 1.0
    places = WHERE.places[:, rng.choice(GRID.size, 20_000, p=prior / prior.sum())]
    reported = places + planar_laplace(20_000, 1 / 400, Randomness(5))
    moved = remap(reported, WHERE, 1 / 400, "prior", prior)
    before, after = (np.mean(np.square(each - places).sum(axis=0)) for each in (reported, moved))
    assert after < 0.7 * before


def test_a_prior_needs_an_even_grid():
    where = map_points(mv.Hexagons(REGION, resolution=7))
    with pytest.raises(InputError, match="even grid"):
        remap(np.zeros((2, 1)), where, 0.01, "prior", np.ones(where.area.size))


@pytest.mark.parametrize("how", ["none", "region", "prior"])
def test_little_noise_gives_the_exact_map(how):
    from mapveil.random_features.federated_kde import FederatedKde

    counts = mv.Counts(np.random.default_rng(1).poisson(1.0, GRID.size), GRID)
    exact = FederatedKde(bandwidth_m=600).release(counts).values
    found = PlanarLaplace(bandwidth_m=600, radius_m=1.0, level=5.0, remap=how).release(counts, rng=1).values
    np.testing.assert_allclose(found, exact, rtol=0.02)


def test_the_promise_names_radius_and_factor():
    words = PlanarLaplace(bandwidth_m=100, radius_m=250, level=math.log(4)).guarantee().in_words()
    assert "250 m apart differ by a factor of at most 4" in words
    assert "NOT differential privacy" in words
    assert PlanarLaplace(bandwidth_m=1, radius_m=1.0, level=0.6).epsilon_per_m == 0.6  # the paper's parameter


@pytest.mark.parametrize("change", [{"radius_m": 0.0}, {"level": -1.0}, {"remap": "best"}, {"kernel": "box"}])
def test_senseless_parameters_are_refused(change):
    with pytest.raises(ParameterError):
        PlanarLaplace(**{"bandwidth_m": 100.0, **change})
