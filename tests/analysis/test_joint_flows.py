"""Flows from pairs of reports: steps against the whole system, and correlation that marginals cannot keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis.joint_flows import PairTally, estimate_joint
from mapveil.analysis.pair_channel import pair_channel
from mapveil.inference.gravity import Gravity, fit_gravity, proportional_fit
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
GRID = mv.Grid(REGION, rows=4, columns=4)
DOMAIN = Domain(GRID)
PLANE = DOMAIN.plane
SPACING = float(np.hypot(*(PLANE[:, 1] - PLANE[:, 0])))


def reports_of(mechanism, joint: np.ndarray, count: int, seed: int):
    """Randomized pairs of trips drawn from a distribution."""
    randomizer = mechanism.on(DOMAIN)
    generator, rng = np.random.default_rng(seed), Randomness(seed)
    pair = generator.choice(joint.size, size=count, p=joint.ravel())
    ends = (randomizer.randomize(part, rng).values for part in np.divmod(pair, joint.shape[1]))
    channel = pair_channel(randomizer)
    return channel, PairTally.of(channel, *ends)


def gravity_of(length_m: float, seed: int = 0, staying: float = 1.0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    across = np.hypot(*(part[:, None] - part[None, :] for part in PLANE))
    pulled = np.exp(-across / length_m)
    pulled[np.diag_indices(16)] *= staying
    made = np.outer(generator.dirichlet(np.ones(16)), generator.dirichlet(np.ones(16))) * pulled
    return made / made.sum()


def permuted(seed: int = 0) -> np.ndarray:
    """Everybody of a site goes to one other site: all correlation, even marginals."""
    made = np.zeros((16, 16))
    made[np.arange(16), np.random.default_rng(seed).permutation(16)] = 1 / 16
    return made


def one_step_by_hand(matrix: np.ndarray, tally: PairTally, joint: np.ndarray) -> np.ndarray:
    """Expectation maximisation, pair of reports by pair of reports."""
    made = np.zeros_like(joint)
    for first, second, times in zip(tally.first, tally.second, tally.times, strict=True):
        posterior = joint * np.outer(matrix[:, first], matrix[:, second])
        made += times * posterior / posterior.sum()
    return made / tally.reports


@pytest.mark.parametrize(
    "mechanism", [GeneralizedRandomizedResponse(epsilon=2), StaircaseResponse(epsilon=2)]
)
def test_a_step_is_that_of_the_whole_system(mechanism) -> None:
    channel, tally = reports_of(mechanism, gravity_of(3000), 300, 1)
    order = channel.site_order
    matrix = mechanism.on(DOMAIN).transition_matrix()[np.ix_(order, channel.symbol_order)]
    joint = np.random.default_rng(2).dirichlet(np.ones(256)).reshape(16, 16)
    even = np.full(16, 1 / 16)
    wanted = one_step_by_hand(matrix, tally, np.full((16, 16), 1 / 256))
    made = estimate_joint(channel, tally, even, even, PLANE, SPACING, Randomness(0), gravity=False, steps=1)
    np.testing.assert_allclose(channel.in_site_order(made.joint), wanted, atol=1e-12)
    again = one_step_by_hand(matrix, tally, wanted)
    twice = estimate_joint(channel, tally, even, even, PLANE, SPACING, Randomness(0), gravity=False, steps=2)
    np.testing.assert_allclose(channel.in_site_order(twice.joint), again, atol=1e-12)
    assert joint.shape == twice.joint.shape


@given(seed=st.integers(0, 10_000), count=st.integers(1, 400))
@settings(max_examples=15, deadline=None)
def test_no_step_lowers_the_likelihood(seed: int, count: int) -> None:
    channel, tally = reports_of(StaircaseResponse(epsilon=2), gravity_of(2000, seed), count, seed)
    even, reached = np.full(16, 1 / 16), -np.inf
    for steps in range(4):
        made = estimate_joint(
            channel, tally, even, even, PLANE, SPACING, Randomness(seed), gravity=False, steps=steps
        )
        found = tally.likelihood(channel.forward(channel.in_site_order(made.joint)))
        assert found >= reached - 1e-9 * max(1.0, abs(found))
        assert made.joint.sum() == pytest.approx(1)
        assert (made.joint >= 0).all()
        reached = found


def test_it_keeps_the_correlation_that_marginals_cannot() -> None:
    truth = permuted()
    even = np.full(16, 1 / 16)
    channel, tally = reports_of(GeneralizedRandomizedResponse(epsilon=2), truth, 200_000, 3)
    made = estimate_joint(channel, tally, even, even, PLANE, SPACING, Randomness(3))
    independent = np.abs(np.outer(even, even) - truth).sum()
    assert independent == pytest.approx(1.875)
    assert np.abs(made.joint - truth).sum() < 0.35
    assert made.steps > 0


def test_reports_that_came_apart_say_nothing_of_pairs() -> None:
    # The same reports, their pairs shuffled: what is found must be the product of the marginals.
    even = np.full(16, 1 / 16)
    channel, tally = reports_of(GeneralizedRandomizedResponse(epsilon=2), permuted(), 50_000, 4)
    first, second = (np.repeat(part, tally.times.astype(int)) for part in (tally.first, tally.second))
    shuffled = PairTally.of(channel, first, np.random.default_rng(0).permutation(second))
    made = estimate_joint(channel, shuffled, even, even, PLANE, SPACING, Randomness(4))
    assert np.abs(made.joint - 1 / 256).sum() < 0.5


def gravity(channel, tally, start, rows, columns) -> Gravity:
    """The likeliest gravity model of pairs of reports."""
    return fit_gravity(
        start, rows, columns, PLANE, SPACING, lambda joint: tally.likelihood(channel.forward(joint))
    )


@pytest.mark.parametrize(("length_m", "staying"), [(1500.0, 1.0), (4000.0, 1.0), (4000.0, 10.0)])
def test_gravity_finds_how_fast_trips_get_rarer(length_m: float, staying: float) -> None:
    truth = gravity_of(length_m, 5, staying)
    channel, tally = reports_of(GeneralizedRandomizedResponse(epsilon=3), truth, 100_000, 5)
    rows, columns = truth.sum(axis=1), truth.sum(axis=0)
    found = gravity(channel, tally, np.outer(rows, columns), rows, columns)
    assert length_m / 2 <= found.length_m <= 2 * length_m
    assert found.staying == pytest.approx(staying, rel=2.1) if staying > 1 else found.staying <= 3
    assert np.abs(found.joint - truth).sum() < 0.3 < np.abs(np.outer(rows, columns) - truth).sum()


def test_gravity_leaves_independent_ends_alone() -> None:
    generator = np.random.default_rng(6)
    rows, columns = generator.dirichlet(np.ones(16)), generator.dirichlet(np.ones(16))
    truth = np.outer(rows, columns)
    channel, tally = reports_of(GeneralizedRandomizedResponse(epsilon=3), truth, 100_000, 6)
    found = gravity(channel, tally, truth, rows, columns)
    assert np.abs(found.joint - truth).sum() < 0.1


def test_only_possible_pairs_get_trips() -> None:
    truth = permuted(1)
    allowed = truth > 0
    allowed[0] = True
    channel, tally = reports_of(StaircaseResponse(epsilon=2), truth, 2_000, 7)
    even = np.full(16, 1 / 16)
    made = estimate_joint(channel, tally, even, even, PLANE, SPACING, Randomness(7), allowed=allowed)
    assert (made.joint[~allowed] == 0).all()
    assert made.joint.sum() == pytest.approx(1)


def test_progress_ends_and_a_seed_repeats() -> None:
    channel, tally = reports_of(StaircaseResponse(epsilon=2), gravity_of(2000), 500, 8)
    even, told = np.full(16, 1 / 16), []
    runs = [
        estimate_joint(channel, tally, even, even, PLANE, SPACING, Randomness(8), progress=told.append)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].joint, runs[1].joint)
    assert told[-1] == 1.0
    assert all(0 <= done <= 1 for done in told)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_proportional_fit_has_the_sums_asked_for(seed: int) -> None:
    generator = np.random.default_rng(seed)
    across = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    start = np.exp(-generator.uniform(0, 2) * across)
    rows, columns = generator.dirichlet(np.ones(6)), generator.dirichlet(np.ones(6))
    made = proportional_fit(start, rows, columns)
    assert made is not None
    assert np.abs(made.sum(axis=1) - rows).sum() < 1.01e-3
    np.testing.assert_allclose(made.sum(axis=0), columns, atol=1e-12)
    # Scaling rows and columns changes no cross ratio.
    ratio = (made / start)[:2, :2]
    assert ratio[0, 0] * ratio[1, 1] == pytest.approx(ratio[0, 1] * ratio[1, 0], rel=1e-6)


def test_proportional_fit_says_when_nothing_is_left() -> None:
    assert proportional_fit(np.zeros((2, 2)), np.array([0.5, 0.5]), np.array([0.5, 0.5])) is None


@given(count=st.integers(6, 300), folds=st.integers(2, 5), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_parts_set_aside_are_all_reports_once(count: int, folds: int, seed: int) -> None:
    channel, tally = reports_of(GeneralizedRandomizedResponse(epsilon=1), gravity_of(2000), count, seed)
    assert tally.reports == tally.times.sum() == count
    size = channel.symbols
    dense = np.zeros((size, size))
    for held, rest in tally.split(folds, Randomness(seed)):
        assert held.reports + rest.reports == count
        dense[held.first, held.second] += held.times
    wanted = np.zeros((size, size))
    wanted[tally.first, tally.second] = tally.times
    np.testing.assert_array_equal(dense, wanted)
