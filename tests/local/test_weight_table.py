"""Tables of weights and planar Laplace."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.candidate_sets import solve_regular
from mapveil.local.randomizers.planar_laplace import PlanarLaplace, TableRandomizer
from mapveil.local.randomizers.randomizer import Tally
from mapveil_client.epsilon import keeps
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import setting_fingerprint
from mapveil_client.local.planar_laplace import distances_m, exponential_weights, largest_rate, table_ratio
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


def test_tables_are_made_for_what_needs_them_only() -> None:
    """Of 4,096 sites each of them has 134 MB."""

    def tables() -> int:
        return sum(getattr(each, "size", 0) == DOMAIN.size**2 for each in vars(randomizer).values())

    randomizer = PlanarLaplace(epsilon=1).on(DOMAIN)
    randomizer.identity()
    assert tables() == 1
    randomizer.randomize([0], Randomness(1))
    assert tables() == 2
    randomizer.forward(np.full(DOMAIN.size, 1 / DOMAIN.size))
    assert tables() == 3


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_planar_laplace_uses_its_whole_budget(epsilon: Fraction) -> None:
    distance = distances_m(DOMAIN)
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
    weights = exponential_weights(distances_m(DOMAIN), 1e-4)
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
