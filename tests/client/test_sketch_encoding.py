from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import SketchEncoding

CERTAIN = 1e-9


def column_slowly(encoding, index, row, node):
    """The header's formula in Python's whole numbers."""
    words = hashlib.blake2b(
        encoding.levels[index].to_bytes(4, "little") + row.to_bytes(4, "little"),
        key=encoding.key.encode(),
        digest_size=16,
    ).digest()
    a, b = int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little")
    return encoding.width * (((a * node + b) % 2**64) // 2**32) // 2**32


@given(
    depth=st.integers(0, 15),
    width=st.integers(1, 2**31),
    rows=st.integers(1, 5),
    key=st.text(max_size=10),
    data=st.data(),
)
def test_every_coordinate_follows_the_formula(depth, width, rows, key, data):
    levels = tuple(data.draw(st.lists(st.integers(0, depth), min_size=1, max_size=3, unique=True)))
    sites = data.draw(st.lists(st.integers(-1, 4**depth - 1), max_size=20))
    encoding = SketchEncoding(depth, levels, width, rows, key)
    found = encoding.positions(np.array(sites, dtype=np.int64))
    assert found.shape == (len(sites), encoding.copies)
    for site, position in zip(sites, found.tolist(), strict=True):
        if site < 0:
            assert position == [-1] * encoding.copies
            continue
        wanted = [
            (index * rows + row) * width + column_slowly(encoding, index, row, site >> 2 * (depth - level))
            for index, level in enumerate(levels)
            for row in range(rows)
        ]
        assert position == wanted
        assert max(position) < encoding.length


def colliding(encoding, pairs):
    """How many of the pairs of nodes share a column, over all rows."""
    return sum(
        np.count_nonzero(encoding.columns(0, row, pairs[:, 0]) == encoding.columns(0, row, pairs[:, 1]))
        for row in range(encoding.rows)
    )


@pytest.mark.parametrize("apart", [1, 2, 3, 1024])
def test_two_nodes_share_a_column_once_in_width(apart):
    # Multiply-shift must hold for nodes that follow each other, as those of a dense map do. Each row is one draw of
    # the hash function and one node pair is asked of it, so the trials are independent.
    width, rows = 20, 30_000
    encoding = SketchEncoding(15, (15,), width, rows, f"keys {apart}")
    found = colliding(encoding, np.array([[7, 7 + apart]]))
    law = stats.binom(rows, 1 / width)
    assert CERTAIN < law.cdf(found) < 1 - CERTAIN
    for wrong in (0.7, 1.3):  # power
        other = stats.binom(rows, wrong / width)
        assert not CERTAIN < other.cdf(found) < 1 - CERTAIN


def test_columns_are_evenly_used():
    encoding = SketchEncoding(8, (8,), 50, 1, "even")
    used = np.bincount(encoding.columns(0, 0, np.arange(4**8)), minlength=50)
    # A multiply-shift function walks around the circle: far more even than random, never a gap.
    assert used.min() > 0.8 * 4**8 / 50
    assert used.max() < 1.2 * 4**8 / 50


def test_rows_levels_and_keys_have_functions_of_their_own():
    nodes = np.arange(1000)
    one = SketchEncoding(5, (4, 5), 1000, 2, "one")
    other = SketchEncoding(5, (4, 5), 1000, 2, "other")
    columns = [one.columns(i, j, nodes) for i in range(2) for j in range(2)] + [other.columns(0, 0, nodes)]
    for first in range(len(columns)):
        for second in range(first):
            assert np.count_nonzero(columns[first] == columns[second]) < 30


def test_the_papers_lengths():
    encoding = SketchEncoding(10, tuple(range(1, 11)), 2000, 20, "")
    assert encoding.length == 400_000  # section 6.2
    assert encoding.copies == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": 16},
        {"depth": -1},
        {"levels": ()},
        {"levels": (4,)},
        {"width": 0},
        {"width": 2**31 + 1},
        {"rows": 0},
        {"rows": 2**15 + 1},
        {"key": "k" * 65},
    ],
)
def test_senseless_encodings_are_refused(wrong):
    right = {"depth": 3, "levels": (1, 2), "width": 10, "rows": 2, "key": ""}
    with pytest.raises(ParameterError, match=r"must be|expected"):
        SketchEncoding(**{**right, **wrong})
