"""Resolution and randomizer of flows, chosen by their number and epsilon: by what the alternatives would have done."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis.flow_design import FlowDesign, best_depth, best_mechanism, deviation_factor
from mapveil.analysis.pair_channel import flow_deviation
from mapveil.analysis.trips import Trips
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain

REGION = mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
EPSILONS = st.fractions(Fraction(1, 20), 12, max_denominator=20)
DESIGNS = st.sampled_from(["default", "mixed", "pair", "ends"])


def gravity_trips(users: int) -> Trips:
    """A trip of each user, from some of forty hubs, the rarer the longer."""
    generator = np.random.default_rng(5)
    hubs = generator.uniform([-8.69, 41.11], [-8.53, 41.21], (40, 2))
    weight = generator.pareto(1.2, 40) + 0.1
    apart = np.linalg.norm(hubs[:, None] - hubs, axis=2)
    pairs = (weight[:, None] * weight * np.exp(-apart / 0.03)).ravel()
    first, second = np.divmod(generator.choice(1600, users, p=pairs / pairs.sum()), 40)
    ends = np.hstack([hubs[first], hubs[second]]) + generator.normal(0, 0.004, (users, 4))
    x, y, u, v = np.clip(ends, [-8.69, 41.11] * 2, [-8.53, 41.21] * 2).T
    return Trips(np.arange(users), x, y, u, v)


def error_at(depth: int, trips: Trips, epsilon: int) -> float:
    """L1 between distributions over pairs of 64 cells, and of 256, in the mean; coarser flows divided evenly."""
    cells, errors = mv.Quadtree(REGION, depth=depth), []
    for seed in (1, 2):
        flows = mv.flows(trips, cells, epsilon=epsilon, most=cells.size**2, rng=seed, account=None)
        made = flows.matrix().toarray() / trips.count
        for fine in (3, 4):
            judged = mv.Quadtree(REGION, depth=fine)
            ends = judged.locate(*trips.ends[:2]), judged.locate(*trips.ends[2:])
            true = np.zeros((judged.size, judged.size))
            np.add.at(true, ends, 1 / trips.count)
            if fine < depth:
                of, found = judged.locate(*cells.centres()), np.zeros_like(true)
                np.add.at(found, (of[:, None], of), made)
            else:
                of = cells.locate(*judged.centres())
                found = made[np.ix_(of, of)] / 16 ** (fine - depth)
            errors.append(np.abs(true - found).sum())
    return float(np.mean(errors))


@pytest.mark.parametrize(("users", "epsilon", "cells"), [(10_000, 1, 64), (1000, 3, 64)])
def test_neither_coarser_nor_finer_cells_have_clearly_smaller_errors(
    users: int, epsilon: int, cells: int
) -> None:
    trips = gravity_trips(users)
    chosen = mv.flows(trips, region=REGION, epsilon=epsilon, rng=1, account=None).tiling
    assert chosen.size == cells
    depth = best_depth(users, Fraction(epsilon))
    coarser, found, finer = (error_at(depth + step, trips, epsilon) for step in (-1, 0, 1))
    assert found < min(coarser, finer) + 0.05


@given(trips=st.integers(1, 10**8), epsilon=EPSILONS, design=DESIGNS)
@settings(max_examples=40, deadline=None)
def test_more_trips_or_epsilon_never_make_it_coarser(
    trips: int, epsilon: Fraction, design: FlowDesign
) -> None:
    found = best_depth(trips, epsilon, design)
    assert 1 <= found <= (3 if design in ("mixed", "pair") else 6)
    assert best_depth(4 * trips, epsilon, design) >= found <= best_depth(trips, 2 * epsilon, design)


def test_reports_of_pairs_are_asked_of_no_more_cells_than_they_can_be() -> None:
    flows = mv.flows(gravity_trips(20_000), region=REGION, epsilon=8, estimator="pair", rng=1, account=None)
    assert flows.tiling.size == 64


@pytest.mark.parametrize("epsilon", [1, 2])
def test_the_deviation_of_two_reports_is_that_of_flows(epsilon: int) -> None:
    randomizer = best_mechanism(63, Fraction(epsilon, 2)).on(Domain(mv.Grid(REGION, rows=7, columns=9)))
    found = flow_deviation(randomizer, np.full((63, 63), 1 / 63**2), 10_000)
    # Those are of least squares, which use the few symbols of no site too.
    said = 100 * deviation_factor(63, Fraction(epsilon), "ends")
    assert 0.95 * said < np.sqrt((found**2).mean()) <= said


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("sites", [2, 4, 16, 63])
def test_no_other_randomizer_has_a_smaller_deviation(sites: int, epsilon: Fraction) -> None:
    def variance(mechanism: LocalMechanism) -> float:
        """By the whole matrix of the channel."""
        domain = Domain(mv.Grid(mv.Region.without_georeference(sites, 1), rows=1, columns=sites))
        matrix = mechanism.on(domain).transition_matrix()
        inverse = np.linalg.solve(matrix @ matrix.T, matrix)
        return float((inverse**2 @ matrix.T).mean())

    others = [GeneralizedRandomizedResponse(epsilon=epsilon), HadamardResponse(epsilon=epsilon)]
    others += [HadamardResponse(epsilon=epsilon, blocks=blocks) for blocks in (1, 2)]
    found = variance(best_mechanism(sites, epsilon))
    assert found <= min(map(variance, others)) * 1.01


@pytest.mark.parametrize(("trips", "epsilon"), [(0, Fraction(1)), (10, Fraction(0)), (10, Fraction(-1))])
def test_what_is_refused(trips: int, epsilon: Fraction) -> None:
    with pytest.raises(ParameterError, match=r"must be|expected"):
        best_depth(trips, epsilon)
