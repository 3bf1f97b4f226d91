"""The paper's score: against a slow reading of the definition, and at its two ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.attacks.localisation_score import (
    PAPER_RATIO,
    _score_framed,
    score_features,
    score_silence,
)
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Visits, client_reports, grid_reports
from mapveil_client.randomness.random import Randomness
from reproductions.zong.runs import score_places


def score_surfaces(surfaces, places, grid, *, ratio=PAPER_RATIO):
    """The score from surfaces that are already evaluated, shape (devices, P, Q)."""
    framed = np.empty((surfaces.shape[0], grid.count[0] + 1, grid.count[1] + 1))
    framed[:, :-1, :-1] = surfaces
    return _score_framed(framed, places, grid, ratio)


GRID = EvenGrid((10.0, 200.0), (7.0, -9.0), (13, 17))


def scene(devices, features, h=15.0, grid=GRID, seed=1):
    low = [min(grid.axis(axis)) for axis in range(2)]
    high = [max(grid.axis(axis)) for axis in range(2)]
    query = Query((h, h), tuple(low), tuple(high), features, grid=grid)
    rng = Randomness(seed)
    places = (
        rng.generator().uniform(0, 1, (2, devices)) * np.subtract(high, low)[:, None] + np.array(low)[:, None]
    )
    reports = client_reports(unit_frequencies(devices, features, query.law, 2, rng), Visits(places), query)
    return query, places, reports


def by_definition(surface, place, grid, ratio):
    """K, the text's score and the printed one, point by point."""
    columns, rows = grid.count
    kept = []
    for p in range(columns):
        for q in range(rows):
            around = surface[max(p - 1, 0) : p + 2, max(q - 1, 0) : q + 2]
            if surface[p, q] >= around.max() and surface[p, q] >= surface.max() / ratio:
                away = math.dist((grid.axis(0)[p], grid.axis(1)[q]), place)
                kept.append((surface[p, q], away))
    total = sum(height for height, _ in kept)
    score = sum(height / total * away for height, away in kept)
    return len(kept), score, score / len(kept)


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("ratio", [1.0, PAPER_RATIO, 2.0])
def test_it_is_the_definition(features, ratio):
    query, places, reports = scene(60, features)
    surfaces = grid_reports(reports, query)
    fast, shown = (
        score_features(reports, places, query, ratio=ratio),
        score_surfaces(surfaces, places, GRID, ratio=ratio),
    )
    for device in range(60):
        k, text, printed = by_definition(surfaces[device], places[:, device], GRID, ratio)
        for found in (fast, shown):
            assert found.maxima[device] == k
            assert found.expected_m[device] == pytest.approx(text, rel=1e-9)
            assert found.literal_m[device] == pytest.approx(printed, rel=1e-9)
    assert fast.mean() == pytest.approx((fast.expected_m.mean(), fast.literal_m.mean()))


def test_two_maxima_by_hand():
    surface = np.zeros((1, 5, 4))
    surface[0, 0, 0], surface[0, 4, 3], surface[0, 2, 1] = 1.0, 0.95, 0.5
    grid = EvenGrid((0.0, 0.0), (3.0, 4.0), (5, 4))
    found = score_surfaces(surface, np.zeros((2, 1)), grid)
    assert found.maxima.tolist() == [2]
    assert found.expected_m[0] == pytest.approx(0.95 / 1.95 * math.hypot(12, 12))
    assert found.literal_m[0] == pytest.approx(found.expected_m[0] / 2)


def test_a_flat_and_a_negative_surface_have_a_score_too():
    surfaces = np.stack([np.zeros((5, 4)), np.full((5, 4), -1.0), -np.arange(20.0).reshape(5, 4) - 1])
    grid = EvenGrid((0.0, 0.0), (1.0, 1.0), (5, 4))
    found = score_surfaces(surfaces, np.zeros((2, 3)), grid)
    assert found.maxima.tolist() == [20, 20, 1]
    x, y = np.meshgrid(np.arange(5), np.arange(4))
    np.testing.assert_allclose(found.expected_m, [np.hypot(x, y).mean()] * 2 + [0.0])


