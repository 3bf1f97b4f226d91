"""Servers with a prior: what they expect is what they get, and what each of them gains."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from mapveil.attacks.bayesian_server import (
    Walk,
    blind,
    devices_at,
    first_features,
    listed,
    one_report,
    walking,
)
from mapveil.random_features.posterior import PriorCells, blind_error, posterior, simulated_devices
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness

SIDE = 12_000.0
QUERY = Query((400.0, 400.0), (0.0, 0.0), (SIDE, SIDE))


def skewed_prior(cells=24, seed=1, part=1.0):
    middle = (np.arange(cells) + 0.5) * SIDE / cells
    x, y = np.meshgrid(middle, middle)
    mass = np.random.default_rng(seed).pareto(2.5, cells**2) + 0.05
    mass[np.random.default_rng(seed).uniform(size=mass.size) > part] = 0
    return PriorCells(np.stack([x.ravel(), y.ravel()]), (SIDE / cells,) * 2, mass / mass.sum())


def asked(features, h=400.0):
    return dataclasses.replace(QUERY, features=features, bandwidth=(h, h))


@pytest.mark.parametrize(("features", "jitter_m"), [(1, 0.0), (2, 0.0), (2, 300.0), (3, 300.0)])
def test_a_server_whose_prior_is_true_is_as_far_off_as_it_expects(features, jitter_m):
    prior, query = skewed_prior(), asked(features)
    drawn = simulated_devices(query, prior, 800, Randomness(1), jitter_m=jitter_m)
    found = one_report(drawn, query, prior, jitter_m=jitter_m)
    assert found.error_m == pytest.approx(found.expected_m, rel=0.12)
    assert found.places < 24**2
    # One that holds the wrong prior names fewer cells right.
    reversed_prior = prior._replace(probability=prior.probability[::-1].copy())
    wrong = one_report(drawn, query, reversed_prior, jitter_m=jitter_m)
    assert wrong.right < found.right * (1 if features > 2 else 0.6)


def test_blind_is_the_middle_of_the_prior():
    prior = skewed_prior()
    drawn = simulated_devices(QUERY, prior, 4000, Randomness(2))
    found = blind(drawn, prior)
    assert found.expected_m == pytest.approx(blind_error(prior), rel=1e-6)
    assert found.error_m == pytest.approx(found.expected_m, rel=0.05)
    assert found.right == pytest.approx(prior.probability.max(), abs=0.02)
    entropy = stats.entropy(prior.probability)
    assert found.places == pytest.approx(math.exp(entropy), rel=1e-9)


def test_three_features_find_everybody_and_a_second_set_does_with_two():
    prior, four = skewed_prior(), asked(4)
    drawn = simulated_devices(four, prior, 200, Randomness(3))
    by_features = {b: one_report(first_features(drawn, b), asked(b), prior) for b in (1, 2, 3, 4)}
    assert by_features[3] == by_features[4]
    assert (by_features[3].error_m, by_features[3].right) == (0.0, 1.0)
    assert by_features[3].places == pytest.approx(1)
    assert by_features[1].right < 0.2 < by_features[2].right < 1
    assert by_features[1].twentieth_m > by_features[2].twentieth_m


def test_devices_at_given_places_answer_from_there():
    prior = skewed_prior()
    places = np.random.default_rng(1).uniform(0, SIDE, (2, 50))
    made = devices_at(places, prior, asked(3), Randomness(4))
    offset = places - prior.places[:, made.cell]
    assert np.abs(offset).max() <= SIDE / 48 + 1e-9
    assert one_report(made, asked(3), prior).error_m == 0


@pytest.fixture(scope="module")
def walk():
    return Walk(skewed_prior(8, part=0.8), 1100.0)


def transitions(walk):
    """The walk's dense matrix, row by row."""
    size = walk.prior.probability.size
    return walk.onward(np.eye(size))


def test_a_walk_keeps_its_prior(walk):
    made, prior = transitions(walk), walk.prior.probability
    possible = prior > 0
    np.testing.assert_allclose(made[possible].sum(axis=1), 1)
    np.testing.assert_allclose(prior @ made, prior, atol=1e-9)
    flow = prior[:, None] * made
    np.testing.assert_allclose(flow, flow.T, atol=1e-9)  # as many there as back
    assert not made[:, ~possible].any()


def test_steps_are_as_long_as_they_are_said_to_be():
    prior = skewed_prior(24)
    even = prior._replace(probability=np.full(576, 1 / 576))
    walk = Walk(even, 900.0)
    middle = 12 * 24 + 12
    onward = walk.onward(np.eye(576)[[middle]])[0]
    away = even.places - even.places[:, [middle]]
    deviation = np.sqrt(np.square(away) @ onward)
    np.testing.assert_allclose(deviation, 900.0, rtol=0.02)


def test_draws_of_a_walk_follow_its_prior(walk):
    path = walk.draw(6000, 4, Randomness(5))
    prior = walk.prior.probability
    for row in path:
        counts = np.bincount(row, minlength=prior.size)
        kept = prior * 6000 > 5
        expected = np.append(prior[kept], prior[~kept].sum()) * 6000
        seen = np.append(counts[kept], counts[~kept].sum())
        held = expected > 0
        assert not seen[~held].any()
        assert stats.chisquare(seen[held], expected[held]).pvalue > 1e-9
    steps = np.zeros((prior.size, prior.size))
    np.add.at(steps, (path[:-1].ravel(), path[1:].ravel()), 1)
    wanted = prior[:, None] * transitions(walk) * steps.sum()
    large = wanted > 20
    assert stats.chi2.sf(((steps - wanted)[large] ** 2 / wanted[large]).sum(), large.sum()) > 1e-9
    shuffled = (steps + steps.sum() * prior[:, None] * prior) / 2  # a walk that forgets half the time
    assert stats.chi2.sf(((shuffled - wanted)[large] ** 2 / wanted[large]).sum(), large.sum()) < 1e-9


