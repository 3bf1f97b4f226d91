from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.inference.local_dimension import local_dimension

ALL = np.ones((9, 9), dtype=np.int64)


def test_a_plane_a_line_and_a_point_have_their_dimensions() -> None:
    line = np.zeros((9, 9))
    line[4] = 5.0
    point = np.zeros((9, 9))
    point[4, 4] = 5.0
    np.testing.assert_allclose(local_dimension(np.full((9, 9), 5.0), ALL), 2.0)
    assert local_dimension(line, ALL)[4, 4] == pytest.approx(1.0)
    assert local_dimension(point, ALL)[4, 4] < 1.0


@given(seed=st.integers(0, 1000), factor=st.floats(1e-3, 1e3))
@settings(max_examples=30)
def test_the_unit_of_users_and_the_place_do_not_matter(seed: int, factor: float) -> None:
    users = np.random.default_rng(seed).gamma(0.5, 10, (8, 8))
    found = local_dimension(users, np.ones((8, 8)))
    np.testing.assert_allclose(local_dimension(factor * users, np.ones((8, 8))), found)
    np.testing.assert_allclose(local_dimension(users.T[::-1], np.ones((8, 8))), found.T[::-1])
    assert ((found <= 2) & (found > 0)).all()


def test_blocks_where_nobody_can_be_are_no_sign_of_a_hot_spot() -> None:
    coast = ALL.copy()
    coast[:, :4] = 0
    users = 5.0 * coast
    np.testing.assert_allclose(local_dimension(users, coast)[coast > 0], 2.0)
    assert np.isfinite(local_dimension(users, coast)).all()
