"""Domain separation: nothing said for one purpose can be read as said for another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.secure_sum.masks import PROTOCOL, VERSION, Purpose, info

PARTICULARS = st.tuples(
    st.sampled_from(Purpose), st.binary(max_size=5), st.binary(max_size=5), st.lists(st.binary(max_size=3))
)


def read(written: bytes) -> tuple[int, list[bytes]]:
    """Take apart what ``info`` wrote: only an injective function can be."""
    head = PROTOCOL + VERSION.to_bytes(2, "big")
    assert written.startswith(head)
    purpose, rest = int.from_bytes(written[len(head) : len(head) + 2], "big"), written[len(head) + 2 :]
    parts = []
    while rest:
        size = int.from_bytes(rest[:4], "big")
        parts.append(rest[4 : 4 + size])
        assert len(parts[-1]) == size
        rest = rest[4 + size :]
    return purpose, parts


@given(PARTICULARS)
def test_what_is_written_can_be_read_back(particulars):
    purpose, round_id, context, parts = particulars
    assert read(info(purpose, round_id, context, *parts)) == (purpose, [round_id, context, *parts])


@given(PARTICULARS, PARTICULARS)
def test_distinct_particulars_are_written_differently(one, other):
    assert (info(*one[:3], *one[3]) == info(*other[:3], *other[3])) == (one == other)


def test_the_numbers_of_the_purposes_are_for_ever():
    assert {purpose.name: purpose.value for purpose in Purpose} == {
        "PAIR_MASK": 1,
        "SELF_MASK": 2,
        "SEALING": 3,
        "KEY_SIGNATURE": 4,
        "SURVIVOR_SIGNATURE": 5,
        "SEED_COMMITMENT": 6,
        "GRAPH": 7,
        "SURVIVOR_SET": 8,
        "ROSTER": 9,
        "LISTED": 10,
        "RECEIPT": 11,
        "PAIR_DIGEST": 12,
        "SHARE_DIGEST": 13,
        "BOX_TAG": 14,
    }


def test_a_known_answer_pins_the_encoding():
    assert info(Purpose.SEALING, b"round", b"", b"ab") == (
        b"mapveil secure sum\x00\x01\x00\x03\x00\x00\x00\x05round\x00\x00\x00\x00\x00\x00\x00\x02ab"
    )
