"""Dense networks: against a loop in double precision; and the normals they are fed with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil.obfuscation.privatizers.dense_network import DenseNetwork, network_normals
from mapveil_client.randomness.random import Randomness


def random_network(sizes: list[int], seed: int) -> DenseNetwork:
    draw = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(sizes))
    return DenseNetwork(
        tuple(draw.standard_normal(pair).astype(np.float32) for pair in pairs),
        tuple(draw.standard_normal(pair[1]).astype(np.float32) for pair in pairs),
    )


def slow(network: DenseNetwork, row: np.ndarray) -> list[float]:
    level = [float(value) for value in row]
    for at, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        sums = [
            math.fsum(
                [float(bias[out]), *(level[into] * float(weight[into, out]) for into in range(len(level)))]
            )
            for out in range(weight.shape[1])
        ]
        level = sums if at == len(network.weights) - 1 else [max(0.0, value) for value in sums]
    return level


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_apply_is_what_a_loop_gives(sizes: list[int], rows: int, seed: int) -> None:
    network = random_network(sizes, seed)
    given_rows = np.random.default_rng(seed).standard_normal((rows, sizes[0]))
    expected = np.array([slow(network, row.astype(np.float32)) for row in given_rows]).reshape(
        rows, sizes[-1]
    )
    np.testing.assert_allclose(network.apply(given_rows), expected, rtol=1e-3, atol=1e-3)


def test_rows_beyond_a_chunk_are_privatized_like_the_first() -> None:
    network = random_network([3, 8, 2], 1)
    row = np.array([[0.3, -1.0, 2.0]])
    many = network.apply(np.repeat(row, 20_001, axis=0))
    assert many.dtype == np.float32
    np.testing.assert_allclose(many, np.repeat(network.apply(row), 20_001, axis=0), rtol=1e-5)


def test_state_names_every_array_and_is_read_back() -> None:
    network = random_network([4, 5, 6, 2], 2)
    state = network.state()
    assert sorted(state) == ["bias0", "bias1", "bias2", "weight0", "weight1", "weight2"]
    again = DenseNetwork.of_state(state)
    rows = np.random.default_rng(3).standard_normal((7, 4))
    np.testing.assert_array_equal(again.apply(rows), network.apply(rows))


@pytest.mark.parametrize(("scale", "likely"), [(1.0, True), (1.3, False), (0.7, False)])
def test_normals_have_the_normal_law(scale: float, likely: bool) -> None:
    drawn = network_normals(10_001, 3, Randomness(5))
    assert drawn.shape == (10_001, 3)
    assert np.isfinite(drawn).all()
    assert bool(stats.kstest(drawn.ravel() * scale, "norm").pvalue > 1e-6) is likely


def test_neighbouring_normals_are_independent() -> None:
    drawn = network_normals(100_000, 2, Randomness(6))
    for first, second in ((drawn[:, 0], drawn[:, 1]), (drawn[:-1, 1], drawn[1:, 0])):
        # The two of a pair share a radius: squares would betray a wrong transform, not only the products.
        for power in (1, 2):
            assert abs(np.corrcoef(first**power, second**power)[0, 1]) < 6 / math.sqrt(100_000)


def test_no_normals_where_none_are_asked() -> None:
    assert network_normals(0, 4, Randomness(1)).shape == (0, 4)