@given(scale=st.floats(0.01, 100), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_it_is_a_length(scale, seed):
    grown = EvenGrid(tuple(scale * v for v in GRID.start), tuple(scale * v for v in GRID.step), GRID.count)
    one = scene(5, 2, seed=seed)
    other = scene(5, 2, h=15.0 * scale, grid=grown, seed=seed)
    np.testing.assert_allclose(other[1], scale * one[1])
    first, second = (score_features(reports, places, query) for query, places, reports in (one, other))
    np.testing.assert_allclose(second.expected_m, scale * first.expected_m, rtol=1e-6)


def test_blocks_and_threads_change_nothing(monkeypatch):
    query, places, reports = scene(200, 3)
    told = []
    whole = score_features(reports, places, query, progress=told.append)
    monkeypatch.setattr("mapveil.attacks.localisation_score._BLOCK", 7 * GRID.size)
    parts = score_features(reports, places, query)
    np.testing.assert_array_equal(parts.expected_m, whole.expected_m)
    np.testing.assert_array_equal(parts.maxima, whole.maxima)
    assert told[-1] == 1


def test_another_grid_than_the_querys():
    query, places, reports = scene(40, 2)
    other = EvenGrid((12.0, 60.0), (2.0, 3.0), (40, 30))
    x = other.points() - np.asarray(query.origin)[:, None]
    for device in (0, 39):
        phase = reports.frequencies[:, device].T @ x
        surface = (reports.projections[device].conj()[:, None] * np.exp(1j * phase)).real.sum(axis=0)
        k, text, _ = by_definition(surface.reshape(40, 30), places[:, device], other, PAPER_RATIO)
        found = score_features(reports, places, query, grid=other)
        assert found.maxima[device] == k
        assert found.expected_m[device] == pytest.approx(text)


def test_exact_kernels_score_the_distance_to_the_nearest_point():
    rng = np.random.default_rng(1)
    places = rng.uniform(0, 100, (2, 30))
    grid = EvenGrid((-5.0, 105.0), (5.0, -5.0), (23, 23))
    shown = places + rng.normal(0, 20, (2, 30))
    x, y = np.meshgrid(grid.axis(0), grid.axis(1), indexing="ij")
    for reported in (places, shown):
        away = np.square(x - reported[0][:, None, None]) + np.square(y - reported[1][:, None, None])
        kernels = np.exp(-away / (2 * 60.0**2))
        wanted = score_surfaces(kernels, places, grid, ratio=1.0)
        found = score_places(reported, places, grid)
        np.testing.assert_allclose(found.expected_m, wanted.expected_m)
        np.testing.assert_array_equal(found.maxima, wanted.maxima)


def test_silence_is_the_mean_distance():
    places = np.random.default_rng(2).uniform(-50, 250, (2, 70))
    points = GRID.points()
    wanted = [np.hypot(*(points - place[:, None])).mean() for place in places.T]
    np.testing.assert_allclose(score_silence(places, GRID).expected_m, wanted)


def test_few_features_score_near_silence_and_many_near_nothing():
    grid = EvenGrid((-4.0, -4.0), (8 / 99, 8 / 99), (100, 100))
    silence = score_silence(scene(300, 1, 0.55, grid)[1], grid).mean()[0]
    means = {}
    for features in (1, 3, 50):
        query, places, reports = scene(300, features, 0.55, grid)
        means[features] = score_features(reports, places, query).mean()[0]
    assert 0.75 * silence < means[1] < 1.1 * silence
    assert means[50] < 0.02 * silence < means[3] < means[1]


def test_what_is_refused():
    query, places, reports = scene(3, 1)
    with pytest.raises(ParameterError, match="at least 1"):
        score_features(reports, places, query, ratio=0.9)
    with pytest.raises(ParameterError, match="no grid"):
        score_features(reports, places, Query((1.0, 1.0), (0.0, 0.0), (9.0, 9.0)))
    with pytest.raises(ParameterError, match="two"):
        score_silence(places, EvenGrid((0.0,), (1.0,), (5,)))
