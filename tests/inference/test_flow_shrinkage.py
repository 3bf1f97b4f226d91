"""Estimated pairs of zones: totals without bias, and the posterior of the noise's own law."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.inference.flow_shrinkage import MeasuredBlocks, posterior_means, settle_pairs
from mapveil.inference.split_prior import noise_density
from mapveil_client.arrays import FloatArray
from mapveil_client.morton import PrefixTree, deinterleave

DEPTH = 4
TRIPS = 400.0


def noise(generator: np.random.Generator, size: int, terms: int) -> FloatArray:
    """Sums of Laplace variables, of variance 2."""
    return np.asarray(generator.laplace(0, terms**-0.5, (size, terms)).sum(axis=1))


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("busy", [0, 3])
def test_totals_are_those_of_the_sums(terms: int, busy: int) -> None:
    # Most pairs lie below the noise, where an estimate of zero each would leave out most of the trips.
    generator = np.random.default_rng(terms)
    tree = PrefixTree.uniform(DEPTH, DEPTH)
    parent = np.ones((1 << DEPTH,) * 2)
    true = generator.poisson(TRIPS / tree.size, tree.size).astype(np.float64)
    true[:busy] += 100
    for _ in range(5):
        blocks = MeasuredBlocks(tree, true + noise(generator, tree.size, terms), 2.0, terms)
        made = settle_pairs(parent, blocks, TRIPS)
        assert made.min() >= 0
        assert made.sum() == pytest.approx(TRIPS)
        # Pairs far above the noise are as the sums say, as far as those fit in the total.
        if busy and blocks.values[:busy].sum() < TRIPS:
            assert made[deinterleave(tree.code[:busy])] == pytest.approx(blocks.values[:busy])


def test_nobody_above_the_noise_leaves_the_expected_trips() -> None:
    tree = PrefixTree.uniform(DEPTH, DEPTH)
    blocks = MeasuredBlocks(tree, np.full(tree.size, -3.0), 2.0, 1.0)
    made = settle_pairs(np.ones((1 << DEPTH,) * 2), blocks, 10.0)
    assert made.sum() == pytest.approx(10.0)


def test_a_total_far_above_sums_that_are_all_sure_is_shared_among_them() -> None:
    tree = PrefixTree.uniform(DEPTH, DEPTH)
    blocks = MeasuredBlocks(tree, np.full(tree.size, 100.0), 2.0, 1.0)
    made = settle_pairs(np.ones((1 << DEPTH,) * 2), blocks, 1e9)
    assert made == pytest.approx(1e9 / tree.size)


@pytest.mark.parametrize("terms", [1, 2, 3])
def test_the_density_is_that_of_summed_laplace_variables(terms: int) -> None:
    step = 0.01
    x = np.arange(-30, 30 + step / 2, step)
    one = np.exp(-np.abs(x))
    slow = one
    for _ in range(terms - 1):
        slow = np.convolve(slow, one, mode="same")
    scaled = x / np.sqrt(2 * terms)
    fast = noise_density(scaled, terms)
    near = np.abs(x) < 8
    assert fast[near] / fast.sum() == pytest.approx(slow[near] / slow.sum(), rel=0.01)


@pytest.mark.parametrize("terms", [2, 8])
def test_the_law_of_summed_noise_is_nearer_than_that_of_one_variable(terms: int) -> None:
    generator = np.random.default_rng(0)
    true = generator.choice([0.0, 5.0, 15.0], 20_000, p=[0.95, 0.03, 0.02])
    noisy = true + noise(generator, true.size, terms)
    expected = np.ones(true.size)

    def errors(assumed: float) -> FloatArray:
        return np.asarray((posterior_means(noisy, expected, assumed) - true) ** 2)

    gain = errors(1) - errors(terms)
    assert gain.mean() > 3 * gain.std() / np.sqrt(true.size)
