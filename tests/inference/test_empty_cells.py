from __future__ import annotations

import numpy as np
import pytest

from mapveil.inference.empty_cells import emptied

SIDE = 32
ALL = np.full((SIDE, SIDE), True)


def a_line(users: float) -> np.ndarray:
    return np.where(np.eye(SIDE) > 0, users / SIDE, 0.0)


def noisy(true: np.ndarray, scale: float = 1.0, seed: int = 1) -> np.ndarray:
    return np.asarray(true + np.random.default_rng(seed).laplace(scale=scale, size=true.shape))


def test_users_leave_the_empty_cells_of_a_line_and_their_number_stays() -> None:
    true = a_line(5000.0)
    sums = noisy(true)
    users = true + 0.5  # what is too much is everywhere
    after = emptied(users, sums, 1.0, ALL)
    assert after.sum() == pytest.approx(users.sum())
    assert after[true == 0].sum() < 0.5 * users[true == 0].sum()


def test_users_around_an_occupied_cell_stay_in_its_box() -> None:
    true = np.zeros((SIDE, SIDE))
    true[4, 4], true[20, 20] = 5000.0, 50.0
    users = true + 0.5
    after = emptied(users, noisy(true), 1.0, ALL)
    assert after[16:24, 16:24].sum() == pytest.approx(users[16:24, 16:24].sum(), rel=0.1)
    assert after[16:24, :8].sum() < 0.8 * users[16:24, :8].sum()


@pytest.mark.parametrize("full", [0.25, 1.0])
def test_a_map_with_people_in_a_quarter_of_the_cells_stays(full: float) -> None:
    rng = np.random.default_rng(2)
    true = np.where(rng.random((SIDE, SIDE)) < full, 40.0, 0.0)
    sums = noisy(true)
    users = np.maximum(sums, 0.0)
    np.testing.assert_array_equal(emptied(users, sums, 1.0, ALL), users)


def test_few_people_everywhere_are_no_empty_cells() -> None:
    sums = noisy(np.full((SIDE, SIDE), 0.1))
    users = np.maximum(sums, 0.0)
    np.testing.assert_array_equal(emptied(users, sums, 1.0, ALL), users)


def test_the_unit_of_the_noise_does_not_matter() -> None:
    sums = noisy(a_line(5000.0))
    users = np.maximum(sums, 0.0)
    np.testing.assert_allclose(
        emptied(users / 64, sums / 64, 1 / 64, ALL), emptied(users, sums, 1.0, ALL) / 64
    )


def test_no_noise_to_speak_of_and_no_cells_are_no_trouble() -> None:
    true = a_line(5000.0)
    np.testing.assert_allclose(emptied(true, true, 1e-9, ALL), true)
    np.testing.assert_array_equal(emptied(true, true, 1.0, ~ALL), true)
