"""The test of a map's noise: it believes the stated noise and finds half of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.inference.noise_residuals import noise_test
from mapveil.maps.measurement import Measurement
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil_client.randomness.random import Randomness

SIDE, UNIT, RUNS = 32, 4, 500


def measured(seed: int, stated: Fraction, drawn: Fraction) -> tuple[Measurement, Measurement]:
    """64 blocks and 1,024 cells of one random map, the noise drawn with another epsilon than stated."""
    rng = np.random.default_rng(seed)
    cells = np.arange(SIDE * SIDE)
    blocks = cells // SIDE // 4 * 8 + cells % SIDE // 4
    users = rng.poisson(3, cells.size).astype(np.float64)
    made = []
    for groups in (blocks, cells):
        sums = np.bincount(groups, users)
        noise = discrete_laplace(sums.size, drawn, UNIT, Randomness(int(rng.integers(1 << 62)))) / UNIT
        made.append(Measurement(groups.astype(np.int64), sums + noise, stated, UNIT))
    return made[0], made[1]


def test_the_stated_noise_is_believed_and_half_of_it_found() -> None:
    epsilon = Fraction(1, 2)
    found = [noise_test(measured(seed, epsilon, epsilon)) for seed in range(RUNS)]
    assert all(each is not None and each.residuals == 64 for each in found)
    small = np.array([each.too_small for each in found if each])
    large = np.array([each.too_large for each in found if each])
    for level in (0.05, 0.0005):
        # Five standard deviations of a binomial count above the level.
        most = RUNS * level + 5 * np.sqrt(RUNS * level) + 1
        assert (small <= level).sum() <= most
        assert (large <= level).sum() <= most
    halved = [noise_test(measured(seed, epsilon, 2 * epsilon)) for seed in range(RUNS)]
    caught = sum(each.too_small <= 0.0005 for each in halved if each)
    assert caught >= 0.99 * RUNS


def test_one_measurement_tells_nothing() -> None:
    blocks, _ = measured(1, Fraction(1), Fraction(1))
    assert noise_test((blocks,)) is None
    assert noise_test(()) is None


def test_cells_that_only_one_measured_are_left_out() -> None:
    blocks, cells = measured(1, Fraction(1), Fraction(1))
    fewer = cells.groups.copy()
    fewer[: SIDE * 4] = -1  # the first row of eight blocks
    found = noise_test((blocks, Measurement(fewer, cells.noisy, cells.epsilon, UNIT)))
    assert found is not None
    assert found.residuals == 56


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_sum_over_components(seed: int) -> None:
    blocks, cells = measured(seed, Fraction(1), Fraction(1))
    expected, stated = 0.0, 0.0
    for block in range(64):
        inside = np.flatnonzero(blocks.groups == block)
        residual = blocks.noisy[block] - cells.noisy[inside].sum()
        expected += residual**2
        stated += blocks.deviation() ** 2 + inside.size * cells.deviation() ** 2
    found = noise_test((cells, blocks))
    assert found is not None
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
        found = noise_test((blocks, again))
        assert found is not None
        small.append(found.too_small)
    level = 0.05
    assert (np.array(small) <= level).sum() <= RUNS * level + 5 * np.sqrt(RUNS * level)
