"""The server with a prior: its posterior by simulation, its best guess, and what features cost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from mapveil.privacy.random import Randomness
from mapveil.projection.frequencies import unit_frequencies
from mapveil.projection.posterior import PriorCells, best_guess, blind_error, hiding, posterior
from mapveil.projection.query import Query
from mapveil.projection.report import Visits, client_reports

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
        phase = np.tensordot(omega, places, axes=(0, 0)) - np.angle(reports.projections[0, feature])
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
        found = posterior(reports, query, prior)[0]
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
    flat, found = posterior(reports, QUERY, prior), posterior(reports, QUERY, skewed)
    assert not found[:, prior.places[0] < SIDE / 2].any()
    product = flat * skewed.probability
    np.testing.assert_allclose(found, product / product.sum(axis=1, keepdims=True))


def test_the_true_cell_is_always_possible():
    prior, rng = even_prior(32), Randomness(2)
    query = dataclasses.replace(QUERY, features=4)
    at = rng.generator().integers(0, 1024, 50)
    places = prior.places[:, at] + rng.generator().uniform(-0.49, 0.49, (2, 50)) * prior.size[0]
    reports = client_reports(unit_frequencies(50, 4, query.law, 2, rng), Visits(places), query)
    found = posterior(reports, query, prior)
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


def test_features_and_bandwidth_cost_what_the_notes_say():
    prior = even_prior(96)
    one = hiding(dataclasses.replace(QUERY, bandwidth=(375.0, 375.0)), prior)
    three = hiding(dataclasses.replace(QUERY, bandwidth=(375.0, 375.0), features=3), prior)
    five = hiding(dataclasses.replace(QUERY, bandwidth=(375.0, 375.0), features=5), prior)
    assert one.places > 200 > 20 > three.places > five.places >= 1
    assert one.error_m > 0.9 * one.prior_error_m
    assert five.error_m < 0.1 * five.prior_error_m
    assert one.prior_error_m == three.prior_error_m
    assert five.worst_error_m <= five.error_m
    assert one == hiding(dataclasses.replace(QUERY, bandwidth=(375.0, 375.0)), prior)  # the same each time


def test_an_offset_of_its_own_hides_a_device_better():
    prior = even_prior(96)
    query = dataclasses.replace(QUERY, features=4)
    without, with_offset = hiding(query, prior), hiding(query, prior, jitter_m=300.0)
    assert with_offset.places > 2 * without.places
    assert with_offset.error_m > without.error_m


def test_more_cells_do_not_make_a_device_that_is_found_harder_to_find():
    query = dataclasses.replace(QUERY, features=6)
    coarse, fine = hiding(query, even_prior(48)), hiding(query, even_prior(128))
    assert fine.error_m < coarse.error_m * 1.1
