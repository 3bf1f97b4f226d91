"""Tables of weights, planar Laplace and the relaxed notions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.randomizers.condensed import condensed_randomizer, geo_randomizer, greatest_confidence
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.input_discriminative import InputDiscriminativeRandomizer, level_chances
from mapveil.local.randomizers.planar_laplace import PlanarLaplace
from mapveil.local.randomizers.report import Tally
from mapveil.local.randomizers.weight_table import TableRandomizer, solve_regular
from mapveil_client.epsilon import keeps
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import setting_fingerprint
from mapveil_client.local.planar_laplace import distances_m, exponential_weights, largest_rate, table_ratio
from mapveil_client.local.random_sets import ONE
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
DOMAIN = Domain(mv.Grid(REGION, rows=3, columns=5))


def test_the_ratio_of_a_table_is_exact() -> None:
    weights = np.random.default_rng(0).integers(1, 50, (6, 6))
    rows = [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]
    assert table_ratio(weights) == max(max(c) / min(c) for c in zip(*rows, strict=True))


def test_draws_follow_a_table_at_both_ends_of_its_rows() -> None:
    weights = np.ones((15, 15), dtype=np.int64)
    weights[:, 0], weights[:, 14] = 5, 9
    randomizer = TableRandomizer(DOMAIN, Fraction(3), weights)
    counts = np.bincount(randomizer.randomize(np.full(90_000, 14), Randomness(2)).values, minlength=15)
    expected = 90_000 * weights[14] / weights[14].sum()
    assert (np.square(counts - expected) / expected).sum() < 14 + 6.5 * np.sqrt(28)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_planar_laplace_uses_its_whole_budget(epsilon: Fraction) -> None:
    distance = distances_m(DOMAIN.plane)
    rate = largest_rate(distance, epsilon)
    assert keeps(table_ratio(exponential_weights(distance, rate)), epsilon)
    assert not keeps(table_ratio(exponential_weights(distance, rate * 1.0001)), epsilon)
    randomizer = PlanarLaplace(epsilon=epsilon).on(DOMAIN)
    matrix = randomizer.transition_matrix()
    log = np.log(matrix[7] / matrix[7].max())
    np.testing.assert_allclose(log, -rate * distance[7], atol=1e-6)


def test_planar_laplace_is_named_by_its_epsilon_not_by_the_last_digits_of_its_table() -> None:
    made = PlanarLaplace(epsilon=Fraction(3, 2)).on(DOMAIN)
    assert made.identity() == "planar laplace 3/2"
    assert setting_fingerprint(made) != setting_fingerprint(PlanarLaplace(epsilon=1).on(DOMAIN))
    weights = exponential_weights(distances_m(DOMAIN.plane), 1e-4)
    other = TableRandomizer(DOMAIN, Fraction(3, 2), weights)
    assert setting_fingerprint(made) != setting_fingerprint(other)


def test_a_table_of_too_many_sites_is_refused() -> None:
    with pytest.raises(ParameterError, match="4096 sites at most"):
        PlanarLaplace(epsilon=1).on(Domain(mv.Quadtree(REGION, depth=7)))


def test_a_singular_system_is_an_error_with_the_way_out() -> None:
    weights = np.ones((15, 15), dtype=np.int64)
    randomizer = TableRandomizer(DOMAIN, Fraction(1), weights)
    with pytest.raises(ParameterError, match=r"singular.*'smoothed-em'"):
        randomizer.invert(Tally(np.ones(15, dtype=np.int64), 15))
    np.testing.assert_allclose(solve_regular(2 * np.eye(3), np.array([2.0, 4, 6])), [1, 2, 3])


def test_condensed_ldp_is_as_confident_as_generalized_response_and_keeps_less() -> None:
    epsilon = Fraction(1)
    condensed = condensed_randomizer(DOMAIN, epsilon)
    plain = GeneralizedRandomizedResponse(epsilon=epsilon).on(DOMAIN)
    assert greatest_confidence(condensed.transition_matrix()) == pytest.approx(
        greatest_confidence(plain.transition_matrix()), rel=1e-6
    )
    assert not keeps(condensed.worst_ratio(), epsilon)


def test_geo_indistinguishability_keeps_its_promise_for_the_farthest_too() -> None:
    epsilon = Fraction(2)
    randomizer = geo_randomizer(DOMAIN, epsilon)
    assert keeps(randomizer.worst_ratio(), epsilon)
    matrix, distance = randomizer.transition_matrix(), distances_m(DOMAIN.plane)
    for x in range(15):
        for other in range(15):
            told = np.log(matrix[x] / matrix[other]).max()
            assert told <= float(epsilon) * distance[x, other] / distance.max() + 1e-6


def test_input_discriminative_bits_keep_the_smaller_budget_of_every_pair() -> None:
    epsilon = Fraction(2)
    levels = [Fraction(1), Fraction(8, 5), Fraction(2)]
    budgets = [levels[k % 3] for k in range(15)]
    randomizer = InputDiscriminativeRandomizer(DOMAIN, budgets)
    for x in range(15):
        for other in range(15):
            if x != other:
                held, seen = (randomizer.chances[randomizer._number[site]] for site in (x, other))
                ratio = Fraction(ONE - seen, held)
                assert keeps(ratio, min(budgets[x], budgets[other]))
    assert keeps(randomizer.worst_ratio(), epsilon)
    p = np.random.default_rng(1).dirichlet(np.ones(15))
    cells = np.random.default_rng(2).choice(15, 40_000, p=p)
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(1)))
    truth = np.bincount(cells, minlength=15) / 40_000
    noise = np.sqrt(randomizer.site_noise(truth).variance / 40_000)
    assert (np.abs(randomizer.invert(tally) - truth) < 6 * noise).all()
    with pytest.raises(ParameterError, match="one each"):
        InputDiscriminativeRandomizer(DOMAIN, budgets[:3])


def test_one_level_of_budgets_is_optimized_unary_encoding() -> None:
    (chance,) = level_chances([Fraction(1)], [10])
    assert chance / ONE == pytest.approx(1 / (np.e + 1), abs=1e-8)
