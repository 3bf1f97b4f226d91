"""Packing: the numbers are the digits of one long integer, and nothing else is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import PeerFault
from mapveil_client.secure_sum.vectors import pack, packed_size, unpack


def numbers(seed: int, length: int, bits: int) -> np.ndarray:
    return Randomness(seed).words(length, np.uint64) >> np.uint64(64 - bits)


def as_integer(values: np.ndarray, bits: int) -> int:
    return sum(int(value) << (i * bits) for i, value in enumerate(values))


@pytest.mark.parametrize("bits", range(1, 65))
@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 65, 333, 1023, 1024, 1025, 1999])
def test_every_width_is_one_long_integer(bits, length):
    values = numbers(bits, length, bits)
    data = pack(values, bits)
    assert len(data) == packed_size(length, bits) == (length * bits + 7) // 8
    assert int.from_bytes(data, "little") == as_integer(values, bits)
    read = unpack(data, length, bits)
    assert read.dtype == np.uint64
    assert np.array_equal(read, values)


@given(st.integers(1, 64), st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_numbers_come_back(bits, values):
    array = np.array([value % 2**bits for value in values], dtype=np.uint64)
    assert np.array_equal(unpack(pack(array, bits), array.size, bits), array)


@pytest.mark.parametrize("word", ["<u1", "<u2", "<u4", "<u8"])
def test_words_of_any_width_pack_alike(word):
    values = numbers(3, 100, 7)
    assert pack(values.astype(word), 7) == pack(values, 7)


@pytest.mark.parametrize("bits", [1, 7, 20, 33, 63])
def test_a_number_too_large_is_refused(bits):
    values = np.array([0, 1 << bits], dtype=np.uint64)
    with pytest.raises(ParameterError, match="is to be packed"):
        pack(values, bits)


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("bits", [5, 8, 64])
def test_a_string_of_another_size_is_refused(bits, change):
    data = pack(numbers(1, 11, bits), bits)
    wrong = data[:change] if change < 0 else data + b"\0"
    with pytest.raises(PeerFault, match=f"exactly {len(data)}"):
        unpack(wrong, 11, bits)


@pytest.mark.parametrize("bits", [1, 3, 5, 9, 31, 63])
def test_every_bit_left_over_must_be_zero(bits):
    length = 3
    data = pack(numbers(2, length, bits), bits)
    for bit in range(length * bits, 8 * len(data)):
        wrong = (int.from_bytes(data, "little") | 1 << bit).to_bytes(len(data), "little")
        with pytest.raises(PeerFault, match="not zero"):
            unpack(wrong, length, bits)


@pytest.mark.parametrize("bits", [0, 65])
def test_widths_outside_1_to_64_are_refused(bits):
    with pytest.raises(ParameterError, match="1 to 64"):
        pack(np.zeros(1, dtype=np.uint64), bits)
    with pytest.raises(ParameterError, match="1 to 64"):
        unpack(b"", 0, bits)
