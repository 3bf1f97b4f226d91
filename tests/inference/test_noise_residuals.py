"""The tests of a map's noise: they believe the stated noise, find half of it, and say what they cannot find."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from mapveil.inference.noise_residuals import PairTest, noise_tests
from mapveil.maps.measurement import Measurement
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil_client.randomness.random import Randomness

SIDE, UNIT, RUNS = 32, 4, 500
FALSE_ALARM = 1e-3


def squares(side: int) -> np.ndarray:
    """The block of each cell, of blocks of so many cells a side."""
    cells = np.arange(SIDE * SIDE)
    return cells // SIDE // side * (SIDE // side) + cells % SIDE // side


def drawn(groups: np.ndarray, users: np.ndarray, stated: Fraction, scale: Fraction, seed: int) -> Measurement:
    """Noisy sums of groups, their noise a fraction of what is stated."""
    sums = np.bincount(groups, users)
    noise = discrete_laplace(sums.size, stated, UNIT, Randomness(seed)) / UNIT
    return Measurement(groups.astype(np.int64), sums + noise * float(scale), stated, UNIT)


def only(measurements: Sequence[Measurement]) -> PairTest:
    """The test of one pair."""
    (test,) = noise_tests(measurements, FALSE_ALARM).pairs
    return test


def measured(seed: int, stated: Fraction, epsilon: Fraction) -> tuple[Measurement, Measurement]:
    """64 blocks and 1,024 cells of one random map, the noise drawn with another epsilon than stated."""
    rng = np.random.default_rng(seed)
    users = rng.poisson(3, SIDE * SIDE).astype(np.float64)
    first, second = (
        drawn(squares(side), users, stated, stated / epsilon, int(rng.integers(1 << 62))) for side in (4, 1)
    )
    return first, second


def test_the_stated_noise_is_believed_and_half_of_it_found() -> None:
    epsilon = Fraction(1, 2)
    found = [only(measured(seed, epsilon, epsilon)) for seed in range(RUNS)]
    assert all(each.residuals == 64 for each in found)
    small = np.array([each.too_small for each in found])
    large = np.array([each.too_large for each in found])
    for level in (0.05, 0.0005):
        # Five standard deviations of a binomial count above the level.
        most = RUNS * level + 5 * np.sqrt(RUNS * level) + 1
        assert (small <= level).sum() <= most
        assert (large <= level).sum() <= most
    halved = [only(measured(seed, epsilon, 2 * epsilon)) for seed in range(RUNS)]
    assert sum(each.failed for each in halved) >= 0.99 * RUNS


@pytest.mark.parametrize("at", range(4))
def test_one_level_without_noise_is_found_or_named(at: int) -> None:
    epsilon, failed = Fraction(1, 2), []
    for seed in range(50):
        users = np.random.default_rng(seed).poisson(3, SIDE * SIDE).astype(np.float64)
        levels = [
            drawn(squares(side), users, epsilon, Fraction(level != at), 10 * seed + level)
            for level, side in enumerate((8, 4, 2, 1))
        ]
        found = noise_tests(levels, FALSE_ALARM)
        # 16 and 64 sums are a small part of the noise of any residual.
        assert found.untested == (0, 1)
        failed.append(any(each.failed for each in found.pairs))
    assert all(failed) if at > 1 else not any(failed)


def test_one_measurement_tells_nothing() -> None:
    blocks, _ = measured(1, Fraction(1), Fraction(1))
    assert noise_tests((blocks,), FALSE_ALARM) == ((), (0,))
    assert noise_tests((), FALSE_ALARM) == ((), ())


def test_noise_that_rounds_to_nothing_is_not_tested() -> None:
    assert noise_tests(measured(1, Fraction(10_000), Fraction(10_000)), FALSE_ALARM) == ((), (0, 1))


def test_cells_that_only_one_measured_are_left_out() -> None:
    users = np.ones(SIDE * SIDE)
    blocks, cells = (drawn(squares(side), users, Fraction(1), Fraction(1), side) for side in (2, 1))
    fewer = cells.groups.copy()
    fewer[: SIDE * 2] = -1  # the first row of 16 blocks
    assert only((blocks, Measurement(fewer, cells.noisy, cells.epsilon, UNIT))).residuals == 240


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_sum_over_components(seed: int) -> None:
    blocks, cells = measured(seed, Fraction(1), Fraction(1))
    expected, stated = 0.0, 0.0
    for block in range(64):
        inside = np.flatnonzero(blocks.groups == block)
        residual = blocks.noisy[block] - cells.noisy[inside].sum()
        expected += residual**2
        stated += blocks.deviation() ** 2 + inside.size * cells.deviation() ** 2
    found = only((cells, blocks))
    assert found.ratio == pytest.approx(expected / stated, rel=1e-12)


def test_groups_chosen_by_the_first_noise_are_no_fault() -> None:
    epsilon, small = Fraction(1, 2), []
    for seed in range(RUNS):
        blocks, cells = measured(seed, epsilon, epsilon)
        # Blocks whose first sum came out high are measured by cells again, the others whole.
        fine = (blocks.noisy > np.median(blocks.noisy))[blocks.groups]
        groups = np.unique(np.where(fine, 64 + cells.groups, blocks.groups), return_inverse=True)[1]
        users = np.bincount(cells.groups, np.random.default_rng(seed).poisson(3, SIDE * SIDE))
        noise = discrete_laplace(int(groups.max()) + 1, epsilon, UNIT, Randomness(seed + 1)) / UNIT
        again = Measurement(groups.astype(np.int64), np.bincount(groups, users) + noise, epsilon, UNIT)
        small.append(only((blocks, again)).too_small)
    level = 0.05
    assert (np.array(small) <= level).sum() <= RUNS * level + 5 * np.sqrt(RUNS * level)
