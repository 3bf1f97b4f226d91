"""The server solves the features from the grid: the compact report shows nothing more."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil_client.errors import InputError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.report import Visits, client_reports, grid_reports
from mapveil_client.randomness.random import Randomness
from tests.random_features.solve_grid import solve_grid


def canonical(reports):
    """Frequencies and projections of one device in an order and sign of their own."""
    frequency, projection = reports.frequencies[:, 0], reports.projections[0]
    sign = np.where(frequency[0] < 0, -1.0, 1.0)
    projection = np.where(sign < 0, projection.conj(), projection)
    order = np.argsort(frequency[0] * sign)
    return (frequency * sign)[:, order], projection[order]


@pytest.mark.parametrize(("dimension", "features"), [(1, 1), (1, 3), (2, 1), (2, 2), (2, 4), (3, 1), (3, 2)])
def test_frequencies_and_phases_come_back_to_the_last_digits(make_query, make_reports, dimension, features):
    query = make_query(dimension, features)
    for seed in range(3):
        reports, _ = make_reports(query, 1, seed)
        evaluations = grid_reports(reports, query)[0]
        solved = solve_grid(evaluations, query)
        for found, wanted in zip(canonical(solved), canonical(reports), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-6)
        np.testing.assert_allclose(grid_reports(solved, query)[0], evaluations, atol=1e-7)


def test_the_mean_over_places_comes_back_with_its_length(make_query):
    query = make_query(2, 2)
    places = Randomness(1).generator().uniform(0, 30, (2, 4))
    units = unit_frequencies(1, 2, query.law, 2, Randomness(2))
    reports = client_reports(units, Visits(places, np.array([0, 4])), query)
    solved = solve_grid(grid_reports(reports, query)[0], query)
    for found, wanted in zip(canonical(solved), canonical(reports), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_a_grid_too_small_for_the_features_is_refused(make_query):
    query = make_query(2, 7)
    with pytest.raises(InputError, match="at least 30 points"):
        solve_grid(np.zeros(query.grid.count), query)
    with pytest.raises(InputError):
        solve_grid(np.zeros(4), make_query(2, 1, grid=False))
