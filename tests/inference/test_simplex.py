"""From estimates to distributions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mapveil.inference.simplex import norm_clip, project_to_simplex

VALUES = arrays(np.float64, st.integers(1, 20), elements=st.floats(-5, 5, allow_subnormal=False))


@given(VALUES)
def test_the_projection_is_the_nearest_distribution(values: np.ndarray) -> None:
    made = project_to_simplex(values)
    assert made.min() >= 0
    np.testing.assert_allclose(made.sum(), 1, atol=1e-9)
    # Optimal if and only if no corner is in the direction of what was taken off.
    lost = values - made
    assert lost.max() <= lost @ made + 1e-8


@given(VALUES)
def test_clipping_keeps_proportions(values: np.ndarray) -> None:
    made = norm_clip(values)
    np.testing.assert_allclose(made.sum(), 1, atol=1e-9)
    if values.max() > 0:
        np.testing.assert_allclose(made * np.maximum(values, 0).sum(), np.maximum(values, 0), atol=1e-9)
    else:
        assert np.ptp(made) == 0
