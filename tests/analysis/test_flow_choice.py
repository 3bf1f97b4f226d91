"""What is chosen for flows by their number and epsilon."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis.flows import best_depth, best_randomizer
from mapveil.analysis.pair_channel import flow_deviation
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain

EPSILONS = st.fractions(Fraction(1, 100), 12, max_denominator=100)


@given(trips=st.integers(1, 10**9), epsilon=EPSILONS)
def test_the_depth_is_nearest_the_formula(trips: int, epsilon: Fraction) -> None:
    grown = math.exp(epsilon / 2)
    cells = math.sqrt(trips) / (2 * 4 * grown / (grown - 1) ** 2)
    wanted = math.log(cells, 4)
    found = best_depth(trips, epsilon)
    assert 1 <= found <= 6
    assert abs(found - min(max(wanted, 1), 6)) <= 0.5 + 1e-9


@given(trips=st.integers(1, 10**8), epsilon=EPSILONS)
def test_more_trips_or_epsilon_never_make_it_coarser(trips: int, epsilon: Fraction) -> None:
    assert best_depth(4 * trips, epsilon) >= best_depth(trips, epsilon) <= best_depth(trips, 2 * epsilon)


def test_the_deviation_it_rests_on_is_about_that_of_hadamard_responses() -> None:
    grid = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=7, columns=9)
    randomizer = HadamardResponse(epsilon=1).on(Domain(grid))
    found = flow_deviation(randomizer, np.full((63, 63), 1 / 63**2), 10_000)
    said = 100 * 4 * math.e / (math.e - 1) ** 2
    assert said * 0.8 < np.median(found) < said * 1.4


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(3), Fraction(6)])
def test_the_randomizer_with_the_smaller_deviation_is_taken(epsilon: Fraction) -> None:
    for sites in (2, 1000 if epsilon < 6 else 4000):
        half = float(epsilon) / 2
        generalized = (sites - 2 + math.exp(half)) / (math.exp(half) - 1) ** 2
        others = 4 * math.exp(half) / (math.exp(half) - 1) ** 2
        assert best_randomizer(sites, epsilon) == ("grr" if generalized < others else "hr")


def test_on_few_cells_the_deviation_agrees() -> None:
    domain = Domain(mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=2))
    even = np.full((4, 4), 1 / 16)
    found = [
        float(np.median(flow_deviation(kind(epsilon=1).on(domain), even, 100)))
        for kind in (GeneralizedRandomizedResponse, HadamardResponse)
    ]
    assert found[0] < found[1]
    assert best_randomizer(4, Fraction(2)) == "grr"


@pytest.mark.parametrize(("trips", "epsilon"), [(0, Fraction(1)), (10, Fraction(0)), (10, Fraction(-1))])
def test_what_is_refused(trips: int, epsilon: Fraction) -> None:
    with pytest.raises(ParameterError, match=r"must be|expected"):
        best_depth(trips, epsilon)
