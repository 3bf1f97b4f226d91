"""The relaxed notions of Table 1 of Wang et al. (2022)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil_client.epsilon import keeps
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.planar_laplace import distances_m
from mapveil_client.local.random_sets import ONE
from mapveil_client.randomness.random import Randomness
from reproductions.wang.relaxed import (
    InputDiscriminativeRandomizer,
    condensed_randomizer,
    geo_randomizer,
    greatest_confidence,
    level_chances,
)

DOMAIN = Domain(mv.Grid(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), rows=3, columns=5))


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
    matrix, distance = randomizer.transition_matrix(), distances_m(DOMAIN)
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
    with pytest.raises(ParameterError, match="one for each"):
        InputDiscriminativeRandomizer(DOMAIN, budgets[:3])


def test_one_level_of_budgets_is_optimized_unary_encoding() -> None:
    (chance,) = level_chances([Fraction(1)], [10])
    assert chance / ONE == pytest.approx(1 / (np.e + 1), abs=1e-8)
