"""Expectation maximisation, accelerated or not."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.candidate_sets import candidate_sums, solve_candidate_sets
from mapveil.local.estimators.estimators import ESTIMATORS, estimate_distribution
from mapveil.local.estimators.maximum_likelihood import maximise_likelihood
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.randomizer import Tally
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.unary_encoding import UnaryEncoding
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def places(sites: int = 30) -> Domain:
    generator = np.random.default_rng(7)
    lon, lat = generator.uniform(-74.0, -73.92, sites), generator.uniform(40.70, 40.82, sites)
    return Domain(mv.Places(lon, lat, REGION))


def a_tally(randomizer, users: int = 20_000, seed: int = 1) -> Tally:
    p = np.random.default_rng(seed).dirichlet(np.full(randomizer.size, 0.4))
    cells = np.random.default_rng(seed + 1).choice(randomizer.size, users, p=p)
    return randomizer.tally(randomizer.randomize(cells, Randomness(seed)))


def log_likelihood(randomizer, tally: Tally, p: np.ndarray) -> float:
    return float(tally.counts @ np.log(p @ randomizer.transition_matrix()))


@pytest.mark.parametrize(
    "mechanism", [GeneralizedRandomizedResponse, StaircaseResponse], ids=lambda m: m.name
)
def test_the_maximum_satisfies_its_conditions(mechanism) -> None:
    randomizer = mechanism(epsilon=2).on(places())
    tally = a_tally(randomizer)
    made = maximise_likelihood(randomizer, tally, tolerance=1e-9, max_steps=100_000)
    p, matrix = made.distribution, randomizer.transition_matrix()
    assert made.converged
    assert p.sum() == pytest.approx(1)
    assert made.log_likelihood == pytest.approx(log_likelihood(randomizer, tally, p), rel=1e-12)
    # Kuhn and Tucker: the gradient is n where there is mass, at most n elsewhere.
    gradient = matrix @ (tally.counts / (p @ matrix)) / tally.reports
    assert gradient.max() < 1 + 1e-4
    np.testing.assert_allclose(gradient[p > 1e-3], 1, atol=1e-3)


def test_acceleration_gets_at_least_as_far_in_fewer_steps() -> None:
    randomizer = StaircaseResponse(epsilon=1).on(places())
    tally = a_tally(randomizer)
    fast = maximise_likelihood(randomizer, tally, tolerance=1e-4, max_steps=20_000)
    matrix, p = randomizer.transition_matrix(), np.full(30, 1 / 30)
    for _ in range(3 * fast.steps):
        p = p * (matrix @ (tally.counts / (p @ matrix))) / tally.reports
    assert fast.log_likelihood > log_likelihood(randomizer, tally, p) - 0.5


def test_the_likelihood_never_falls() -> None:
    randomizer = StaircaseResponse(epsilon=1).on(places())
    tally = a_tally(randomizer)
    reached = [
        log_likelihood(randomizer, tally, maximise_likelihood(randomizer, tally, max_steps=k).distribution)
        for k in (0, 3, 6, 12, 24, 60)
    ]
    assert (np.diff(reached) >= -1e-7).all()


def test_an_end_without_convergence_says_so() -> None:
    randomizer = StaircaseResponse(epsilon=1).on(places())
    assert not maximise_likelihood(randomizer, a_tally(randomizer), max_steps=3).converged


@pytest.mark.parametrize("sites", [2, 3, 5, 16, 31, 32, 57])
def test_candidate_sets_change_nothing_where_the_system_is_regular(sites: int) -> None:
    for mechanism in (GeneralizedRandomizedResponse(epsilon=1), StaircaseResponse(epsilon=1, groups=4)):
        randomizer = mechanism.on(places(sites))
        tally = a_tally(randomizer)
        direct = randomizer.invert(tally)
        np.testing.assert_allclose(solve_candidate_sets(randomizer, tally), direct, atol=1e-9)
        dense = np.linalg.solve(randomizer.transition_matrix().T, tally.counts / tally.reports)
        np.testing.assert_allclose(direct, dense, atol=1e-9)


def test_candidate_sets_are_rows_of_a_hadamard_matrix() -> None:
    sums = candidate_sums(np.eye(5)).T  # rows are sets
    assert sums.shape == (5, 5)
    for i in range(5):
        wanted = [float(bin((i + 1) & y).count("1") % 2 == 0) for y in range(5)]
        assert sums[i].tolist() == wanted


def test_candidate_sets_of_coarse_groups_are_singular_and_the_message_has_the_way_out() -> None:
    randomizer = StaircaseResponse(epsilon=1, thresholds=(24, 20, 2)).on(places())
    with pytest.raises(ParameterError, match=r"singular.*'smoothed-em'"):
        solve_candidate_sets(randomizer, a_tally(randomizer))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_finds_the_truth_in_the_end(estimator: str) -> None:
    randomizer = StaircaseResponse(epsilon=3, groups=3).on(places())
    p = np.random.default_rng(3).dirichlet(np.full(30, 0.4))
    few = Tally(np.rint(randomizer.forward(p) * 1e10).astype(np.int64), 10**10)
    made = estimate_distribution(randomizer, few, estimator).distribution
    assert made.min() >= 0
    assert made.sum() == pytest.approx(1)
    assert np.abs(made - p).sum() < 0.01


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_reports_give_the_even_map(estimator: str) -> None:
    randomizer = StaircaseResponse(epsilon=1).on(places())
    made = estimate_distribution(randomizer, Tally(np.zeros(30, dtype=np.int64), 0), estimator)
    np.testing.assert_allclose(made.distribution, 1 / 30)
    assert made.notes


def test_an_estimator_that_reports_do_not_permit_says_which_do() -> None:
    randomizer = UnaryEncoding(epsilon=1).on(places())
    tally = a_tally(randomizer, users=100)
    for name in ("em", "candidate-sets"):
        with pytest.raises(ParameterError, match=name):
            estimate_distribution(randomizer, tally, name)
    with pytest.raises(ParameterError, match="magic"):
        estimate_distribution(randomizer, tally, "magic")
    with pytest.raises(ParameterError, match="counts"):
        estimate_distribution(randomizer, Tally(np.zeros(3, dtype=np.int64), 1), "simplex")
