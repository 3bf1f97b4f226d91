"""Supported blocks: what is drawn holds somebody, intervals hold, and what stands out is found."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.inference.supported_blocks import supported_blocks
from mapveil.maps.measurement import Measurement
from mapveil_client.cells import Lattice
from mapveil_client.errors import ParameterError
from mapveil_client.morton import deinterleave

DEPTH = 5
CELLS = np.arange(4**DEPTH)
LATTICE = Lattice(DEPTH, *deinterleave(CELLS))
UNIT = 1000


def measured(truth, groups, epsilon, rng=None):
    """Sums of the groups with noise of epsilon, or without any."""
    size = int(groups.max()) + 1
    sums = np.bincount(groups[groups >= 0], truth[groups >= 0], minlength=size)
    noise = 0.0 if rng is None else rng.laplace(0.0, 1 / epsilon, size)
    return Measurement(groups, sums + noise, Fraction(epsilon), UNIT)


def at_level(level):
    return CELLS >> 2 * (DEPTH - level)


def city(users, seed):
    """Users around three places of different width: most cells are empty."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.2, 0.8, (3, 2))[rng.choice(3, users, p=[0.6, 0.3, 0.1])]
    at = np.clip(rng.normal(centre, 0.05), 0, 0.999)
    row, col = (at.T * 2**DEPTH).astype(np.int64)
    where = np.zeros((2**DEPTH, 2**DEPTH), dtype=np.int64)
    np.add.at(where, (row, col), 1)
    return where[LATTICE.row, LATTICE.col].astype(float)


def test_without_noise_every_cell_is_told_apart():
    truth = city(300, seed=1)
    blocks = supported_blocks([measured(truth, CELLS, 1000)], LATTICE)
    assert ((blocks.of_cell >= 0) == (truth > 0)).all()
    assert np.allclose(blocks.noisy[blocks.of_cell[truth > 0]], truth[truth > 0])
    assert np.unique(blocks.of_cell[blocks.of_cell >= 0]).size == blocks.size == (truth > 0).sum()


def draws(levels, users, epsilon, count):
    truth = city(users, seed=2)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        sums = [measured(truth, at_level(level), epsilon / len(levels), rng) for level in levels]
        yield truth, supported_blocks(sums, LATTICE)


def held_by(blocks, truth):
    inside = blocks.of_cell >= 0
    return np.bincount(blocks.of_cell[inside], truth[inside], minlength=blocks.size)


@pytest.mark.parametrize(
    ("levels", "users", "epsilon"),
    [([5], 500, 1.0), ([5], 4000, 0.5), ([2, 4], 300, 1.0), ([1, 2, 3, 4, 5], 2000, 2.0), ([3, 5], 60, 0.5)],
)
def test_few_drawn_blocks_hold_nobody_and_intervals_hold(levels, users, epsilon):
    rates, covered, size = [], 0, 0
    for truth, blocks in draws(levels, users, epsilon, 40):
        held = held_by(blocks, truth)
        rates.append((held == 0).mean() if blocks.size else 0.0)
        covered += int(((blocks.lower <= held) & (held <= blocks.upper)).sum())
        size += blocks.size
    assert np.mean(rates) <= 0.05 + 2 * np.std(rates) / np.sqrt(len(rates))
    assert covered >= 0.95 * size - 2 * np.sqrt(0.05 * size)


def test_a_dense_map_is_drawn_finely_and_a_sparse_one_coarsely():
    sizes = {}
    for users in (60, 600, 6000):
        sizes[users] = [
            (blocks.of_cell >= 0).sum() / max(blocks.size, 1) for _, blocks in draws([2, 4], users, 1.0, 5)
        ]
    medians = [float(np.median(each)) for each in sizes.values()]
    assert medians[0] > medians[1] >= medians[2]


def test_a_map_of_nobody_is_hardly_ever_drawn():
    nobody = np.zeros(CELLS.size)
    found = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        sums = [measured(nobody, at_level(level), 0.5, rng) for level in (1, 3, 5)]
        found += supported_blocks(sums, LATTICE).size > 0
    assert found <= 20  # 0.05 of 200, and three standard deviations


def test_one_crowded_cell_is_found_where_the_total_drowns_in_noise():
    truth = np.zeros(CELLS.size)
    truth[77] = 60
    found = [
        supported_blocks([measured(truth, CELLS, 0.5, np.random.default_rng(seed))], LATTICE).of_cell[77] >= 0
        for seed in range(20)
    ]
    assert all(found)


def test_what_is_left_of_a_divided_block_is_one_block():
    truth = np.where(at_level(1) == 0, 1000.0, 0.0) + np.where(at_level(1) > 0, 30.0, 0.0)
    rest = np.where(at_level(1) == 0, 0, 1)  # a node and whoever stands at it, but at no child
    blocks = supported_blocks([measured(truth, rest, 1000)], LATTICE)
    assert blocks.size == 2
    assert blocks.of_cell[0] != blocks.of_cell[-1] >= 0
    assert np.unique(blocks.of_cell[at_level(1) > 0]).size == 1
    assert blocks.noisy[blocks.of_cell[-1]] == pytest.approx(30.0 * (at_level(1) > 0).sum())


def test_blocks_with_a_cell_that_nobody_measured_are_unknown():
    truth = np.full(CELLS.size, 10.0)
    groups = CELLS.copy()
    groups[0] = -1
    of_cell = supported_blocks([measured(truth, groups, 1000)], LATTICE).of_cell
    assert of_cell[0] == -1
    assert (of_cell[1:] >= 0).all()
    outside = Lattice(DEPTH, LATTICE.row, LATTICE.col, CELLS > 0)  # known to be empty: nothing is missing
    assert (supported_blocks([measured(truth, groups, 1000)], outside).of_cell[1:] >= 0).all()


def test_a_total_alone_supports_no_block():
    total = measured(np.full(CELLS.size, 5.0), np.zeros(CELLS.size, dtype=np.int64), 1000)
    assert supported_blocks([total], LATTICE).size == 0
    assert supported_blocks([], LATTICE).size == 0


@pytest.mark.parametrize("given", [{"false_rate": 0.0}, {"false_rate": 1.0}, {"alpha": 1.5}])
def test_rates_outside_their_range_are_refused(given):
    with pytest.raises(ParameterError, match="between 0 and 1"):
        supported_blocks([], LATTICE, **given)
