"""Cells: nearest centres and distances against SciPy's, and centres that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from mapveil.obfuscation.privatizers.pilot_cells import find_centres, nearest_centre, row_distances


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_distances_are_means_over_the_measurements_of_a_run(
    width: int, length: int, count: int, others: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((count, width * length)).astype(np.float32)
    codes = draw.standard_normal((others, width * length)).astype(np.float32)
    parts = [slice(at * width, (at + 1) * width) for at in range(length)]
    expected = np.mean([cdist(rows[:, part], codes[:, part]) for part in parts], axis=0)
    np.testing.assert_allclose(row_distances(rows, codes, length), expected, atol=3e-3)


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_nearest_centre_is_nearest(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows, centres = draw.standard_normal((50, 4)), draw.standard_normal((count, 4)).astype(np.float32)
    off = cdist(rows, centres)
    found = nearest_centre(rows, centres)
    np.testing.assert_allclose(off[np.arange(50), found], off.min(axis=1), atol=1e-3)


def test_more_rows_than_a_chunk() -> None:
    rows = np.linspace(0, 1, 10_001)[:, None]
    found = nearest_centre(rows, np.array([[0.0], [1.0]], dtype=np.float32))
    np.testing.assert_array_equal(found, (rows[:, 0] > 0.5).astype(int))


def test_a_distance_from_itself_stays_above_zero() -> None:
    row = np.full((1, 5), 300.0, dtype=np.float32)
    assert row_distances(row, row)[0, 0] > 0


def test_lloyd_lowers_the_distortion_of_random_rows() -> None:
    draw = np.random.default_rng(7)
    rows = draw.standard_normal((4_000, 3)).astype(np.float32)

    def distortion(rounds: int) -> float:
        centres, nearest = find_centres(rows, 50, np.random.default_rng(1), rounds=rounds)
        return float(np.square(rows - centres[nearest]).sum(axis=1).mean())

    assert distortion(12) < 0.85 * distortion(0)


def test_few_distinct_rows_give_few_centres_and_every_cell_is_peopled() -> None:
    rows = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    centres, nearest = find_centres(rows, 10, np.random.default_rng(2))
    assert len(centres) <= 3
    assert set(np.unique(nearest)) == set(range(len(centres)))


@pytest.mark.parametrize("count", [1, 5])
def test_at_most_as_many_centres_as_asked(count: int) -> None:
    rows = np.random.default_rng(3).standard_normal((100, 2)).astype(np.float32)
    assert len(find_centres(rows, count, np.random.default_rng(1))[0]) <= count
