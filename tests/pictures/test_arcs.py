"""Arcs: they begin and end where flows do, and bend to the left."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.pictures.picture_plane import POINTS, arcs


@pytest.mark.parametrize("aspect", [1.0, 1.31, 0.4])
def test_arcs_join_the_ends_and_bend_to_the_left(aspect: float) -> None:
    ends = np.random.default_rng(1).normal(size=(132, 2, 2))
    made = arcs(ends, aspect)
    assert made.shape == (132, POINTS, 2)
    np.testing.assert_allclose(made[:, [0, -1]], ends, atol=1e-12)
    # On the ground (an axis stretched to metres) the middle is 0.18 of the length away, at a right angle, to the left.
    ground = np.array([1.0, aspect])
    along = (ends[:, 1] - ends[:, 0]) * ground
    away = (made[:, POINTS // 2] - ends.mean(axis=1)) * ground
    length = np.hypot(*along.T)
    cross = along[:, 0] * away[:, 1] - along[:, 1] * away[:, 0]
    np.testing.assert_allclose(cross / length**2, 0.18, rtol=1e-6)
    np.testing.assert_allclose((along * away).sum(axis=1) / length**2, 0, atol=1e-6)


def test_there_and_back_are_two_arcs() -> None:
    there, back = arcs(np.array([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]), 1.0)
    assert not np.allclose(there[POINTS // 2], back[POINTS // 2])
    np.testing.assert_allclose(there[0], back[-1])
