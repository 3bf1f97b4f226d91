from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mapveil.inference.interpolation import Known, interpolate, slope_exponent
from mapveil.inference.shrinkage import pool, spread


def rasters(depth: int, elements: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, (1 << depth, 1 << depth), elements=elements)


def slow_interpolate(coarse: np.ndarray, members: np.ndarray, exponent: float, floor: float) -> np.ndarray:
    """Cell by cell, each looking at the two beside it."""
    estimate, side = coarse, members.shape[0]
    while estimate.shape != members.shape:
        axis = 0 if estimate.shape[0] == estimate.shape[1] else 1
        height, width = (side // n for n in estimate.shape)
        shape = (estimate.shape[0] * 2, estimate.shape[1]) if axis == 0 else (estimate.shape[0],) * 2
        made = np.zeros(shape)

        def held(row: int, col: int, high: int, wide: int) -> float:
            return float(members[row * high : (row + 1) * high, col * wide : (col + 1) * wide].sum())

        for row in range(estimate.shape[0]):
            for col in range(estimate.shape[1]):
                mine = held(row, col, height, width)
                if mine == 0:
                    continue
                own = density = estimate[row, col] / mine
                beside = []
                for step in (-1, 1):
                    r, c = (row + step, col) if axis == 0 else (row, col + step)
                    there = 0 <= r < estimate.shape[0] and 0 <= c < estimate.shape[1]
                    weight = held(r, c, height, width) if there else 0.0
                    density = estimate[r, c] / weight if weight else own
                    beside.append(density + floor)
                first = (2 * row, col) if axis == 0 else (row, 2 * col)
                second = (2 * row + 1, col) if axis == 0 else (row, 2 * col + 1)
                size = (height // 2, width) if axis == 0 else (height, width // 2)
                a, b = held(*first, *size), held(*second, *size)
                tilt = (beside[0] / beside[1]) ** exponent if a and b else 1.0
                made[first] = estimate[row, col] * a * tilt / (a * tilt + b)
                made[second] = estimate[row, col] - made[first]
        estimate = made
    return estimate


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_agrees_with_every_cell_one_at_a_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = rng.integers(0, 3, (16, 16)) if seed % 2 else np.ones((16, 16), dtype=np.int64)
    coarse = np.where(pool(members, 2) > 0, rng.gamma(0.5, 20, (4, 4)), 0.0)
    np.testing.assert_allclose(
        interpolate(coarse, members, 0.2, 0.3),
        slow_interpolate(coarse, members, 0.2, 0.3),
        rtol=1e-6,
        atol=1e-9,
    )


@given(
    rasters(2, st.floats(0, 1e6)),
    hnp.arrays(np.int64, (16, 16), elements=st.integers(0, 3)),
    st.floats(0, 0.5),
    st.floats(0, 1e3),
)
def test_cells_keep_their_sums_and_nobody_is_put_where_nobody_can_be(
    coarse: np.ndarray, members: np.ndarray, exponent: float, floor: float
) -> None:
    found = interpolate(coarse, members, exponent, floor)
    assert (found >= 0).all()
    assert not found[members == 0].any()
    np.testing.assert_allclose(
        pool(found, 2), np.where(pool(members, 2) > 0, coarse, 0.0), rtol=1e-9, atol=1e-9
    )


@given(rasters(2, st.floats(0, 1e6)), hnp.arrays(np.int64, (8, 8), elements=st.integers(0, 3)))
def test_an_exponent_of_zero_is_an_even_division(coarse: np.ndarray, members: np.ndarray) -> None:
    np.testing.assert_allclose(interpolate(coarse, members, 0.0, 1.0), spread(coarse, members), atol=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.05, -0.03])
def test_exponential_growth_is_continued_exactly_by_a_quarter(rate: float) -> None:
    row, col = np.indices((64, 64))
    truth = np.exp(rate * row - 0.5 * rate * col)
    found = interpolate(pool(truth, 3), np.ones((64, 64)), 0.25, 0.0)
    inner = np.s_[16:48, 16:48]  # at the border only one side is known
    np.testing.assert_allclose(found[inner], truth[inner], rtol=2e-3)
    even = spread(pool(truth, 3), np.ones((64, 64)))
    assert np.abs(found - truth).max() < 0.7 * np.abs(even - truth).max()


@pytest.mark.parametrize("turn", [np.flipud, np.fliplr])
def test_a_mirrored_map_is_continued_mirrored(turn: object) -> None:
    coarse, members = np.random.default_rng(3).gamma(1, 5, (8, 8)), np.ones((32, 32))
    np.testing.assert_allclose(
        interpolate(turn(coarse), members, 0.2, 0.1),  # type: ignore[operator]
        turn(interpolate(coarse, members, 0.2, 0.1)),  # type: ignore[operator]
    )


def test_what_was_measured_inside_a_cell_is_put_there() -> None:
    rng = np.random.default_rng(4)
    fine = rng.gamma(1, 5, (8, 8))
    depths = np.array([[2, 1], [0, 0]])
    found = interpolate(pool(fine, 2), np.ones((16, 16)), 0.25, 0.1, known=Known(fine, depths))
    np.testing.assert_allclose(pool(found, 1)[:4, :4], fine[:4, :4])
    np.testing.assert_allclose(pool(found, 2)[:2, 2:], pool(fine, 1)[:2, 2:])
    np.testing.assert_allclose(pool(found, 3), pool(fine, 2))
    blind = interpolate(pool(fine, 2), np.ones((16, 16)), 0.25, 0.1)
    assert not np.allclose(pool(blind, 1)[:4, :4], fine[:4, :4])


def test_a_floor_per_cell_flattens_where_it_is_high() -> None:
    coarse = np.array([[1.0, 9.0], [1.0, 9.0]])
    floor = np.array([[0.0, 0.0], [1e6, 1e6]])
    found = interpolate(coarse, np.ones((4, 4)), 0.25, floor)
    assert found[0, 0] < 0.8 * found[0, 1]
    np.testing.assert_allclose(found[2:, :2], 0.25, rtol=1e-3)


def test_the_exponent_is_near_a_quarter_where_slopes_go_on() -> None:
    row, col = np.indices((32, 32)) / 32
    truth = 1e4 * np.exp(2 * np.sin(3 * row) + 2 * np.cos(4 * col))
    noisy = truth + np.random.default_rng(1).normal(0, 30, truth.shape)
    assert slope_exponent(noisy, truth, 900.0, np.ones((32, 32)), 1.0) == pytest.approx(0.25, abs=0.05)


def test_the_exponent_is_near_zero_where_neighbours_foretell_nothing() -> None:
    truth = np.random.default_rng(2).gamma(0.5, 1000, (64, 64))
    assert slope_exponent(truth, truth, 1.0, np.ones((64, 64)), 1.0) < 0.08


def test_where_little_is_known_the_exponent_is_the_usual_one() -> None:
    noisy = np.random.default_rng(3).normal(0, 100, (4, 4))
    assert slope_exponent(noisy, np.full((4, 4), 1.0), 1e4, np.ones((4, 4)), 1.0) == pytest.approx(
        0.2, abs=0.02
    )
    assert slope_exponent(noisy[:1, :1], np.ones((1, 1)), 1.0, np.ones((1, 1)), 1.0) == pytest.approx(
        0.2, abs=0.02
    )


def test_noise_alone_does_not_move_the_exponent() -> None:
    rng = np.random.default_rng(4)
    row, col = np.indices((32, 32)) / 32
    truth = 500 * np.exp(np.sin(5 * row) + np.cos(6 * col))
    found = [
        slope_exponent(truth + rng.normal(0, noise, truth.shape), truth, noise**2, np.ones((32, 32)), 1.0)
        for noise in (1.0, 30.0, 30.0, 30.0, 30.0)
    ]
    assert np.mean(found[1:]) == pytest.approx(found[0], abs=0.06)
