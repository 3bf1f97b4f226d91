from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.inference.nested_rounds import block_inference
from mapveil.mechanisms.adaptive_grid import AdaptiveGrid
from mapveil_client.errors import ParameterError
from mapveil_client.morton import deinterleave


@given(
    noisy=st.floats(-1e4, 1e6),
    epsilon=st.floats(1e-3, 10),
    c2=st.floats(0.1, 100),
    whole=st.sampled_from(["ceil", "floor"]),
)
def test_the_second_grids_follow_their_formula(noisy, epsilon, c2, whole):
    made = AdaptiveGrid(epsilon=1, whole=whole).second_grids(np.array([noisy]), epsilon, c2)
    slow = 1 if noisy <= 0 else getattr(math, whole)(math.sqrt(noisy * epsilon / c2))
    assert made.tolist() == [max(slow, 1)]


def test_the_budget_is_divided_between_the_rounds(play, crowd):
    made = play(AdaptiveGrid(epsilon=1, alpha=0.25), crowd(4, 100), seed=1)
    assert [(query.purpose, query.epsilon) for query in made.queries] == [
        ("first grid", Fraction(1, 4)),
        ("second grid", Fraction(3, 4)),
    ]


def walls(length, parts):
    return [site * parts // length for site in range(length)]


@pytest.mark.parametrize("extent", [(64, 64), (50, 37), (7, 64)])
def test_without_noise_the_map_is_even_within_parts_of_the_stated_sizes(play, crowd, extent):
    # Both rounds by a plain walk over blocks and parts, which need not divide the raster evenly.
    row, col = deinterleave(np.arange(64**2))
    members = ((row < extent[0]) & (col < extent[1])).astype(np.int64)
    people = crowd(6, 3000, members=members)
    # A large c2 asks for few parts.
    made = play(AdaptiveGrid(epsilon=8, c2=100.0, first=10), people, members)
    truth, values = np.zeros((64, 64)), np.zeros((64, 64))
    truth[row, col], values[row, col] = people, made.made.values
    down, across = (np.array(walls(size, min(10, size))) for size in extent)
    blocks = parts = 0
    for i in range(down.max() + 1):
        for j in range(across.max() + 1):
            block = np.ix_(np.flatnonzero(down == i), np.flatnonzero(across == j))
            blocks += 1
            n = max(1, math.ceil(math.sqrt(truth[block].sum() * 4 / 100)))
            sides = [np.array(walls(size, min(n, size))) for size in truth[block].shape]
            for k in range(sides[0].max() + 1):
                for m in range(sides[1].max() + 1):
                    part = np.ix_(np.flatnonzero(sides[0] == k), np.flatnonzero(sides[1] == m))
                    parts += 1
                    np.testing.assert_allclose(values[block][part], truth[block][part].mean(), atol=1e-9)
    assert [query.encoding.length for query in made.queries] == [blocks, parts]
    assert parts > blocks


def test_both_rounds_are_combined_by_least_squares(play, crowd):
    people = crowd(5, 4000)
    made = play(AdaptiveGrid(epsilon=1, alpha=0.3), people, seed=3)
    coarse, fine = (query.encoding for query in made.queries)
    inferred = block_inference(
        made.answers[0].values,
        made.answers[1].values,
        fine.block,
        *(answer.variance for answer in made.answers),
    )
    position = fine.positions(np.arange(people.size))[:, 0]
    held = np.bincount(position, minlength=fine.length)
    np.testing.assert_allclose(made.made.values, (np.maximum(inferred, 0) / held)[position])
    assert coarse.length == 100


def test_blocks_and_parts_that_hold_nobody_are_left_out(play, crowd):
    row, col = deinterleave(np.arange(32**2))
    members = (((row // 4 + col // 4) % 3 > 0) & (row > 2) & (col < 30)).astype(np.int64) * 2
    people = crowd(5, 5000, members=members)
    made = play(AdaptiveGrid(epsilon=1, first=7), people, members)
    coarse, fine = made.made.measurements
    for measured in (coarse, fine):
        assert (measured.groups[members > 0] >= 0).all()
        sums = np.bincount(
            measured.groups[measured.groups >= 0], people[measured.groups >= 0], measured.noisy.size
        )
        np.testing.assert_array_equal(sums, measured.noisy)
    assert np.unique(coarse.groups[members > 0]).size == coarse.noisy.size  # no block is asked about in vain
    assert not made.made.values[members == 0].any()
    assert made.made.values.sum() == pytest.approx(5000)
    # Every part lies in one block.
    pairs = np.unique(np.stack([fine.groups, coarse.groups])[:, members > 0], axis=1)
    assert pairs.shape[1] == np.unique(fine.groups[members > 0]).size


def test_a_map_of_one_site_is_a_grid_too(play):
    made = play(AdaptiveGrid(epsilon=1), np.array([7]))
    assert made.made.values.tolist() == [7]


@pytest.mark.parametrize(
    "wrong", [{"alpha": 0}, {"alpha": 1}, {"c2": 0}, {"c2": math.inf}, {"first": 0}, {"whole": "round"}]
)
def test_senseless_parameters_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        AdaptiveGrid(epsilon=1, **wrong)
