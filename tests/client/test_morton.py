"""Morton codes against a slow oracle that writes out the digits."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.morton import MAX_BITS, children, deinterleave, interleave

COORDINATE = st.integers(0, 2**MAX_BITS - 1)
PAIRS = st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=40)


def slow_code(row: int, col: int) -> int:
    digits = [2 * int(y) + int(x) for y, x in zip(f"{row:031b}", f"{col:031b}", strict=True)]
    return int("".join(map(str, digits)), 4)


@settings(deadline=None)
@given(PAIRS)
def test_codes_have_the_digits_of_both_coordinates(pairs: list[tuple[int, int]]) -> None:
    row, col = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    code = interleave(row, col)
    assert code.dtype == np.int64
    assert code.tolist() == [slow_code(*pair) for pair in pairs]
    back = deinterleave(code)
    np.testing.assert_array_equal(back.row, row)
    np.testing.assert_array_equal(back.col, col)


@pytest.mark.parametrize("bits", range(MAX_BITS + 1))
def test_every_number_of_bits_keeps_its_top_bit(bits: int) -> None:
    largest = np.array([2**bits - 1, 0, 2**bits - 1])
    other = largest[::-1].copy()
    other[1] = 2**bits - 1
    code = interleave(largest, other)
    assert code.tolist() == [slow_code(*pair) for pair in zip(largest.tolist(), other.tolist(), strict=True)]
    back = deinterleave(code)
    np.testing.assert_array_equal(back.row, largest)
    np.testing.assert_array_equal(back.col, other)


def test_chunks_join_without_a_seam() -> None:
    generator = np.random.default_rng(0)
    row, col = generator.integers(0, 2**MAX_BITS, (2, 150_001))
    row[: 1 << 16] &= 0xFF  # chunks of few and of many bits
    col[: 1 << 16] &= 0xFF
    code = interleave(row, col)
    some = generator.integers(0, row.size, 300)
    assert code[some].tolist() == [slow_code(int(row[i]), int(col[i])) for i in some]
    back = deinterleave(code)
    np.testing.assert_array_equal(back.row, row)
    np.testing.assert_array_equal(back.col, col)


def test_shapes_are_kept_and_nothing_gives_nothing() -> None:
    assert interleave(np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3)).shape == (2, 3)
    assert interleave(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)).shape == (0,)
    assert deinterleave(np.zeros(0, dtype=np.int64)).row.shape == (0,)
    assert deinterleave(np.arange(8)[::2]).col.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("bad", [-1, 2**MAX_BITS])
def test_coordinates_out_of_range_are_refused(bad: int) -> None:
    with pytest.raises(ParameterError, match="2\\*\\*31"):
        interleave(np.array([0, bad]), np.array([0, 0]))
    with pytest.raises(ParameterError, match="2\\*\\*31"):
        interleave(np.array([0, 0]), np.array([bad, 0]))


def test_children_are_north_west_north_east_south_west_south_east() -> None:
    node = np.array([[0, 3], [7, 12]])
    four = children(node)
    assert four.shape == (2, 2, 4)
    np.testing.assert_array_equal(four >> 2, np.broadcast_to(node[..., None], four.shape))
    row, col = deinterleave(four)
    np.testing.assert_array_equal(row & 1, np.broadcast_to([0, 0, 1, 1], four.shape))
    np.testing.assert_array_equal(col & 1, np.broadcast_to([0, 1, 0, 1], four.shape))


def test_both_ways_are_fast() -> None:
    # The benchmark measures it; here a tenth of the promised 50 M codes/s catches a loop in Python.
    row, col = np.random.default_rng(0).integers(0, 2**MAX_BITS, (2, 1_000_000))
    best = {"interleave": np.inf, "deinterleave": np.inf}
    for _ in range(3):
        started = time.perf_counter()
        code = interleave(row, col)
        between = time.perf_counter()
        deinterleave(code)
        best["interleave"] = min(best["interleave"], between - started)
        best["deinterleave"] = min(best["deinterleave"], time.perf_counter() - between)
    assert max(best.values()) < 0.2
