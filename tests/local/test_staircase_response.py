"""The staircase itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.randomizer import Tally
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.staircase_response import group_number

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def scattered(sites: int, seed: int = 0) -> Domain:
    generator = np.random.default_rng(seed)
    lon = np.clip(generator.normal(-73.965, 0.02, sites), -74.02, -73.91)
    lat = np.clip(generator.normal(40.76, 0.02, sites), 40.70, 40.82)
    return Domain(mv.Places(lon, lat, REGION))


@pytest.mark.parametrize(("epsilon", "groups"), [(Fraction(1, 2), 5), (1, 3), (2, 2), (4, 2), (10, 2)])
def test_lemma_3_4_gives_few_groups_and_two_in_the_end(epsilon: Fraction, groups: int) -> None:
    assert group_number(Fraction(epsilon), 3202) == groups


def test_two_groups_are_generalized_randomized_response() -> None:
    domain = scattered(40)
    stairs = StaircaseResponse(epsilon=2, groups=2).on(domain)
    plain = GeneralizedRandomizedResponse(epsilon=2).on(domain)
    np.testing.assert_allclose(stairs.transition_matrix(), plain.transition_matrix(), rtol=1e-9)


def test_nearer_sites_are_likelier_in_even_steps() -> None:
    domain = scattered(60)
    randomizer = StaircaseResponse(epsilon=1, groups=4).on(domain)
    matrix, codes = randomizer.transition_matrix(), domain.codes
    for x in range(0, 60, 7):
        levels = np.unique(matrix[x].round(14))
        assert len(levels) <= 4
        along = matrix[x][codes.site]
        peak = int(codes.rank[x])
        assert along.argmax() == peak
        # Sites that share more bits are never less likely.
        shared = [codes.bits - int(codes.code[peak] ^ code).bit_length() for code in codes.code]
        order = np.argsort(shared, kind="stable")
        assert (np.diff(along[order]) >= -1e-15).all()
        if len(levels) > 2:
            np.testing.assert_allclose(np.diff(levels, 2), 0, atol=levels.max() * 0.6)
    c = float(randomizer.steps.ratio)
    assert matrix[0].max() / matrix[0].min() == pytest.approx(c, rel=1e-9)


@pytest.mark.parametrize("thresholds", [(46, 30, 2), "46,30,2", [46, 30, 2]], ids=str)
def test_published_thresholds_are_taken(thresholds) -> None:
    mechanism = StaircaseResponse(epsilon=1, thresholds=thresholds)
    randomizer = mechanism.on(scattered(50))
    assert randomizer.thresholds == (46, 30, 2)
    assert type(mechanism)(**mechanism.parameters()) == mechanism


def test_coarse_groups_have_no_inverse_and_the_message_has_the_way_out() -> None:
    domain = scattered(50)
    randomizer = StaircaseResponse(epsilon=1, thresholds=(24, 20, 2)).on(domain)
    tally = Tally(np.ones(50, dtype=np.int64), 50)
    for call in (randomizer.invert, lambda tally: randomizer.covariance(np.full(50, 0.02))):
        with pytest.raises(ParameterError, match=r"singular; use the estimator 'smoothed-em', or 46"):
            call(tally)
    heat = StaircaseResponse(epsilon=1, thresholds=(24, 20, 2)).estimate(tally, randomizer)
    assert heat.values.sum() == pytest.approx(50)


@pytest.mark.parametrize(
    "options", [{"groups": 1}, {"groups": 2.5}, {"thresholds": "a,b"}, {"estimator": "magic"}], ids=str
)
def test_senseless_parameters_are_refused(options: dict) -> None:
    with pytest.raises(ParameterError, match=r"must be|expected"):
        StaircaseResponse(epsilon=1, **options)


def test_the_inverse_of_a_large_domain_solves_the_equations() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=8))
    randomizer = StaircaseResponse(epsilon=1, groups=4).on(domain)
    p = np.random.default_rng(0).dirichlet(np.full(domain.size, 0.3))
    solved = randomizer.invert(Tally(randomizer.forward(p) * 1e9, 10**9))
    np.testing.assert_allclose(solved, p, atol=1e-9)
