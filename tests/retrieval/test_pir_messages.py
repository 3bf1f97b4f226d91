"""One encoding per message, and nothing else is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.retrieval.pir_messages import (
    Hint,
    Message,
    Offer,
    Vector,
    read_hint,
    read_kind,
    read_offer,
    read_outdated,
    read_vector,
    write_hint,
    write_offer,
    write_outdated,
    write_vector,
)
from mapveil.retrieval.shape import Shape
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.errors import InputError

NAME = bytes(range(32))
WORDS = st.lists(st.integers(0, (1 << 32) - 1), max_size=9).map(lambda w: np.array(w, dtype=np.uint32))
VALID = {
    Message.OFFER: write_offer(Offer(NAME, Shape(7, 3, 2), NAME[::-1], b"about")),
    Message.HINT: write_hint(Hint(NAME, 4, np.arange(2048, dtype=np.uint32).reshape(2, 1024))),
    Message.QUERY: write_vector(Message.QUERY, Vector(NAME, np.arange(4, dtype=np.uint32))),
    Message.ANSWER: write_vector(Message.ANSWER, Vector(NAME, np.arange(6, dtype=np.uint32))),
    Message.OUTDATED: write_outdated(NAME),
}
READERS = {
    Message.OFFER: read_offer,
    Message.HINT: read_hint,
    Message.QUERY: lambda data: read_vector(Message.QUERY, data),
    Message.ANSWER: lambda data: read_vector(Message.ANSWER, data),
    Message.OUTDATED: read_outdated,
}


@given(st.integers(1, 1000), st.integers(1, 20), st.integers(1, 1000), st.binary(max_size=40))
def test_offers_come_back(records, record_bytes, per_column, about):
    offer = Offer(NAME, Shape(records, record_bytes, min(records, per_column)), NAME[::-1], about)
    assert read_offer(write_offer(offer)) == offer


@given(WORDS, st.sampled_from([Message.QUERY, Message.ANSWER]))
def test_vectors_come_back(words, kind):
    found = read_vector(kind, write_vector(kind, Vector(NAME, words)))
    assert found.database == NAME
    assert found.words.dtype == np.uint32
    assert np.array_equal(found.words, words)


def test_hints_come_back():
    hint = read_hint(VALID[Message.HINT])
    assert (hint.database, hint.first_row) == (NAME, 4)
    assert hint.rows.reshape(-1).tolist() == list(range(2048))


def test_words_are_little_endian():
    assert decode(VALID[Message.QUERY])[3] == bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])


@pytest.mark.parametrize("kind", Message)
def test_the_head_names_the_kind(kind):
    assert read_kind(VALID[kind]) is kind


@pytest.mark.parametrize("reader", Message)
@pytest.mark.parametrize("kind", Message)
def test_each_reader_takes_its_own_kind_only(reader, kind):
    if reader is kind:
        READERS[reader](VALID[kind])
    else:
        with pytest.raises(
            InputError, match=f"must be an? {reader.name.lower()}, got an? {kind.name.lower()}"
        ):
            READERS[reader](VALID[kind])


@settings(max_examples=400)
@given(st.sampled_from(list(Message)), st.data())
def test_an_altered_message_is_refused_or_says_something_else(kind, data):
    valid = VALID[kind]
    how = data.draw(st.sampled_from(["flip", "cut", "add", "random"]))
    at = data.draw(st.integers(0, min(len(valid), 90) - 1))
    altered = {
        "flip": valid[:at] + bytes([valid[at] ^ data.draw(st.integers(1, 255))]) + valid[at + 1 :],
        "cut": valid[:at],
        "add": valid + data.draw(st.binary(min_size=1, max_size=3)),
        "random": data.draw(st.binary(max_size=80)),
    }[how]
    try:
        READERS[kind](altered)
    except InputError:
        return
    assert how == "flip"
    assert encode(decode(altered)) == altered


@pytest.mark.parametrize(
    ("kind", "values", "says"),
    [
        (Message.OFFER, [NAME, 7, 3, 2, NAME[:31], b""], "got 31"),
        (Message.OFFER, [NAME, 7, 3, 8, NAME, b""], "per_column must be at most"),
        (Message.OFFER, [NAME, 0, 3, 1, NAME, b""], "records must be an integer of at least 1, got 0"),
        (Message.OFFER, [NAME, 1 << 40, 1, 1, NAME, b""], "must be"),
        (Message.OFFER, [NAME, 7, b"3", 2, NAME, b""], "other types"),
        (Message.HINT, [NAME, 0, bytes(4095)], "4095 bytes"),
        (Message.HINT, [NAME, 0, b""], "0 bytes"),
        (Message.HINT, [NAME, b"", bytes(4096)], "other types"),
        (Message.QUERY, [NAME, bytes(7)], "a query must have whole words of 4 bytes, got 7"),
        (Message.ANSWER, [NAME, bytes(9)], "an answer must have whole words of 4 bytes, got 9"),
        (Message.QUERY, [NAME[:5], bytes(8)], "got 5"),
        (Message.QUERY, [NAME, 8], "other types"),
        (Message.OUTDATED, [b""], "got 0"),
    ],
)
def test_fields_out_of_range(kind, values, says):
    with pytest.raises(InputError, match=says):
        READERS[kind](encode([1, int(kind), *values]))


@pytest.mark.parametrize("head", [[2, 3], [1, 6], [1, 0]])
def test_another_version_or_an_unknown_kind(head):
    with pytest.raises(InputError, match="no message of retrieval, version 1"):
        read_vector(Message.QUERY, encode([*head, NAME, bytes(8)]))
