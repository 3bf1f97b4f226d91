"""The server with a prior: its posterior by simulation, its best guess, and what features cost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from mapveil.random_features.posterior import (
    PriorCells,
    best_guess,
    blind_error,
    effective_places,
    expected_error,
    hiding,
    posterior,
    simulated_devices,
)
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness

SIDE = 12_000.0


def even_prior(cells):
    middle = (np.arange(cells) + 0.5) * SIDE / cells
    x, y = np.meshgrid(middle, middle)
    return PriorCells(np.stack([x.ravel(), y.ravel()]), (SIDE / cells,) * 2, np.full(cells**2, cells**-2.0))


QUERY = Query((400.0, 400.0), (0.0, 0.0), (SIDE, SIDE))


def by_simulation(reports, query, prior, draws, tolerance):
    """Part of uniform places of each cell whose phases come out as reported, to a tolerance."""
    rng = np.random.default_rng(5)
    inside = rng.uniform(-0.5, 0.5, (2, draws, 1)) * np.asarray(prior.size)[:, None, None]
    places = prior.places[:, None, :] + inside - np.asarray(query.origin)[:, None, None]
    held = np.ones(places.shape[1:], dtype=bool)
    for feature in range(query.features):
        omega = reports.frequencies[:, 0, feature]
        phase = omega[0] * places[0] + omega[1] * places[1] - np.angle(reports.projections[0, feature])
        phase -= 2 * math.pi * np.rint(phase / (2 * math.pi))
        held &= np.abs(phase) < tolerance
    weights = held.mean(axis=0) * prior.probability
    return weights / weights.sum()


@pytest.mark.parametrize(("cells", "h"), [(16, 400.0), (24, 400.0), (20, 900.0)])
def test_one_features_posterior_is_what_a_simulation_finds(cells, h):
    prior, query = even_prior(cells), dataclasses.replace(QUERY, bandwidth=(h, h))
    for seed in range(3):
        rng = Randomness(seed)
        place = rng.generator().uniform(0, SIDE, (2, 1))
        reports = client_reports(unit_frequencies(1, 1, query.law, 2, rng), Visits(place), query)
        found = posterior(reports, query, prior).weights[0]
        wanted = by_simulation(reports, query, prior, 8000, 0.02)
        assert found.sum() == pytest.approx(1)
        # Half the summed difference of a cell's simulated share is at most a few per cent here.
        assert np.abs(found - wanted).sum() / 2 < 0.06
        assert np.abs(prior.probability - wanted).sum() / 2 > 0.06


def test_the_prior_weighs_in_and_impossible_cells_stay_so():
    prior = even_prior(20)
    probability = np.random.default_rng(1).uniform(0, 1, 400) * (prior.places[0] > SIDE / 2)
    skewed = prior._replace(probability=probability / probability.sum())
    rng = Randomness(1)
    reports = client_reports(
        unit_frequencies(4, 1, QUERY.law, 2, rng), Visits(np.full((2, 4), 0.75 * SIDE)), QUERY
    )
    flat, found = posterior(reports, QUERY, prior).weights, posterior(reports, QUERY, skewed).weights
    assert not found[:, prior.places[0] < SIDE / 2].any()
    product = flat * skewed.probability
    np.testing.assert_allclose(found, product / product.sum(axis=1, keepdims=True))


def test_the_true_cell_is_always_possible():
    prior, rng = even_prior(32), Randomness(2)
    query = dataclasses.replace(QUERY, features=4)
    at = rng.generator().integers(0, 1024, 50)
    places = prior.places[:, at] + rng.generator().uniform(-0.49, 0.49, (2, 50)) * prior.size[0]
    reports = client_reports(unit_frequencies(50, 4, query.law, 2, rng), Visits(places), query)
    found = posterior(reports, query, prior).weights
    assert (found[np.arange(50), at] > 0).all()


def test_the_best_guess_beats_all_others():
    places = np.random.default_rng(3).uniform(0, 100, (2, 200))
    weights = np.random.default_rng(4).dirichlet(np.full(200, 0.05), 6)
    guess = best_guess(weights, places)
    for at in range(6):

        def expected(place, at=at):
            return weights[at] @ np.hypot(*(places - place[:, None]))

        least = min(expected(places[:, k]) for k in range(200))
        assert expected(guess[at]) <= least * 1.02
        assert expected(guess[at]) <= expected(weights[at] @ places.T) * (1 + 1e-9)


def test_a_blind_guess_is_the_middle_of_a_square():
    # The mean distance to the middle of a square of side 1: (sqrt 2 + ln(1 + sqrt 2)) / 6.
    wanted = (math.sqrt(2) + math.log(1 + math.sqrt(2))) / 6 * SIDE
    assert blind_error(even_prior(64)) == pytest.approx(wanted, rel=2e-3)


def of_features(features, h=375.0, **options):
    return hiding(
        dataclasses.replace(QUERY, bandwidth=(h, h), features=features), even_prior(96), devices=96, **options
    )


def test_one_feature_leaves_bands_two_leave_points_and_three_the_place():
    one, two, three = (of_features(features) for features in (1, 2, 3))
    assert one.places > 400 > 30 > two.places > 5
    assert one.error_m > 0.95 * one.prior_error_m
    assert 0.8 * two.prior_error_m < two.error_m < 0.98 * two.prior_error_m
    assert (
        two.worst_error_m < 0.7 * two.prior_error_m
    )  # wavelengths so long that they hardly cross in the region
    assert (three.error_m, three.places) == (0.0, pytest.approx(1))
    assert one.prior_error_m == two.prior_error_m == three.prior_error_m
    assert one == of_features(1)  # the same each time


def test_wide_bandwidths_hide_less():
    for features in (1, 2):
        narrow, wide = of_features(features, h=100.0), of_features(features, h=800.0)
        assert narrow.places > 3 * wide.places
        assert narrow.error_m > wide.error_m


def test_a_server_that_does_not_see_where_features_cross_needs_five():
    # The bands of three features, each compared with a cell by itself, still leave a few cells.
    three, five = (of_features(features, cellwise=True) for features in (3, 5))
    assert 1.5 < three.places < 5
    assert three.error_m > 0.1 * three.prior_error_m
    assert five.error_m < 0.05 * five.prior_error_m


@pytest.mark.parametrize(("features", "jitter_m"), [(1, 0.0), (1, 200.0), (2, 0.0), (2, 200.0), (3, 200.0)])
def test_the_posterior_is_calibrated(features, jitter_m):
    # Of devices drawn from the prior the part in the likeliest cells that hold a mass q is q.
    prior = even_prior(48)
    skew = np.random.default_rng(1).pareto(1.5, 48**2)
    prior = prior._replace(probability=skew / skew.sum())
    query = dataclasses.replace(QUERY, bandwidth=(500.0, 500.0), features=features)
    drawn = simulated_devices(query, prior, 600, Randomness(3), jitter_m=jitter_m)
    found = posterior(drawn.reports, query, prior, jitter_m=jitter_m)
    rows = np.arange(600)
    mine = found.weights[rows, drawn.cell]
    # The chance of the true cell, and of a cell drawn from the posterior, have one law: compare their means.
    mean, square = np.square(found.weights).sum(axis=1), (found.weights**3).sum(axis=1)
    error = math.sqrt(np.maximum(square - mean**2, 0).sum()) / 600
    assert abs(mine.mean() - mean.mean()) < max(6 * error, 1e-3)
    away = np.linalg.norm(best_guess(found.weights, prior.places) - prior.places[:, drawn.cell].T, axis=1)
    expected = expected_error(found.weights, 0.0, prior)
    assert abs(away.mean() - expected.mean()) < max(6 * away.std() / math.sqrt(600), 1.0)
    if jitter_m == 0:
        # A server that takes the wavelengths for half as long is wrong, and this test sees it.
        wrong = posterior(
            drawn.reports._replace(frequencies=drawn.reports.frequencies * 2), query, prior
        ).weights
        assert abs(wrong[rows, drawn.cell].mean() - np.square(wrong).sum(axis=1).mean()) > 6 * error


def test_two_features_leave_what_a_simulation_finds():
    prior, query = even_prior(12), dataclasses.replace(QUERY, bandwidth=(400.0, 400.0), features=2)
    for seed in range(3):
        rng = Randomness(seed)
        place = rng.generator().uniform(0, SIDE, (2, 1))
        reports = client_reports(unit_frequencies(1, 2, query.law, 2, rng), Visits(place), query)
        found = posterior(reports, query, prior).weights[0]
        wanted = by_simulation(reports, query, prior, 40_000, 0.05)
        assert np.abs(found - wanted).sum() / 2 < 0.2
        assert (found > 0).sum() < 100
        assert wanted[found == 0].sum() < 0.2


def test_wavelengths_too_short_to_cross_countably_tell_no_more_than_bands():
    prior = even_prior(24)
    query = dataclasses.replace(QUERY, bandwidth=(0.5, 0.5), features=2)
    drawn = simulated_devices(query, prior, 3, Randomness(1))
    found = posterior(drawn.reports, query, prior)
    np.testing.assert_allclose(found.weights, prior.probability[0], rtol=0.05)
    np.testing.assert_allclose(found.spread, prior.spread)


def test_a_prior_that_rules_the_truth_out_learns_nothing():
    prior = even_prior(24)
    probability = (prior.places[0] > SIDE / 2) / 288.0
    wrong = prior._replace(probability=probability)
    query = dataclasses.replace(QUERY, features=3)
    reports = client_reports(
        unit_frequencies(1, 3, query.law, 2, Randomness(1)), Visits(np.full((2, 1), 0.2 * SIDE)), query
    )
    np.testing.assert_array_equal(posterior(reports, query, wrong).weights[0], probability)


def test_a_prior_need_not_fill_its_box():
    whole, query = even_prior(24), dataclasses.replace(QUERY, features=2)
    kept = np.hypot(*(whole.places - SIDE / 2)) < SIDE / 2
    part = PriorCells(whole.places[:, kept], whole.size, np.full(kept.sum(), 1 / kept.sum()))
    drawn = simulated_devices(query, part, 20, Randomness(4))
    inside = posterior(drawn.reports, query, part).weights
    everywhere = posterior(drawn.reports, query, whole).weights[:, kept]
    np.testing.assert_allclose(inside, everywhere / everywhere.sum(axis=1, keepdims=True), atol=1e-12)


def test_an_offset_of_its_own_hides_a_device_better():
    prior = even_prior(96)
    query = dataclasses.replace(QUERY, features=4)
    without, with_offset = hiding(query, prior), hiding(query, prior, jitter_m=300.0)
    assert with_offset.places > 20 * without.places
    assert without.error_m == 0
    # The offset is all that is left: its mean length is sqrt(pi / 2) of its deviation.
    assert with_offset.error_m == pytest.approx(math.sqrt(math.pi / 2) * 300, rel=0.1)
    little = hiding(query, prior, jitter_m=20.0)
    assert little.error_m == pytest.approx(math.sqrt(math.pi / 2) * 20, rel=0.1)


def test_more_cells_do_not_make_a_device_that_is_found_harder_to_find():
    query = dataclasses.replace(QUERY, features=6)
    for cellwise in (False, True):
        coarse, fine = (
            hiding(query, even_prior(cells), devices=48, cellwise=cellwise) for cells in (48, 128)
        )
        assert fine.error_m <= coarse.error_m * 1.1


def test_effective_places_of_equal_cells_are_their_number():
    weights = np.zeros((2, 10))
    weights[0, :4], weights[1, 7] = 0.25, 1.0
    np.testing.assert_allclose(effective_places(weights), [4.0, 1.0])
