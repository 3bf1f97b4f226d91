from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.secure_sum.drivers import IdealSum
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors
from reproductions.bagdasaryan.modulo_clip import ClippedSum, wrapped

SETTINGS = SumSettings(length=3, bits=40, round_id=bytes(16))


def vectors(values: list[int]) -> SparseVectors:
    """One client a value, all at coordinate 1."""
    count = len(values)
    return SparseVectors(
        count, 3, np.arange(count), np.ones(count, dtype=np.int64), np.array(values, dtype=np.int64)
    )


def total(driver: IdealSum | ClippedSum, values: list[int], settings: SumSettings = SETTINGS) -> list[int]:
    leaves = np.full(len(values), Leaves.NEVER, dtype=np.int8)
    found = driver.sums(
        vectors(values),
        np.array([0, len(values)]),
        leaves,
        settings,
        Randomness(1),
        before_reveal=lambda counts: None,
    )
    modulus = 1 << settings.bits
    return [int(each) - modulus * (int(each) >= modulus // 2) for each in found[0].total]


def signed(value: int, bits: int) -> int:
    """A word of so many bits, as anybody would compute it."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@given(st.lists(st.integers(-(2**36), 2**36), min_size=2, max_size=6), st.integers(1, 38))
def test_a_clipped_sum_is_the_sum_of_clipped_vectors(values: list[int], bits: int) -> None:
    expected = signed(sum(values), bits)
    assert total(ClippedSum(bits), values) == [0, expected, 0]
    assert total(ClippedSum(bits), [signed(value, bits) for value in values]) == [0, expected, 0]
    if -(2 ** (bits - 1)) <= sum(values) < 2 ** (bits - 1):
        assert total(IdealSum(), values) == [0, expected, 0]


@given(st.integers(0, 2**64 - 1), st.integers(1, 61))
def test_wrapping_reads_the_low_bits_as_a_signed_word(word: int, bits: int) -> None:
    found = wrapped(np.array([word], dtype=np.uint64), bits).view(np.int64)
    assert int(found[0]) == signed(word, bits)


def test_a_clip_as_wide_as_the_modulus_is_refused() -> None:
    with pytest.raises(ParameterError, match="a modulus of 40 bits; expected more than 40"):
        total(ClippedSum(40), [1, 2])
    for bits in (0, 62):
        with pytest.raises(ParameterError, match=f"clip is {bits} bits"):
            ClippedSum(bits)
