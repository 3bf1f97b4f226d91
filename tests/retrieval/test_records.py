"""Records in, records out, and a hash that changes with any of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.retrieval.records import Database
from mapveil.retrieval.shape import Shape
from mapveil_client.errors import ParameterError

RECORDS = np.random.default_rng(1).integers(0, 256, (23, 3), dtype=np.uint8)


@given(st.integers(1, 60), st.integers(1, 5), st.data())
def test_every_record_comes_back(count, size, data):
    shape = Shape(count, size, data.draw(st.integers(1, count)))
    records = np.random.default_rng(count).integers(0, 256, (count, size), dtype=np.uint8)
    database = Database.of(records, shape=shape)
    assert [database.record(i) for i in range(count)] == [record.tobytes() for record in records]


def test_a_digit_is_the_byte_less_128():
    records = np.array([[0], [127], [128], [255]], dtype=np.uint8)
    database = Database.of(records, shape=Shape(4, 1, 2))
    assert database.matrix.tolist() == [[-128, 0], [-1, 127]]


def test_the_version_names_every_part():
    shape = Shape(23, 3, 4)
    database = Database.of(RECORDS, b"about", shape=shape)
    assert Database.of(RECORDS.copy(), b"about", shape=shape).version == database.version
    changed = RECORDS.copy()
    changed[22, 2] ^= 1
    others = {
        Database.of(changed, b"about", shape=shape).version,
        Database.of(RECORDS, b"abouT", shape=shape).version,
        Database.of(RECORDS, b"about", shape=Shape(23, 3, 5)).version,
        # One record more, of what stood in the padding.
        Database.of(np.pad(RECORDS, ((0, 1), (0, 0))), b"about", shape=Shape(24, 3, 4)).version,
    }
    assert len(others | {database.version}) == 5


def test_it_cannot_be_changed_behind_its_hash():
    database = Database.of(RECORDS)
    with pytest.raises(ValueError, match="read-only"):
        database.matrix[0, 0] = 1


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (RECORDS.astype(np.int8), "int8"),
        (RECORDS[0], "shape"),
        (RECORDS[:0], "records must be an integer of at least 1, got 0"),
        (RECORDS[:, :0], "record_bytes must be an integer of at least 1, got 0"),
    ],
)
def test_records_that_cannot_be_laid_out(records, says):
    with pytest.raises(ParameterError, match=says):
        Database.of(records)


def test_a_layout_of_other_records():
    with pytest.raises(ParameterError, match="got 23 of 4"):
        Database.of(RECORDS, shape=Shape(23, 4, 2))


@pytest.mark.parametrize(
    "change", [lambda m: m.astype(np.uint8), lambda m: m[:-1], lambda m: np.asfortranarray(m)]
)
def test_a_matrix_of_another_form(change):
    database = Database.of(RECORDS, shape=Shape(23, 3, 4))
    with pytest.raises(ParameterError, match="contiguous int8"):
        replace(database, matrix=change(database.matrix))
