"""Layouts: every record has its own place, and the traffic is the least."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.retrieval.lattice_parameters import LARGEST_COLUMNS, failure_log2
from mapveil.retrieval.shape import Shape, choose_shape
from mapveil_client.errors import ParameterError

SHAPES = st.integers(1, 300).flatmap(
    lambda records: st.builds(Shape, st.just(records), st.integers(1, 9), st.integers(1, records))
)


@given(SHAPES)
def test_records_fill_the_matrix_column_by_column(shape):
    taken = np.zeros((shape.rows, shape.columns), dtype=int)
    for record in range(shape.records):
        column, first = shape.place(record)
        taken[first : first + shape.record_bytes, column] += 1
    assert taken.max() == 1
    assert taken.sum() == shape.records * shape.record_bytes
    # What is empty is the end of the last column, less than a column.
    assert taken[:, :-1].all()
    assert taken[0, -1] == 1


@given(st.integers(1, 200_000), st.integers(1, 40), st.integers(1, 10_000))
def test_the_chosen_layout_has_the_least_traffic(records, record_bytes, queries):
    best = choose_shape(records, record_bytes, queries)
    total = best.traffic().of(queries)
    for per_column in {1, best.per_column - 1, best.per_column + 1, 2 * best.per_column, records}:
        if 1 <= per_column <= records and -(-records // per_column) <= LARGEST_COLUMNS:
            try:
                other = Shape(records, record_bytes, per_column)
            except ParameterError:
                continue
            assert total <= other.traffic().of(queries)
    assert failure_log2(best.rows, best.columns) < -50


def test_traffic_is_the_sum_of_its_parts():
    traffic = Shape(records=10, record_bytes=8, per_column=5).traffic()
    assert traffic == (4096 * 40, 8, 160, 80)
    assert traffic.of(3) == 4096 * 40 + 3 * 168


@pytest.mark.parametrize(
    "wrong",
    [(0, 1, 1), (1, 0, 1), (1, 1, 0), (3, 1, 4), (True, 1, 1), (3.0, 1, 1), (70_000, 1, 1), (2, 1 << 20, 2)],
)
def test_impossible_layouts(wrong):
    with pytest.raises(ParameterError, match="must"):
        Shape(*wrong)


@pytest.mark.parametrize(
    "wrong", [(0, 1, 1), (5, 0, 1), (5, 1, 0), (5, 1, 1.5), (1, (1 << 20) + 1, 1), (1 << 40, 1, 1)]
)
def test_impossible_databases(wrong):
    with pytest.raises(ParameterError, match="must"):
        choose_shape(*wrong)


@pytest.mark.parametrize("record", [-1, 10, 1 << 70, 1.0, True, "3"])
def test_no_such_record(record):
    with pytest.raises(ParameterError, match="must"):
        Shape(10, 2, 3).place(record)
