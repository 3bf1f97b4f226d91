"""The public matrix and the products made with it. Oracles: the cipher itself, Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.retrieval.gaussian import LARGEST, draw_gaussian
from mapveil.retrieval.matrix import hint_of, hint_times_secret, matrix_key, matrix_rows, matrix_times_secret
from mapveil_client.randomness.random import Randomness

KEY = matrix_key(bytes(32))


def modulo(values: np.ndarray) -> np.ndarray:
    return (values % (1 << 32)).astype(np.uint32)


def test_it_is_the_ciphers_keystream_row_by_row():
    stream = Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(4096 * 7))
    assert np.array_equal(matrix_rows(KEY, 0, 7).reshape(-1), np.frombuffer(stream, dtype="<u4"))


@given(st.integers(0, 1 << 16), st.integers(0, 5))
def test_rows_can_be_had_from_anywhere(start, count):
    rows = matrix_rows(KEY, start, count)
    assert rows.shape == (count, 1024)
    for at in range(count):
        assert np.array_equal(rows[at], matrix_rows(KEY, start + at, 1)[0])


def test_another_version_another_matrix():
    assert not np.array_equal(matrix_rows(KEY, 0, 1), matrix_rows(matrix_key(b"\1" * 32), 0, 1))


@settings(max_examples=15)
@given(st.integers(1, 5), st.integers(1, 600), st.integers(0, 1 << 32))
def test_the_hint_is_the_product(rows, columns, seed):
    matrix = np.random.default_rng(seed).integers(-128, 128, (rows, columns), dtype=np.int8)
    exact = matrix.astype(np.int64) @ matrix_rows(KEY, 0, columns).astype(np.int64)
    assert np.array_equal(hint_of(matrix, KEY), modulo(exact))


@pytest.mark.parametrize("byte", [-128, 127])
def test_the_hint_is_exact_over_many_columns(byte):
    columns = 5000
    matrix = np.full((1, columns), byte, dtype=np.int8)
    sums = matrix_rows(KEY, 0, columns).astype(np.uint64).sum(axis=0).astype(object)
    expected = np.array([int(value) * byte % (1 << 32) for value in sums], dtype=np.uint32)
    assert np.array_equal(hint_of(matrix, KEY)[0], expected)


def test_rows_beyond_one_block():
    matrix = np.random.default_rng(1).integers(-128, 128, (2050, 3), dtype=np.int8)
    exact = matrix.astype(np.int64) @ matrix_rows(KEY, 0, 3).astype(np.int64)
    assert np.array_equal(hint_of(matrix, KEY), modulo(exact))


@pytest.mark.parametrize("columns", [1, 255, 256, 257, 700])
def test_the_product_with_a_secret(columns):
    secret = draw_gaussian(1024, Randomness(1))
    exact = matrix_rows(KEY, 0, columns).astype(np.int64) @ secret.astype(np.int64)
    assert np.array_equal(matrix_times_secret(KEY, columns, secret), modulo(exact))


@pytest.mark.parametrize("value", [-LARGEST, LARGEST])
@pytest.mark.parametrize("word", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_the_longest_secret_does_not_round(value, word):
    secret = np.full(1024, value, dtype=np.int16)
    words = np.full((2, 1024), word, dtype=np.uint32)
    assert (hint_times_secret(words, secret) == word * value * 1024 % (1 << 32)).all()