def test_the_filter_is_bayes_rule_over_all_ways(walk):
    prior, query, rng = walk.prior, asked(1, h=900.0), Randomness(6)
    units = unit_frequencies(1, 1, query.law, 2, rng)
    cells = walk.draw(1, 3, rng)[:, 0]
    beliefs = [
        posterior(client_reports(units, Visits(prior.places[:, [cell]]), query), query, prior).weights[0]
        for cell in cells
    ]
    size = prior.probability.size
    likelihood = [
        np.divide(b, prior.probability, out=np.zeros(size), where=prior.probability > 0) for b in beliefs
    ]
    made = transitions(walk)
    wanted = np.einsum(
        "a,a,ab,b,bc,c->c", prior.probability, likelihood[0], made, likelihood[1], made, likelihood[2]
    )
    belief = prior.probability[None] * likelihood[0]
    for part in likelihood[1:]:
        belief = walk.onward(belief) * part
    np.testing.assert_allclose(belief[0] / belief.sum(), wanted / wanted.sum(), atol=1e-12)


def test_one_place_of_a_way_is_one_report():
    prior, query = skewed_prior(), asked(1)
    once = walking(query, Walk(prior, 800.0), Randomness(7), places=1, devices=600)
    plain = one_report(simulated_devices(query, prior, 600, Randomness(8)), query, prior)
    assert once.expected_m == pytest.approx(plain.expected_m, rel=0.05)
    assert once.places == pytest.approx(plain.places, rel=0.2)


def test_places_on_the_way_give_a_device_away():
    walk, query = Walk(skewed_prior(), 600.0), asked(2)
    found = {places: walking(query, walk, Randomness(9), places=places, devices=300) for places in (1, 4, 12)}
    assert found[1].places > found[4].places > found[12].places
    assert found[1].expected_m > found[4].expected_m > found[12].expected_m
    # It is right about how far off it is, so it gained nothing that is not there.
    assert found[12].error_m == pytest.approx(found[12].expected_m, rel=0.2)


def test_a_walk_of_steps_shorter_than_cells_is_refused():
    with pytest.raises(ParameterError, match="at least half a cell"):
        Walk(skewed_prior(), 100.0)
    with pytest.raises(ParameterError, match="at least half a cell"):
        Walk(skewed_prior(), math.nan)
    with pytest.raises(ParameterError, match="at least 1 of each"):
        walking(QUERY, Walk(skewed_prior(), 600.0), Randomness(1), places=0)


PLACES = np.random.default_rng(10).uniform(0, SIDE, (2, 3000))


@pytest.mark.parametrize("features", [1, 2])
def test_a_list_of_exact_places_names_everybody(features):
    found = listed(PLACES, np.arange(200), asked(features), Randomness(11), cell_m=1.0)
    assert (found.error_m, found.right) == (0.0, 1.0)
    assert found.places == pytest.approx(1)


def test_places_that_share_a_point_cannot_be_told_apart_and_need_not_be():
    twice = np.concatenate([PLACES[:, :10], PLACES[:, :10]], axis=1)
    found = listed(twice, np.arange(10), asked(1), Randomness(12), cell_m=1.0)
    assert found.places == pytest.approx(2)
    assert (found.error_m, found.right) == (0.0, 1.0)


@pytest.mark.parametrize("features", [1, 2, 3])
def test_an_offset_blurs_a_list(features):
    query, jitter_m = asked(features), 120.0
    found = listed(PLACES, np.arange(300), query, Randomness(13), cell_m=1.0, jitter_m=jitter_m)
    assert found.error_m == pytest.approx(found.expected_m, rel=0.15)
    if features == 3:
        # The moved place is known: left are the listed places within the offset's law, 4 pi sigma^2 of them and itself.
        density = PLACES.shape[1] / SIDE**2
        entropy_area = 2 * math.pi * math.e * jitter_m**2
        assert 0.5 < found.places / (1 + density * entropy_area) < 1.3
    less = listed(PLACES, np.arange(300), query, Randomness(13), cell_m=1.0, jitter_m=30.0)
    assert less.places < found.places
    assert less.right > found.right


def test_listed_weights_are_bayes_rule():
    from mapveil.attacks.bayesian_server import _agreeing

    query, jitter_m, rng = asked(1), 80.0, Randomness(14)
    units = unit_frequencies(20, 1, query.law, 2, rng)
    reports = client_reports(units, Visits(PLACES[:, :20]), query)
    found = _agreeing(reports, PLACES, query, jitter_m)
    # The oracle: offsets drawn, moved places' phases compared with the report's to a tolerance.
    moved = np.random.default_rng(15).normal(0, jitter_m, (2, 40_000))
    for device in (0, 7, 19):
        omega = reports.frequencies[:, device, 0]
        shift = omega @ moved
        for place in (device, 20, 21, 22):
            at = omega @ (PLACES[:, place] - np.asarray(query.origin))
            apart = at + shift - np.angle(reports.projections[device, 0])
            apart -= 2 * math.pi * np.rint(apart / (2 * math.pi))
            chance = np.mean(np.abs(apart) < 0.05)
            own = shift - 2 * math.pi * np.rint(shift / (2 * math.pi))
            same = np.mean(np.abs(own) < 0.05)
            error = 7 * math.sqrt(max(chance, 1e-4) / 40_000) / same
            assert found[device, place] / found[device, device] == pytest.approx(
                chance / same, abs=error + 0.02
            )
