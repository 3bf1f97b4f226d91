from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.inference.nested_rounds import block_inference


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    block_variance=st.floats(0.01, 100),
    part_variance=st.floats(0.01, 100),
)
def test_equals_weighted_least_squares(seed: int, block_variance: float, part_variance: float) -> None:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 7, 5)
    block = np.repeat(np.arange(5), sizes)
    v, u = generator.normal(10, 5, 5), generator.normal(3, 5, block.size)
    matrix = np.concatenate(
        [np.eye(block.size) * part_variance**-0.5, (block == np.arange(5)[:, None]) * block_variance**-0.5]
    )
    measured = np.concatenate([u * part_variance**-0.5, v * block_variance**-0.5])
    slow = np.linalg.lstsq(matrix, measured, rcond=None)[0]
    made = block_inference(v, u, block, block_variance, part_variance)
    np.testing.assert_allclose(made, slow, atol=1e-7)


def test_without_any_noise_the_parts_stand() -> None:
    made = block_inference(np.array([5.0]), np.array([3.0, 2.0]), np.array([0, 0]), 0.0, 0.0)
    np.testing.assert_allclose(made, [3.0, 2.0])


def test_a_block_without_parts_is_left_out() -> None:
    made = block_inference(np.array([5.0, 2.0]), np.array([3.0]), np.array([1]), 1.0, 1.0)
    np.testing.assert_allclose(made, [2.5])
