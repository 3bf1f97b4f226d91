"""Clipping: never outside the ball, never turned, and the pilot's quantile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mapveil.obfuscation.privatizers.clipping import clip_rows, pilot_radius

ROWS = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.floats(-1e6, 1e6))


@given(ROWS, st.floats(1e-3, 1e3), st.sampled_from([1, 2]))
def test_rows_come_inside_and_keep_their_direction(rows: np.ndarray, radius: float, order: int) -> None:
    clipped = clip_rows(rows, radius, order)
    assert (np.linalg.norm(clipped, order, axis=1) <= radius).all()
    norms = np.linalg.norm(rows, order, axis=1)
    for row, made, norm in zip(rows, clipped, norms, strict=True):
        assert made == pytest.approx(row if norm <= radius else row * radius / norm, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_the_radius_shortens_the_part_asked_for(order: int) -> None:
    rows = np.random.default_rng(1).standard_normal((20_000, 7))
    radius = pilot_radius(rows, 0.05, order)
    assert np.mean(np.linalg.norm(rows, order, axis=1) > radius) == pytest.approx(0.05, abs=1e-4)
    assert pilot_radius(rows, 0.0, order) == np.linalg.norm(rows, order, axis=1).max()
