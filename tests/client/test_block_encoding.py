from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.encodings import BlockEncoding, even_edges
from mapveil_client.errors import ParameterError
from mapveil_client.morton import interleave


@given(first=st.integers(0, 50), length=st.integers(1, 200), parts=st.integers(1, 250))
def test_edges_are_even(first, length, parts):
    edges = even_edges(first, first + length, parts)
    count = min(parts, length)
    assert edges.tolist() == [first + math.ceil(i * length / count) for i in range(count + 1)]
    lengths = np.diff(edges)
    assert lengths.min() >= 1
    assert lengths.max() - lengths.min() <= 1


@st.composite
def encodings(draw):
    depth = draw(st.integers(1, 4))
    sides = []
    for _ in range(2):
        edges = draw(st.lists(st.integers(0, 1 << depth), min_size=2, max_size=5, unique=True))
        sides.append(np.array(sorted(edges)))
    shape = (sides[0].size - 1, sides[1].size - 1)
    parts = draw(st.lists(st.integers(0, 20), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return BlockEncoding(depth, *sides, np.array(parts, dtype=np.int64).reshape(shape))


def slowly(encoding):
    """The coordinate of every (row, column), by walking over blocks and parts."""
    found, start = {}, 0
    for i in range(encoding.rows.size - 1):
        for j in range(encoding.columns.size - 1):
            top, bottom = encoding.rows[i : i + 2].tolist()
            left, right = encoding.columns[j : j + 2].tolist()
            asked = int(encoding.parts[i, j])
            down, across = min(asked, bottom - top), min(asked, right - left)
            for row in range(top, bottom):
                for column in range(left, right):
                    if asked:
                        part = (row - top) * down // (bottom - top) * across
                        part += (column - left) * across // (right - left)
                        found[row, column] = (start + part, i * (encoding.columns.size - 1) + j)
            start += down * across
    return found, start


@given(encodings())
def test_every_coordinate_is_that_of_a_plain_walk(encoding):
    found, length = slowly(encoding)
    assert encoding.length == length == encoding.block.size
    side = 1 << encoding.depth
    row, column = (axis.ravel() for axis in np.indices((side, side)))
    position = encoding.positions(interleave(row, column))
    assert position.shape == (side * side, 1)
    for r, c, at in zip(row.tolist(), column.tolist(), position[:, 0].tolist(), strict=True):
        assert at == found.get((r, c), (-1, -1))[0]
        if at >= 0:
            assert encoding.block[at] == found[r, c][1]
    # Every coordinate is somebody's: no part is without a site.
    assert set(range(length)) == {at for at, _ in found.values()}


def test_a_place_outside_counts_nowhere():
    encoding = BlockEncoding(2, np.array([0, 4]), np.array([0, 4]), np.array([[2]]))
    assert encoding.positions(np.array([-1, 16, -(2**40), 2**40])).tolist() == [[-1]] * 4


@pytest.mark.parametrize(
    ("depth", "rows", "columns", "parts"),
    [
        (2, [0], [0, 4], []),
        (2, [0, 5], [0, 4], [[1]]),
        (2, [0, 4], [-1, 4], [[1]]),
        (2, [0, 4], [2, 2], [[1]]),
        (2, [0, 4], [3, 1], [[1]]),
        (2, [0, 4], [0, 4], [[1, 1]]),
        (2, [0, 4], [0, 4], [[-1]]),
        (2, [[0, 4]], [0, 4], [[1]]),
        (32, [0, 4], [0, 4], [[1]]),
    ],
)
def test_senseless_encodings_are_refused(depth, rows, columns, parts):
    with pytest.raises(ParameterError, match=r"must be|expected"):
        BlockEncoding(*([depth] + [np.array(each, dtype=np.int64) for each in (rows, columns, parts)]))
