"""One encoding per list, and nothing else decodes. Oracle: the CBOR library."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.canonical_cbor import NotCanonical, decode, encode, encoded_size

VALUES = st.lists(
    st.integers(0, (1 << 64) - 1)
    | st.sampled_from([0, 23, 24, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32])
    | st.binary(max_size=300),
    max_size=23,
)


@given(VALUES)
def test_it_is_the_librarys_canonical_encoding_and_comes_back(values):
    data = encode(values)
    assert data == cbor2.dumps(values, canonical=True)
    assert decode(data) == values == cbor2.loads(data)


@settings(max_examples=500)
@given(
    st.binary(max_size=40)
    | st.builds(lambda v, at, x: flip(encode(v), at, x), VALUES, st.integers(0), st.integers(1, 255))
)
def test_whatever_decodes_is_what_the_encoding_gives_back(data):
    try:
        values = decode(data)
    except NotCanonical:
        # Then the library either fails too, or reads another type, or writes it otherwise.
        assert not agrees(data)
    else:
        assert encode(values) == data


def flip(data: bytes, at: int, by: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]


def agrees(data: bytes) -> bool:
    try:
        values = cbor2.loads(data)
    except (cbor2.CBORError, ValueError, TypeError):
        return False
    return (
        type(values) is list
        and len(values) <= 23
        and all((type(v) is int and 0 <= v < 1 << 64) or type(v) is bytes for v in values)
        and cbor2.dumps(values, canonical=True) == data
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "ends early"),
        ("81", "ends early"),
        ("8119", "ends early"),
        ("814301", "ends early"),
        ("9b0000000000000001", "longer than need be"),
        ("8118ff00", "1 bytes after its end"),
        ("811817", "longer than need be"),
        ("81190018", "longer than need be"),
        ("811a0000ffff", "longer than need be"),
        ("811b00000000ffffffff", "longer than need be"),
        ("815801ff", "longer than need be"),
        ("9f01ff", "definite lengths"),
        ("815f41ffff", "definite lengths"),
        ("8120", "major type 1"),
        ("816161", "major type 3"),
        ("8181", "major type 4"),
        ("81c24101", "major type 6"),
        ("81f6", "major type 7"),
        ("01", "not an array"),
        ("9818" + "00" * 24, "not an array"),
        ("815bffffffffffffffff", "ends early"),
    ],
)
def test_it_says_what_is_wrong(data, text):
    with pytest.raises(NotCanonical, match=text):
        decode(bytes.fromhex(data))


def test_what_cannot_be_encoded_is_refused():
    with pytest.raises(NotCanonical, match="at most 23"):
        encode([0] * 24)
    with pytest.raises(NotCanonical, match="64 bits"):
        encode([1 << 64])


@given(st.lists(st.binary(max_size=70000), max_size=5))
def test_the_size_is_known_beforehand(fields):
    assert len(encode(fields)) == 1 + encoded_size([len(field) for field in fields])
