"""The server half: fast sums against the direct one, both forms of a report, and what the sum tends to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mapveil.random_features.exact_density import direct_density
from mapveil.random_features.surface import evaluate_on_points
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import KERNELS
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports, Visits, client_reports, grid_reports
from mapveil_client.randomness.random import Randomness
from tests.random_features.direct_surface import direct_surface, kernel_sum

RELATIVE = 1e-6


def relative(found, wanted):
    return np.sqrt(np.mean(np.square(found - wanted)) / np.mean(np.square(wanted)))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_the_transform_is_the_direct_sum(make_query, make_reports, kernel, dimension):
    query = make_query(dimension, 2, kernel)
    reports, _ = make_reports(query, 700)
    found = kernel_sum(reports, query)
    wanted = direct_surface(reports, query, query.grid.points()).reshape(query.grid.count)
    assert relative(found, wanted) < RELATIVE / 10
    assert np.abs(found - wanted).max() < RELATIVE * np.sqrt(np.mean(wanted**2))


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_either_form_of_report_gives_the_same_surface(make_query, make_reports, dimension):
    query = make_query(dimension, 3)
    reports, _ = make_reports(query, 40)
    grid = grid_reports(reports, query).sum(axis=0) / query.features
    assert relative(kernel_sum(reports, query), grid) < RELATIVE
    assert query.kernel_integral == pytest.approx(query.law.integral(dimension) * math.prod(query.bandwidth))


def test_many_devices_on_a_large_grid_stay_within_the_tolerance():
    grid = EvenGrid((0.0, 0.0), (20.0, -20.0), (512, 512))
    query = Query((60.0, 60.0), (0.0, -10220.0), (10220.0, 0.0), 1, "gaussian", grid)
    rng = Randomness(1)
    places = rng.generator().uniform(-10220, 0, (2, 120_000)) * np.array([[-1.0], [1.0]])
    reports = client_reports(unit_frequencies(120_000, 1, query.law, 2, rng), Visits(places), query)
    some = grid.points()[:, :: 512 * 64 + 37]
    wanted = direct_surface(reports, query, some)
    found = kernel_sum(reports, query).reshape(-1)[:: 512 * 64 + 37]
    assert np.abs(found - wanted).max() < RELATIVE * math.sqrt(120_000 / 2)


def test_sums_add_in_any_order_and_nobody_adds_nothing(make_query, make_reports):
    query = make_query(2, 2)
    reports, _ = make_reports(query, 50)
    parts = [
        kernel_sum(Reports(reports.frequencies[:, part], reports.projections[part]), query)
        for part in (slice(30, 50), slice(0, 0), slice(0, 30))
    ]
    np.testing.assert_allclose(sum(parts), kernel_sum(reports, query), atol=1e-6)
    assert not parts[1].any()


def test_any_grid_serves_a_query_without_one(make_query, make_reports):
    query = make_query(2, 2, grid=False)
    reports, _ = make_reports(query, 300)
    grid = EvenGrid((-7.0, 3.0), (1.1, 0.7), (25, 31))
    wanted = direct_surface(reports, query, grid.points()).reshape(grid.count)
    assert relative(kernel_sum(reports, query, grid), wanted) < RELATIVE / 10


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_points_of_no_grid_are_the_direct_sum_too(make_query, make_reports, kernel, dimension, monkeypatch):
    # A low limit, so that the highest frequencies of heavy tails are summed one by one.
    monkeypatch.setattr("mapveil.random_features.surface._WIDEST", 60.0)
    query = make_query(dimension, 2, kernel, grid=False)
    reports, _ = make_reports(query, 200)
    points = Randomness(8).generator().uniform(-20, 60, (dimension, 57))
    found = evaluate_on_points(reports, query, points) / query.features
    assert relative(found, direct_surface(reports, query, points)) < RELATIVE
    one = evaluate_on_points(reports, query, points[:, :1]) / query.features
    np.testing.assert_allclose(one, direct_surface(reports, query, points[:, :1]), atol=1e-4)


def deviations(query, features, factor):
    """Standard errors between the mean surface of many devices at known places and the kernel density."""
    count, rng = 60_000, Randomness(3)
    places = rng.generator().normal(0, 4, (1, count))
    units = unit_frequencies(count, features, query.law, 1, rng) / factor
    found = kernel_sum(client_reports(units, Visits(places), query), query)
    exact = direct_density(places, None, query.grid.points(), query.law, query.bandwidth)
    error = (found - exact) / math.sqrt(count / (2 * features))
    return np.abs(error).max()


@pytest.mark.parametrize("features", [1, 4])
def test_the_sum_tends_to_the_kernel_density_at_the_rate_that_is_noted(make_query, features):
    query = make_query(1, features)
    assert deviations(query, features, 1.0) < 6.2
    assert deviations(query, features, 1.3) > 6.2
    assert deviations(query, features, 0.7) > 6.2
