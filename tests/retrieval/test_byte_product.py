"""Two kernels, one answer. Oracle: Python's integers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.retrieval import byte_product as module
from mapveil.retrieval.byte_product import byte_product, compiled_product, plain_product
from mapveil_client.errors import MissingExtra


@pytest.fixture(params=["plain", "compiled"], scope="module")
def kernel(request):
    return byte_product(compiled=request.param == "compiled")


def oracle(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    exact = matrix.astype(object) @ vector.astype(object)
    return np.array([int(value) % (1 << 32) for value in exact], dtype=np.uint32)


@given(st.integers(1, 70), st.integers(1, 2100), st.integers(0, 2**32))
def test_products_are_exact(kernel, rows, columns, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-128, 128, (rows, columns), dtype=np.int8)
    vector = rng.integers(0, 1 << 32, columns, dtype=np.uint32)
    assert np.array_equal(kernel(matrix, vector), oracle(matrix, vector))


# The words whose signed digits are all -128, all 127, or carry furthest; and bytes of one sign at their longest.
@pytest.mark.parametrize("word", [0x7F7F7F80, 0x7F7F7F7F, 0x80808080, 0xFFFFFFFF, 0x00000080, 0])
@pytest.mark.parametrize("byte", [-128, 127])
@pytest.mark.parametrize("columns", [1, 1023, 1024, 1025, 8192, 1 << 16])
def test_the_longest_sums_do_not_round(kernel, word, byte, columns):
    matrix = np.full((9, columns), byte, dtype=np.int8)
    vector = np.full(columns, word, dtype=np.uint32)
    assert (kernel(matrix, vector) == byte * word * columns % (1 << 32)).all()


def test_every_byte_meets_every_place_of_a_word(kernel):
    matrix = np.arange(-128, 128, dtype=np.int8)[:, None]
    for word in (1, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 24, 1 << 31):
        vector = np.array([word], dtype=np.uint32)
        assert np.array_equal(kernel(matrix, vector), oracle(matrix, vector))


def test_nothing_is_written_to_the_database(kernel):
    matrix = np.ones((3, 5), dtype=np.int8)
    matrix.flags.writeable = False
    vector = np.arange(5, dtype=np.uint32)
    vector.flags.writeable = False
    assert kernel(matrix, vector).tolist() == [10, 10, 10]


def test_without_the_extra_numpy_does_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled_product.cache_clear()
    try:
        assert byte_product() is plain_product
        with pytest.raises(MissingExtra, match="the extra fast"):
            byte_product(compiled=True)
    finally:
        compiled_product.cache_clear()


def test_with_the_extra_it_is_compiled_once():
    assert byte_product() is byte_product(compiled=True) is compiled_product()
    assert byte_product(compiled=False) is plain_product
    assert module.compiled_product.cache_info().currsize == 1
