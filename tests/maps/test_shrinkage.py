from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mapveil.errors import ParameterError
from mapveil.maps.shrinkage import multiscale_shrinkage, pool, spread


def a_city(side: int, users: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    row, col = np.indices((side, side)) / side
    density = sum(
        weight * np.exp(-((row - r) ** 2 + (col - c) ** 2) / (2 * width**2))
        for weight, r, c, width in zip(
            rng.dirichlet(np.ones(6)), rng.random(6), rng.random(6), rng.uniform(0.02, 0.1, 6), strict=True
        )
    )
    return rng.multinomial(users, (density / density.sum()).ravel()).reshape(side, side).astype(float)


squares = st.integers(0, 4).flatmap(
    lambda depth: hnp.arrays(np.float64, (1 << depth, 1 << depth), elements=st.floats(0, 1e4, width=32))
)
masks = st.integers(1, 4).flatmap(
    lambda depth: hnp.arrays(np.int64, (1 << depth, 1 << depth), elements=st.integers(0, 3))
)


@given(squares)
@settings(max_examples=50, deadline=None)
def test_without_noise_variance_the_input_comes_back(square: np.ndarray) -> None:
    np.testing.assert_allclose(multiscale_shrinkage(square, 0.0), square, rtol=1e-9, atol=1e-6)


@given(masks, st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_under_huge_noise_the_split_is_even_over_members(members: np.ndarray, seed: int) -> None:
    noisy = np.random.default_rng(seed).random(members.shape)
    found = multiscale_shrinkage(noisy, 1e18, members)
    total = noisy[members > 0].sum()
    np.testing.assert_allclose(found, total * members / max(members.sum(), 1), rtol=1e-6, atol=1e-9)


@given(masks, st.integers(0, 1000), st.floats(0, 100))
@settings(max_examples=50, deadline=None)
def test_the_result_is_non_negative_keeps_the_total_and_structural_zeros(
    members: np.ndarray, seed: int, variance: float
) -> None:
    noisy = np.random.default_rng(seed).laplace(2, 5, members.shape)
    found = multiscale_shrinkage(noisy, variance, members)
    assert (found >= 0).all()
    assert (found[members == 0] == 0).all()
    assert found.sum() == pytest.approx(max(noisy[members > 0].sum(), 0), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("turn", [np.flipud, np.fliplr])
def test_a_mirrored_input_gives_the_mirrored_result(turn: object) -> None:
    noisy = a_city(16, 500, 3) + np.random.default_rng(1).laplace(size=(16, 16))
    np.testing.assert_allclose(
        multiscale_shrinkage(turn(noisy), 2.0),  # type: ignore[operator]
        turn(multiscale_shrinkage(noisy, 2.0)),  # type: ignore[operator]
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_shrinkage_is_nearer_the_truth_than_the_noisy_sums(epsilon: float) -> None:
    truth = a_city(64, 2000, 7)
    noisy = truth + np.random.default_rng(5).laplace(scale=1 / epsilon, size=truth.shape)
    found = multiscale_shrinkage(noisy, 2 / epsilon**2)
    assert np.abs(found - truth).sum() < 0.7 * np.abs(np.maximum(noisy, 0) - truth).sum()


def test_spread_keeps_block_sums_and_follows_members() -> None:
    members = np.array([[1, 3, 0, 0], [0, 0, 0, 0], [1, 1, 2, 0], [1, 1, 0, 2]])
    found = spread(np.array([[8.0, 5.0], [4.0, 2.0]]), members)
    np.testing.assert_allclose(pool(found, 1), [[8, 0], [4, 2]])
    np.testing.assert_allclose(found[0], [2, 6, 0, 0])


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (4,), (0, 0)])
def test_a_raster_that_is_no_square_of_a_power_of_two_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="power of two"):
        multiscale_shrinkage(np.zeros(shape), 1.0)
