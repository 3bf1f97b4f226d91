"""The client half: equation 7, its compact form, means over places, and folding."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import InputError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import KERNELS
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Visits, client_reports, fold, grid_reports
from mapveil_client.randomness.random import Randomness


def equation_7(units, place, query):
    """Feature by feature and point by point."""
    values = []
    for point in query.grid.points().T:
        total = 0.0
        for unit in units.T:
            omega = unit / np.asarray(query.bandwidth)
            at, to = omega @ point, omega @ place
            total += math.cos(at) * math.cos(to) + math.sin(at) * math.sin(to)
        values.append(total)
    return np.reshape(values, query.grid.count)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("features", [1, 3])
def test_evaluations_are_equation_7(make_query, dimension, features):
    query = make_query(dimension, features)
    rng = Randomness(2)
    units = unit_frequencies(2, features, query.law, dimension, rng)
    places = rng.generator().uniform(-30, 30, (dimension, 2))
    made = grid_reports(client_reports(units, Visits(places), query), query)
    assert made.shape == (2, *query.grid.count)
    for device in range(2):
        wanted = equation_7(units[:, device], places[:, device], query)
        np.testing.assert_allclose(made[device], wanted, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_surface_is_1_times_b_at_the_place(make_query, kernel):
    query = make_query(2, 4, kernel, grid=False)
    place = np.array([[7.0], [11.0]])
    here = EvenGrid((7.0, 11.0), (1.0, 1.0), (1, 1))
    units = unit_frequencies(1, 4, query.law, 2, Randomness(3))
    reports = client_reports(units, Visits(place), query)
    np.testing.assert_allclose(np.abs(reports.projections), 1.0)
    asked = dataclasses.replace(query, grid=here)
    np.testing.assert_allclose(grid_reports(client_reports(units, Visits(place), asked), asked), 4.0)


def test_folding_leaves_the_evaluations_and_hides_the_rest(make_query):
    query = make_query(2, 2, "laplace")  # heavy tails: most wavelengths are shorter than the grid's step
    units = unit_frequencies(200, 2, query.law, 2, Randomness(5)) * 3
    visits = Visits(Randomness(6).generator().uniform(0, 40, (2, 200)))
    reports = client_reports(units, visits, query)
    band = math.pi / np.abs(query.grid.step)
    assert (np.abs(reports.frequencies) <= band[:, None, None] * (1 + 1e-12)).all()
    bare = client_reports(units, visits, dataclasses.replace(query, grid=None))
    moved = dataclasses.replace(query, grid=None)
    assert (np.abs(bare.frequencies) > band[:, None, None]).any()
    shift = np.exp(-1j * np.einsum("dnb,d->nb", bare.frequencies, np.subtract(query.origin, moved.origin)))
    there = bare._replace(projections=bare.projections * shift)
    np.testing.assert_allclose(grid_reports(reports, query), grid_reports(there, query), atol=1e-7)


def test_fold_is_idempotent_and_moves_by_whole_periods():
    grid = EvenGrid((0.0, 0.0), (2.0, -0.5), (4, 4))
    before = Randomness(1).generator().normal(0, 50, (2, 100, 3))
    after = fold(before.copy(), grid)
    np.testing.assert_array_equal(fold(after.copy(), grid), after)
    turns = (before - after) / (2 * math.pi / np.abs(np.asarray(grid.step)))[:, None, None]
    np.testing.assert_allclose(turns, np.rint(turns), atol=1e-9)


def test_a_mean_over_places_is_the_mean_of_their_reports(make_query):
    query = make_query(2, 2)
    places = Randomness(4).generator().uniform(0, 40, (2, 5))
    weights = np.array([1.0, 3.0, 2.0, 0.5, 0.5])
    units = unit_frequencies(2, 2, query.law, 2, Randomness(5))
    made = client_reports(units, Visits(places, np.array([0, 3, 5]), weights), query)
    for device, mine in ((0, slice(0, 3)), (1, slice(3, 5))):
        each = [
            client_reports(units[:, [device]], Visits(places[:, [at]]), query).projections[0]
            for at in range(5)[mine]
        ]
        wanted = np.average(each, axis=0, weights=weights[mine])
        np.testing.assert_allclose(made.projections[device], wanted)
    assert (np.abs(made.projections) < 1).all()
    alike = client_reports(units, Visits(places, np.array([0, 3, 5])), query)
    even = client_reports(units, Visits(places, np.array([0, 3, 5]), np.full(5, 7.0)), query)
    np.testing.assert_allclose(alike.projections, even.projections)


@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.integers(-3, 3))
def test_places_of_one_class_cannot_be_told_apart(x, y, turns):
    # Lemma 2: along the frequency by whole periods, and anywhere across it.
    query = Query((100.0, 100.0), (-1e4, -1e4), (1e4, 1e4))
    units = unit_frequencies(1, 1, query.law, 2, Randomness(9))
    omega = units[:, 0, 0] / 100.0
    across = np.array([-omega[1], omega[0]])
    other = (
        np.array([x, y])
        + turns * 2 * math.pi / (omega @ omega) * omega
        + 977.0 * across / np.linalg.norm(across)
    )
    first = client_reports(units, Visits(np.array([[x], [y]])), query)
    second = client_reports(units, Visits(other[:, None]), query)
    np.testing.assert_allclose(first.projections, second.projections, atol=1e-8)
    np.testing.assert_array_equal(first.frequencies, second.frequencies)


def test_a_moving_user_moves_every_band_alike(make_query):
    query = make_query(2, 1)
    units = unit_frequencies(1, 1, query.law, 2, Randomness(9))
    start, move = np.array([[3.0], [8.0]]), np.array([[4.0], [-3.0]])
    before = client_reports(units, Visits(start), query)
    after = client_reports(units, Visits(start + move), query)
    np.testing.assert_array_equal(before.frequencies, after.frequencies)
    turn = after.projections / before.projections
    omega = units[:, 0, 0] / np.asarray(query.bandwidth)
    np.testing.assert_allclose(turn[0, 0], np.exp(1j * omega @ move[:, 0]))


def test_rescaling_is_asking_again_with_the_same_frequencies(make_query):
    query = make_query(2, 1, grid=False)
    wider = dataclasses.replace(query, bandwidth=(15.0, 15.0))
    units = unit_frequencies(1, 1, query.law, 2, Randomness(9))
    visits = Visits(np.array([[3.0], [8.0]]))
    first, second = (client_reports(units, visits, each).frequencies for each in (query, wider))
    np.testing.assert_allclose(first, second * 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_place_that_is_no_number_is_refused(make_query, bad):
    query = make_query(2, 1)
    units = unit_frequencies(2, 1, query.law, 2, Randomness(1))
    with pytest.raises(InputError, match="location must be a finite number"):
        client_reports(units, Visits(np.array([[1.0, bad], [1.0, 2.0]])), query)
    with pytest.raises(InputError, match="frequencies of shape"):
        client_reports(units, Visits(np.zeros((2, 3))), query)


def test_a_query_without_a_grid_has_no_grid_form(make_query, make_reports):
    query = make_query(2, 1, grid=False)
    with pytest.raises(InputError, match="no grid"):
        grid_reports(make_reports(query, 2)[0], query)


def test_jittered_visits_share_an_offset_in_a_square_of_a_device_only():
    places = np.array([[10.0, 80.0, 110.0, 20.0], [5.0, 95.0, 5.0, 5.0]])
    visits = Visits(places, np.array([0, 3, 4])).jittered((0.0, 0.0), 100.0, Randomness(1))
    assert np.unique(visits.places.round(6), axis=1).shape == (2, 3)
    np.testing.assert_array_equal(visits.places[:, 0], visits.places[:, 1])
    alone = Visits(places).jittered((0.0, 0.0), 100.0, Randomness(1)).places
    assert np.unique(alone.round(6), axis=1).shape == (2, 4)
    assert Visits(places).jittered((0.0, 0.0), 0.0, Randomness(1)).places is places
