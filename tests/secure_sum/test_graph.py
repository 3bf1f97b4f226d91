"""The neighbour graph: regular, symmetric, slots that mirror each other, every order alike."""

from __future__ import annotations

import hmac
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.graph import harary_graph, permutation
from mapveil_client.secure_sum.masks import Purpose, info


@st.composite
def graphs(draw):
    n = draw(st.integers(2, 40))
    k = draw(st.sampled_from([*range(2, n, 2), n - 1]))
    order = permutation(n, draw(st.binary(min_size=32, max_size=32)))
    return n, k, order, harary_graph(n, k, order)


def ring_neighbours(order: np.ndarray, k: int, i: int) -> set[int]:
    """Whoever is at most k / 2 places away, by walking."""
    n = order.size
    if k == n - 1:
        return set(range(n)) - {i}
    place = list(order).index(i)
    return {int(order[(place + step) % n]) for step in range(-(k // 2), k // 2 + 1) if step}


@given(graphs())
def test_neighbours_are_the_nearest_on_the_ring(made):
    n, k, order, graph = made
    assert graph.shape == (n, k)
    assert graph.dtype == np.int32
    for i in range(n):
        assert set(graph[i].tolist()) == ring_neighbours(order, k, i)
        assert len(set(graph[i].tolist())) == k


@given(graphs())
def test_slots_mirror_each_other(made):
    n, k, _, graph = made
    for i, s in itertools.product(range(n), range(1, k + 1)):
        j = int(graph[i, s - 1])
        assert graph[j, k - s] == i


@given(graphs())
def test_slots_count_the_places_ahead(made):
    n, k, order, graph = made
    for place, slot in itertools.product(range(n), range(1, k // 2 + 1)):
        assert graph[order[place], slot - 1] == order[(place + slot) % n]


def test_orders_are_uniform():
    seeds = (i.to_bytes(32, "big") for i in range(24_000))
    drawn = [tuple(permutation(4, seed).tolist()) for seed in seeds]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert counts.size == 24
    assert stats.chisquare(counts).pvalue > 1e-9


def test_an_order_sorts_the_words_of_its_seeds_stream():
    seed = bytes(range(32))
    # HKDF-Expand (RFC 5869) of one block, then AES-256 in counter mode, both by their definitions.
    key = hmac.digest(seed, info(Purpose.GRAPH, b"", b"") + b"\x01", "sha256")
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    stream = blocks.update(b"".join(i.to_bytes(16, "big") for i in range(4)))
    words = [int.from_bytes(stream[i : i + 8], "little") for i in range(0, 64, 8)]
    assert permutation(8, seed).tolist() == sorted(range(8), key=words.__getitem__)
    assert permutation(8, seed).tolist() == [2, 7, 0, 3, 5, 6, 1, 4]


def test_orders_of_different_seeds_differ():
    one, other = permutation(1_000, bytes(range(32))), permutation(1_000, bytes(32))
    assert np.array_equal(np.sort(one), np.arange(1_000))
    assert not np.array_equal(one, other)


def test_words_that_tie_are_drawn_again(monkeypatch):
    true_read, reads = np.frombuffer, []

    def tied_at_first(data, dtype):
        reads.append(true_read(data, dtype).copy())
        if len(reads) == 1:
            reads[0][3] = reads[0][7]
        return reads[-1]

    monkeypatch.setattr(np, "frombuffer", tied_at_first)
    order = permutation(50, bytes(32))
    assert len(reads) == 2
    assert not np.isin(reads[0], reads[1]).any()  # the stream went on
    assert np.array_equal(order, np.argsort(reads[1]))


@pytest.mark.parametrize(("n", "k"), [(5, 3), (5, 5), (5, 0), (6, 3), (1, 0)])
def test_graphs_that_are_not_there_are_refused(n, k):
    with pytest.raises(ParameterError, match=f"neighbours must be .* got {k}"):
        harary_graph(n, k, np.arange(n))


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 1, 2, 3, 3], [1, 2, 3, 4, 5]])
def test_what_is_no_order_is_refused(order):
    with pytest.raises(ParameterError, match="permutation must be an order"):
        harary_graph(5, 2, np.array(order))


def test_seeds_have_one_length():
    with pytest.raises(ParameterError, match="32 bytes, got 31"):
        permutation(5, bytes(31))
