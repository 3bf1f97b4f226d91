"""The structured inverse against the whole matrix."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mapveil.local.estimators.nested_system import NestedSystem
from mapveil_client.local.staircase_groups import Blocks


def nested(size: int, cuts: int, generator: np.random.Generator) -> list[Blocks]:
    """Partitions into intervals, each coarser than the one before."""
    starts = np.arange(size)
    made = []
    for _ in range(cuts):
        keep = generator.random(starts.size) < 0.5
        keep[0] = True
        starts = starts[keep]
        count = np.diff(np.append(starts, size))
        made.append(Blocks(starts, count, np.repeat(np.arange(starts.size), count)))
    return made


def matrix_of(system: NestedSystem, size: int) -> np.ndarray:
    matrix = system.own * np.eye(size) + system.everywhere
    for blocks, weight in zip(system.blocks, system.weights, strict=True):
        matrix += weight * (blocks.of_rank[:, None] == blocks.of_rank)
    return matrix


@given(st.integers(2, 30), st.integers(0, 3), st.integers(0, 10**6))
def test_solves_and_squares_as_the_dense_inverse_does(size: int, cuts: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    system = NestedSystem(
        float(generator.uniform(0.1, 3)),
        nested(size, cuts, generator),
        generator.uniform(0, 2, cuts).tolist(),
        float(generator.uniform(0, 2)),
    )
    inverse = np.linalg.inv(matrix_of(system, size))
    c, pi = generator.normal(size=size), generator.random(size)
    np.testing.assert_allclose(system.solve(c), inverse @ c, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(system.square_sums(pi), np.square(inverse) @ pi, rtol=1e-7, atol=1e-12)
