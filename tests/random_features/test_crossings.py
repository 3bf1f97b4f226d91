"""Where features cross: all places that agree, no other, and one as soon as there is a feature to spare."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mapveil.random_features.crossings import crossings
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness

SIDE = 9000.0


def devices(features, h=300.0, number=200, dimension=2, kernel="gaussian", seed=1):
    query = Query((h,) * dimension, (0.0,) * dimension, (SIDE,) * dimension, features, kernel)
    rng = Randomness(seed)
    places = rng.generator().uniform(0, SIDE, (dimension, number))
    reports = client_reports(
        unit_frequencies(number, features, query.law, dimension, rng), Visits(places), query
    )
    return query, places, reports


def nearest(found, places):
    away = np.linalg.norm(found.places - places[:, found.device], axis=0)
    least = np.full(places.shape[1], np.inf)
    np.minimum.at(least, found.device, away)
    return least


@pytest.mark.parametrize(("dimension", "h"), [(1, 300.0), (2, 300.0), (3, 1200.0)])
@pytest.mark.parametrize("kernel", ["gaussian", "cauchy"])
def test_the_place_is_among_them_and_alone_with_one_feature_more(dimension, h, kernel):
    query, places, reports = devices(dimension, h, dimension=dimension, kernel=kernel)
    found = crossings(reports, query, query.low, query.high)
    assert not found.countless.any()
    assert nearest(found, places).max() < 1e-5
    assert np.bincount(found.device).mean() > 2
    query, places, reports = devices(dimension + 1, h, dimension=dimension, kernel=kernel)
    found = crossings(reports, query, query.low, query.high)
    np.testing.assert_array_equal(found.device, np.arange(200))
    np.testing.assert_allclose(found.places, places, atol=1e-5)


def test_all_that_agree_are_given_and_nothing_else():
    query, _, reports = devices(2, h=900.0, number=1, seed=3)
    found = crossings(reports, query, query.low, query.high).places
    offset = found - np.asarray(query.origin)[:, None]
    phase = reports.frequencies[:, 0].T @ offset - np.angle(reports.projections[0])[:, None]
    np.testing.assert_allclose(np.cos(phase), 1.0, atol=1e-12)
    # A fine grid has its highest points, the sum of both features, where the crossings are.
    axis = np.linspace(0, SIDE, 1201)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    grid = np.stack([x.ravel(), y.ravel()]) - np.asarray(query.origin)[:, None]
    height = np.cos(reports.frequencies[:, 0].T @ grid - np.angle(reports.projections[0])[:, None]).sum(
        axis=0
    )
    agree = grid[:, height > 2 - 1e-3]
    step = axis[1]
    for place in agree.T:
        assert np.hypot(*(offset - place[:, None])).min() < 30 * step
    for place in offset.T:
        if np.abs(place).max() < SIDE / 2 - 2 * step:
            assert np.hypot(*(agree - place[:, None])).min() < step


def test_their_number_is_the_areas_share_of_lattice_cells():
    query, _, reports = devices(2, h=100.0, number=300)
    found = crossings(reports, query, query.low, query.high)
    density = np.abs(np.linalg.det(np.moveaxis(reports.frequencies, 1, 0))) / (2 * math.pi) ** 2
    expected = density * SIDE**2
    counted = np.bincount(found.device, minlength=300)
    # The lattice's points in a box differ from its area's share by the box's edge.
    edge = 4 * SIDE * np.linalg.norm(reports.frequencies, axis=0).max(axis=1) / (2 * math.pi)
    assert (np.abs(counted - expected) < 3 + edge).all()
    assert counted.sum() == pytest.approx(expected.sum(), rel=0.03)


def test_blocks_change_nothing(monkeypatch):
    query, _, reports = devices(2, h=200.0, number=40)
    whole = crossings(reports, query, query.low, query.high)
    monkeypatch.setattr("mapveil.random_features.crossings._BLOCK", 500)
    parts = crossings(reports, query, query.low, query.high)
    np.testing.assert_array_equal(parts.places, whole.places)
    np.testing.assert_array_equal(parts.device, whole.device)


def test_too_many_or_parallel_features_are_said_to_be_countless():
    query, _, reports = devices(2, h=1.0, number=5)
    assert crossings(reports, query, query.low, query.high).countless.all()
    query, _, reports = devices(2, number=4)
    frequencies = reports.frequencies.copy()
    frequencies[:, 0, 1] = 2 * frequencies[:, 0, 0]
    frequencies[:, 1, 0] = 0.0
    found = crossings(reports._replace(frequencies=frequencies), query, query.low, query.high)
    assert found.countless.tolist() == [True, True, False, False]
    assert set(found.device.tolist()) == {2, 3}


def test_nobody_has_none():
    query, _, reports = devices(2, number=1)
    none = reports._replace(frequencies=reports.frequencies[:, :0], projections=reports.projections[:0])
    found = crossings(none, query, query.low, query.high)
    assert found.places.shape == (2, 0)
    assert found.device.size == found.countless.size == 0


def test_one_feature_in_the_plane_leaves_lines():
    query, _, reports = devices(1)
    with pytest.raises(ParameterError, match="the number of axes, 2, got 1"):
        crossings(reports, query, query.low, query.high)
