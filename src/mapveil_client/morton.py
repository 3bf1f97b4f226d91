"""Morton codes: two coordinates as one integer whose prefixes are the nodes of a quadtree.

Digit k of a code (base 4, from the least significant) is ``2 * y_k + x_k`` for bits k of the column x and the
row y, as in quadkeys. A node of level j is a code below ``4**j``, and its subtree at level d is the interval
``[node << 2 (d - j), (node + 1) << 2 (d - j))``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError

WordArray = npt.NDArray[np.uint64]

MAX_BITS: Final = 31
"""Bits per coordinate: codes stay below 2**62, so they are also exact as int64."""

# Blocks of 2**j bits, with as many zeros after each: spreading goes down the list, gathering up.
_BLOCKS: Final = tuple(
    (np.uint64(shift), np.uint64(spread), np.uint64(gathered))
    for shift, spread, gathered in (
        (16, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF),
        (8, 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF),
        (4, 0x0F0F0F0F0F0F0F0F, 0x00FF00FF00FF00FF),
        (2, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F),
        (1, 0x5555555555555555, 0x3333333333333333),
    )
)
_ONE: Final = np.uint64(1)
_EVEN: Final = np.uint64(0x5555555555555555)
_CHUNK: Final = 1 << 15  # words of a chunk and its scratch stay in the cache


class RowCol(NamedTuple):
    """Rows (from the north) and columns (from the west), int64."""

    row: IntArray
    col: IntArray


class Interval(NamedTuple):
    """Codes ``first .. last - 1``."""

    first: IntArray
    last: IntArray


def interleave(row: IntArray, col: IntArray) -> IntArray:
    """The Morton codes of rows and columns.

    Parameters
    ----------
    row, col : ndarray of int64, shape (n,)
        Each in 0 .. 2**31 - 1.

    Raises
    ------
    ParameterError
        A coordinate is out of range.

    Examples
    --------
    >>> interleave(np.array([0, 1, 1]), np.array([1, 0, 1])).tolist()
    [1, 2, 3]
    """
    row, col = np.asarray(row, dtype=np.int64), np.asarray(col, dtype=np.int64)
    code = np.empty(col.shape, dtype=np.uint64)
    out, flat_row, flat_col = code.reshape(-1), row.reshape(-1), col.reshape(-1)
    spread_row = np.empty(min(_CHUNK, out.size), dtype=np.uint64)
    scratch = np.empty_like(spread_row)
    for start in range(0, out.size, _CHUNK):
        x = out[start : start + _CHUNK]
        y = spread_row[: x.size]
        x[:] = flat_col[start : start + _CHUNK]
        y[:] = flat_row[start : start + _CHUNK]
        largest = int(
            np.bitwise_or(x, y, out=scratch[: x.size]).max()
        )  # its bits bound both; negatives are huge
        if largest >> MAX_BITS:
            raise ParameterError(f"a row or column is negative or at least 2**{MAX_BITS}")
        _spread(x, scratch[: x.size], largest.bit_length())
        _spread(y, scratch[: x.size], largest.bit_length())
        y <<= _ONE
        x |= y
    return code.view(np.int64)


def deinterleave(code: IntArray) -> RowCol:
    """The rows and columns of Morton codes, the inverse of :func:`interleave`.

    Parameters
    ----------
    code : ndarray of int64, shape (n,)
        Each in 0 .. 2**62 - 1.

    Examples
    --------
    >>> deinterleave(np.array([1, 2, 3])).col.tolist()
    [1, 0, 1]
    """
    code = np.ascontiguousarray(code, dtype=np.int64)
    row, col = np.empty(code.shape, dtype=np.uint64), np.empty(code.shape, dtype=np.uint64)
    flat, rows, cols = code.reshape(-1).view(np.uint64), row.reshape(-1), col.reshape(-1)
    scratch = np.empty(min(_CHUNK, flat.size), dtype=np.uint64)
    for start in range(0, flat.size, _CHUNK):
        word = flat[start : start + _CHUNK]
        x, y = cols[start : start + _CHUNK], rows[start : start + _CHUNK]
        bits = (int(word.max()).bit_length() + 1) // 2
        np.bitwise_and(word, _EVEN, out=x)
        np.right_shift(word, _ONE, out=y)
        y &= _EVEN
        _gather(x, scratch[: x.size], bits)
        _gather(y, scratch[: x.size], bits)
    return RowCol(row.view(np.int64), col.view(np.int64))


def ancestors(code: IntArray, levels: int) -> IntArray:
    """The nodes ``levels`` levels up: the codes without their last ``levels`` digits."""
    return np.asarray(code, dtype=np.int64) >> (2 * _checked_levels(levels))


def children(code: IntArray) -> IntArray:
    """The four nodes one level down (north-west, north-east, south-west, south-east), shape (n, 4)."""
    return (np.asarray(code, dtype=np.int64)[..., None] << 2) + np.arange(4)


def interval(code: IntArray, levels: int) -> Interval:
    """The codes ``levels`` levels down that have each node as their prefix.

    Examples
    --------
    >>> interval(np.array([1]), 2)
    Interval(first=array([16]), last=array([32]))
    """
    shift = 2 * _checked_levels(levels)
    code = np.asarray(code, dtype=np.int64)
    return Interval(code << shift, (code + 1) << shift)


def _checked_levels(levels: int) -> int:
    if not 0 <= levels <= MAX_BITS:
        raise ParameterError(f"levels is {levels!r}; 0 to {MAX_BITS} is accepted")
    return levels


def _spread(words: WordArray, scratch: WordArray, bits: int) -> None:
    """Put a zero before every bit, in place."""
    for shift, spread, _ in _BLOCKS:
        if bits > shift:
            np.left_shift(words, shift, out=scratch)
            np.bitwise_or(words, scratch, out=words)
            np.bitwise_and(words, spread, out=words)


def _gather(words: WordArray, scratch: WordArray, bits: int) -> None:
    """Drop every second bit, in place."""
    for shift, _, gathered in reversed(_BLOCKS):
        if bits > shift:
            np.right_shift(words, shift, out=scratch)
            np.bitwise_or(words, scratch, out=words)
            np.bitwise_and(words, gathered, out=words)
