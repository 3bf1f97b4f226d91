"""Expectation maximisation with smoothing at all scales."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.estimators import estimate_distribution
from mapveil.local.estimators.maximum_likelihood import maximise_likelihood
from mapveil.local.estimators.smoothed_likelihood import smooth_likelihood
from mapveil.local.estimators.split_trees import SplitTrees
from mapveil.local.randomizers.disk_area import DiskArea
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.local_hashing import LocalHashing
from mapveil.local.randomizers.planar_laplace import PlanarLaplace
from mapveil.local.randomizers.randomizer import Tally
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil.local.randomizers.unary_encoding import UnaryEncoding
from mapveil.maps.prior import Prior
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
EVERY = (
    DiskArea,
    GeneralizedRandomizedResponse,
    HadamardResponse,
    HierarchicalHashing,
    LocalHashing,
    PlanarLaplace,
    StaircaseResponse,
    SubsetSelection,
    UnaryEncoding,
)


def places(sites: int = 200) -> Domain:
    generator = np.random.default_rng(7)
    lon, lat = generator.uniform(-74.0, -73.92, sites), generator.uniform(40.70, 40.82, sites)
    return Domain(mv.Places(lon, lat, REGION))


def city(domain: Domain, users: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = domain.plane
    near = np.exp(-np.hypot(x - x[20], y - y[20]) / 1500) + 0.5 * np.exp(
        -np.hypot(x - x[-9], y - y[-9]) / 900
    )
    generator = np.random.default_rng(3)
    p = near * generator.gamma(0.7, size=domain.size)
    cells = generator.choice(domain.size, users, p=p / p.sum())
    return cells, np.bincount(cells, minlength=domain.size) / users


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: m.name)
def test_it_beats_projection_and_the_even_map_with_every_randomizer(mechanism) -> None:
    domain = places()
    cells, truth = city(domain, 30_000)
    randomizer = mechanism(epsilon=2).on(domain)
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(5)))
    made = estimate_distribution(randomizer, tally, "smoothed-em").distribution
    assert made.min() > 0
    assert made.sum() == pytest.approx(1)

    def far(estimate: np.ndarray) -> float:
        return float((truth * np.log(np.maximum(truth, 1e-300) / (estimate + 2**-52))).sum())

    assert far(made) < 0.85 * far(np.full(domain.size, 1 / domain.size))
    other = "simplex" if mechanism is not DiskArea else "em"
    assert far(made) < 0.6 * far(estimate_distribution(randomizer, tally, other).distribution)


def test_few_reports_of_small_epsilon_leave_the_map_nearly_even() -> None:
    domain = places()
    cells, truth = city(domain, 300)
    randomizer = SubsetSelection(epsilon="0.1").on(domain)
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(6)))
    made = smooth_likelihood(randomizer, tally).distribution
    even = np.full(domain.size, 1 / domain.size)
    assert np.abs(made - even).sum() < 0.05
    assert np.abs(made - truth).sum() < 1.02 * np.abs(even - truth).sum()


def test_many_reports_leave_nothing_to_smooth() -> None:
    randomizer = GeneralizedRandomizedResponse(epsilon=12).on(places(30))
    cells, truth = city(randomizer.domain, 400_000)
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(7)))
    made = smooth_likelihood(randomizer, tally).distribution
    np.testing.assert_allclose(made, maximise_likelihood(randomizer, tally).distribution, atol=3e-4)
    np.testing.assert_allclose(made, truth, atol=1e-3)


@pytest.mark.parametrize("mechanism", [HadamardResponse, SubsetSelection], ids=lambda m: m.name)
def test_the_users_expected_are_those_there_when_the_reports_are_as_expected(mechanism) -> None:
    randomizer = mechanism(epsilon=1).on(places(60))
    p = np.random.default_rng(1).dirichlet(np.ones(60))
    likely = (
        randomizer.forward(p)
        if mechanism is HadamardResponse
        else randomizer.other + (randomizer.held - randomizer.other) * p
    )
    n = 10**12
    tally = Tally(np.rint(n * likely).astype(np.int64), n)
    np.testing.assert_allclose(randomizer.likelihood(tally).users(p), n * p, rtol=1e-6)


def test_the_information_is_that_of_the_whole_matrix() -> None:
    randomizer = HadamardResponse(epsilon=1).on(places(40))
    generator = np.random.default_rng(2)
    p, change = generator.dirichlet(np.ones(40)), generator.normal(size=40)
    matrix = randomizer.transition_matrix()
    whole = matrix @ np.diag(1 / (p @ matrix)) @ matrix.T
    likelihood = randomizer.likelihood(Tally(np.zeros(randomizer.symbols, dtype=np.int64), 500))
    assert likelihood.information(p, change) == pytest.approx(500 * change @ whole @ change)


def test_smoothing_keeps_the_total_and_follows_what_is_sure() -> None:
    domain = places(101)
    trees = SplitTrees(domain, 3)
    p = np.random.default_rng(4).dirichlet(np.full(101, 0.5))
    made = trees.smooth(1e9 * p)
    assert made.sum() == pytest.approx(1)
    np.testing.assert_allclose(made, p, atol=1e-6)
    np.testing.assert_allclose(trees.smooth(np.zeros(101)), 1 / 101)
    once = np.abs(trees.smooth(100 * p) - 1 / 101).sum()
    trees.unevenness[:] = 5.0
    assert np.abs(trees.smooth(100 * p) - 1 / 101).sum() > once


def test_a_division_moves_mass_within_its_box_only() -> None:
    trees = SplitTrees(places(77), 2)
    p = np.random.default_rng(5).dirichlet(np.ones(77))
    for level in range(trees.levels):
        at = trees.divisions(p, level)
        step = 1e-4
        signs = np.ones(at.half.size)
        after = trees.divisions(p + step * trees.moved(p, level, signs), level)
        np.testing.assert_allclose(after.fraction, at.fraction)
        np.testing.assert_allclose(after.half, at.half + step, rtol=1e-9)


def test_the_unevenness_of_crowded_levels_is_learned() -> None:
    domain = places()
    x, _ = domain.plane
    generator = np.random.default_rng(8)
    even = generator.choice(domain.size, 200_000)
    left = np.flatnonzero(x < np.median(x))
    crowded = np.concatenate([generator.choice(left, 190_000), even[:10_000]])
    learned = []
    for cells in (even, crowded):
        randomizer = GeneralizedRandomizedResponse(epsilon=6).on(domain)
        tally = randomizer.tally(randomizer.randomize(cells, Randomness(9)))
        learned.append(smooth_likelihood(randomizer, tally).unevenness)
    assert learned[0].max() < 0.6
    assert learned[1][:2].max() > 1.5


@pytest.mark.parametrize("mechanism", [HadamardResponse, SubsetSelection], ids=lambda m: m.name)
def test_a_site_that_outdoes_all_others_stands_out_alone(mechanism) -> None:
    domain = places()
    generator = np.random.default_rng(10)
    cells = np.where(generator.random(40_000) < 0.15, 33, generator.choice(domain.size, 40_000))
    randomizer = mechanism(epsilon=1).on(domain)
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(11)))
    made = smooth_likelihood(randomizer, tally)
    assert made.peaks.tolist() == [33]
    assert made.distribution[33] == pytest.approx(0.154, abs=0.04)
    others = np.delete(made.distribution, 33)
    assert np.abs(others / others.sum() - 1 / 199).sum() < 0.45


def test_nothing_stands_out_of_an_even_crowd() -> None:
    domain = places()
    cells = np.random.default_rng(12).choice(domain.size, 40_000)
    for seed in range(5):
        randomizer = HadamardResponse(epsilon=1).on(domain)
        tally = randomizer.tally(randomizer.randomize(cells, Randomness(seed)))
        assert smooth_likelihood(randomizer, tally).peaks.size == 0


def test_few_reports_of_two_crowded_sites_leave_a_distribution() -> None:
    domain = Domain(mv.Quadtree(REGION, depth=4))
    randomizer = HierarchicalHashing(epsilon=3).on(domain)
    for seed in range(25):
        cells = np.random.default_rng(seed).choice([108, 166], 64)
        tally = randomizer.tally(randomizer.randomize(cells, Randomness(seed)))
        made = smooth_likelihood(randomizer, tally).distribution
        assert made.min() > 0, seed
        assert made.sum() == pytest.approx(1), seed


FLAT = mv.Quadtree(REGION, depth=4)


def reports_of(mechanism, truth: np.ndarray, reports: int, seed: int) -> Tally:
    randomizer = mechanism.on(Domain(FLAT))
    cells = np.random.default_rng(seed).choice(truth.size, reports, p=truth)
    return randomizer.tally(randomizer.randomize(cells, Randomness(seed)))


def test_of_a_flat_city_hardly_anything_is_left_but_the_uniform_baseline() -> None:
    """Ten collections: no district stands out, and none should in the map."""
    even, mechanism = np.full(FLAT.size, 1 / FLAT.size), HierarchicalHashing(epsilon=1)
    randomizer = mechanism.on(Domain(FLAT))
    far = [
        np.abs(
            smooth_likelihood(randomizer, reports_of(mechanism, even, 3000, seed)).distribution - even
        ).sum()
        for seed in range(10)
    ]
    assert np.median(far) < 0.02
    assert np.mean(far) < 0.06


def test_chance_alone_shows_an_estimate_in_few_maps_and_a_city_in_all() -> None:
    domain, mechanism = Domain(FLAT), HierarchicalHashing(epsilon=2, growth=2, site_weight=2)
    even = np.full(domain.size, 1 / domain.size)
    x, _ = domain.plane
    slope = x - x.min() + 1.0
    shown = []
    for truth in (even, slope / slope.sum()):
        found = [
            smooth_likelihood(randomizer, reports_of(mechanism, truth, 3000, seed)).distribution
            for randomizer in [mechanism.on(domain)]
            for seed in range(12)
        ]
        shown.append(sum(bool(np.ptp(each) > 0) for each in found))
    # One deviation of a sum of squares above its mean: about one map in six, so that more than 6 of 12 are one in 700.
    assert shown[0] <= 6
    assert shown[1] == 12


def test_a_uniform_map_with_blocks_above_the_noise_floor_does_not_deny_them() -> None:
    """Its notes said that the reports tell nothing of where people are, beside a picture of the blocks they tell."""
    made = HierarchicalHashing(epsilon=1).release(
        mv.Counts(np.full(FLAT.size, 10), FLAT), account=None, rng=14
    )
    assert np.ptp(made.values) == pytest.approx(0)
    blocks = made.scene().blocks
    assert blocks is not None
    assert blocks.users.size
    assert "tell nothing" not in " ".join(made.notes)
    assert (
        "from a uniform map: the estimate of each cell is uniform; any block that is shown" in made.notes[0]
    )


def test_a_prior_is_for_the_estimator_that_can_lean_on_it() -> None:
    prior = Prior(name="p", digest="", values=np.ones(FLAT.size), tiling=FLAT)
    with pytest.raises(ParameterError, match="smoothed-em with a prior"):
        HierarchicalHashing(epsilon=1, prior=prior, estimator="norm-clip")
    users = mv.Counts(np.full(FLAT.size, 3), FLAT)
    made = HierarchicalHashing(epsilon=1, prior=prior).release(users, account=None, rng=1)
    assert made.parameters["prior"]["name"] == "p"
    assert any("does not use the prior p" in note for note in made.notes)
    assert any("do not tell this map from a uniform map: the estimate of each" in note for note in made.notes)
    there = mv.Counts(np.where(np.arange(FLAT.size) % 16 == 0, 300, 0), FLAT)
    right = HierarchicalHashing(
        epsilon=1, prior=Prior(name="p", digest="", values=there.values + 1.0, tiling=FLAT)
    )
    leaning = right.release(there, account=None, rng=1).notes
    assert any("% of the users are elsewhere than without the prior p" in note for note in leaning)
    plain = HierarchicalHashing(epsilon=1).release(users, account=None, rng=1)
    assert made.guarantee == plain.guarantee
