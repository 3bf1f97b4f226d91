"""Messages: one encoding, pinned by vectors, and a reason for every refusal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cbor2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil_client.random_features
from mapveil_client.canonical_cbor import encode
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.random_features.kernels import KERNELS
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import (
    VERSION,
    Reports,
    digest,
    read_query,
    read_reports,
    write_query,
    write_reports,
)

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "random_features" / "messages.json").read_text("utf-8")
)
SCHEMA = (Path(mapveil_client.random_features.__file__).parent / "random_features.cddl").read_text(
    encoding="utf-8"
)


def query_of(record):
    grid = record["grid"] and EvenGrid(*(tuple(record["grid"][key]) for key in ("start", "step", "count")))
    axes = (tuple(record[key]) for key in ("bandwidth", "low", "high"))
    return Query(*axes, record["features"], record["kernel"], grid, record["crs"])


@pytest.mark.parametrize("vector", VECTORS["queries"], ids=lambda vector: vector["name"])
def test_queries_are_the_vectors(vector):
    query = query_of(vector["query"])
    assert write_query(query).hex() == vector["message"]
    assert read_query(bytes.fromhex(vector["message"])) == query
    assert digest(query).hex() == vector["digest"]


@pytest.mark.parametrize("vector", VECTORS["reports"], ids=lambda vector: vector["name"])
def test_reports_are_the_vectors(vector):
    query = query_of(vector["query"])
    reports = Reports(
        np.array(vector["frequencies"]), np.array(vector["cosines"]) + 1j * np.array(vector["sines"])
    )
    assert [message.hex() for message in write_reports(reports, query)] == vector["compact"]
    read = read_reports([bytes.fromhex(message) for message in vector["compact"]], query)
    np.testing.assert_array_equal(read.frequencies, reports.frequencies)
    np.testing.assert_array_equal(read.projections, reports.projections)


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["name"])
def test_bad_messages_are_refused_with_the_reason_of_the_vectors(vector):
    data = bytes.fromhex(vector["message"])
    readers = {
        "query": lambda: read_query(data),
        "compact": lambda: read_reports([data], query_of(vector["query"])),
    }
    with pytest.raises(InputError, match=re.escape(vector["reason"])):
        readers[vector["kind"]]()


numbers = st.floats(1e-3, 1e6)


@given(
    st.integers(1, 3).flatmap(
        lambda d: st.tuples(*[st.lists(numbers, min_size=d, max_size=d) for _ in range(3)])
    ),
    st.integers(1, 9),
    st.sampled_from([*KERNELS]),
    st.booleans(),
    st.text(max_size=40),
)
def test_queries_come_back_and_have_one_encoding(axes, features, kernel, gridded, crs):
    bandwidth, low, extent = (tuple(part) for part in axes)
    high = tuple(a + b for a, b in zip(low, extent, strict=True))
    grid = EvenGrid(low, bandwidth, (3,) * len(low)) if gridded else None
    query = Query(bandwidth, low, high, features, kernel, grid, crs)
    data = write_query(query)
    assert read_query(data) == query
    assert cbor2.loads(data)[:2] == [VERSION, 1]
    assert cbor2.dumps(cbor2.loads(data), canonical=True) == data


@given(st.binary(max_size=80))
def test_garbage_is_refused_and_nothing_else_happens(data):
    query = query_of(VECTORS["reports"][0]["query"])
    for read in (read_query, lambda data: read_reports([data], query)):
        with pytest.raises(InputError):
            read(data)


@given(st.data())
def test_a_changed_byte_never_reads_as_another_query_silently(data):
    message = bytearray.fromhex(VECTORS["queries"][0]["message"])
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = read_query(bytes(message))
    except (InputError, ParameterError):
        return
    assert write_query(read) == bytes(message)


def test_a_report_is_four_numbers_of_each_feature_and_39_bytes(make_query, make_reports):
    query = make_query(2, 2)
    messages = write_reports(make_reports(query, 3)[0], query)
    assert {len(message) for message in messages} == {8 * 4 * 2 + 39}
    for name, size in (("compact-report", 4), ("query", 11)):
        body = SCHEMA.split(f"\n{name} = [")[1].split("]")[0]
        assert len(re.findall(r"^\s+[a-z]+: ", body, re.M)) == size


def test_a_report_cannot_be_louder_than_one_user(make_query, make_reports):
    query = make_query(2, 1)
    reports, _ = make_reports(query, 3)
    loud = reports._replace(projections=reports.projections * np.array([[1.0], [5.0], [1.0]]))
    with pytest.raises(InputError, match="report 1: a projection longer than 1"):
        read_reports(write_reports(loud, query), query)
    shrill = reports._replace(frequencies=reports.frequencies + np.array([[[0.0]], [[9.0]]]))
    with pytest.raises(InputError, match="report 0: a frequency outside"):
        read_reports(write_reports(shrill, query), query)


def test_answers_to_another_query_are_refused(make_query, make_reports):
    query, other = make_query(2, 1), make_query(2, 1, "laplace")
    messages = write_reports(make_reports(query, 2)[0], query)
    with pytest.raises(InputError, match="report 0: answers another query"):
        read_reports(messages, other)


def test_numbers_that_are_none_are_refused(make_query):
    query = make_query(2, 1)
    sent = np.array([0.1, 0.1, np.nan, 0.0])
    with pytest.raises(InputError, match="report 0: a number that is not finite"):
        read_reports([encode([VERSION, 2, digest(query), sent.astype("<f8").tobytes()])], query)
