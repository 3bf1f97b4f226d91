"""Messages: one encoding, exact sizes, and a reason for every refusal."""

from __future__ import annotations

import re
from pathlib import Path

import cbor2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil_client.secure_sum
from mapveil_client.canonical_cbor import encode as encode_values
from mapveil_client.secure_sum.masks import VERSION
from mapveil_client.secure_sum.messages import (
    BOX_BYTES,
    COMPLAINT_BYTES,
    DELIVERED_BYTES,
    LAYOUTS,
    SHARE_BYTES,
    decode,
    encode,
    largest,
    read_set,
    roster_entry_bytes,
    rows_by_slot,
    usual_size,
    write_set,
)
from mapveil_client.secure_sum.states import Message, PeerFault

SCHEMA = (Path(mapveil_client.secure_sum.__file__).parent / "secure_sum.cddl").read_text(encoding="utf-8")


def fullest(parameters, message) -> list[bytes]:
    return [bytes(field.each(parameters) * field.most(parameters)) for field in LAYOUTS[message]]


@pytest.mark.parametrize("message", list(Message))
def test_the_largest_message_fits_exactly(make_parameters, message):
    for p in (make_parameters(), make_parameters(300, neighbours=40, signed=True, length=70000, bits=13)):
        data = encode(p, message, p.clients - 1, *fullest(p, message))
        assert len(data) == largest(p, message)
        assert decode(p, data, p.clients - 1, [message]) == (message, fullest(p, message))


def test_a_message_is_usually_without_complaints(make_parameters):
    p = make_parameters()
    others = set(Message) - {Message.MASKED_INPUT}
    assert all(usual_size(p, message) == largest(p, message) for message in others)
    usual = encode(p, Message.MASKED_INPUT, p.clients - 1, bytes(10), bytes(1), b"", b"")
    assert usual_size(p, Message.MASKED_INPUT) == len(usual)


@pytest.mark.parametrize("message", list(Message))
def test_a_field_of_any_other_size_is_refused(make_parameters, message):
    p = make_parameters(signed=True, active=True)
    for i, field in enumerate(LAYOUTS[message]):
        full = fullest(p, message)
        for size in (len(full[i]) - 1, 0 if field.exact else 1):
            with pytest.raises(PeerFault, match=f"{message.name}'s {field.name} of {size} bytes"):
                decode(p, encode(p, message, 0, *full[:i], bytes(size), *full[i + 1 :]), 0, [message])
        if not field.exact:
            decode(p, encode(p, message, 0, *full[:i], b"", *full[i + 1 :]), 0, [message])
        values = cbor2.loads(encode(p, message, 0, *full))
        numbered = encode_values([*values[: 4 + i], 1, *values[5 + i :]])
        with pytest.raises(PeerFault, match="is a number"):
            decode(p, numbered, 0, [message])
    with pytest.raises(PeerFault, match="fields"):
        decode(p, encode(p, message, 0), 0, [message])


def test_an_oversized_message_is_refused_unread(make_parameters):
    p = make_parameters()
    most = largest(p, Message.ADVERTISE)
    with pytest.raises(PeerFault, match=f"{most + 1} bytes; expected at most {most}"):
        decode(p, b"\xff" * (most + 1), 0, [Message.ADVERTISE])
    with pytest.raises(PeerFault, match="expected none now"):
        decode(p, b"\x80", 0, [])


def test_the_head_must_be_this_partys(make_parameters):
    p = make_parameters()
    good = cbor2.loads(encode(p, Message.ADVERTISE, 2, bytes(64)))
    for at, value, text in [
        (0, VERSION + 1, "another version"),
        (0, b"", "another version"),
        (1, 3, "kind SHARES; expected ADVERTISE or ROSTER"),
        (1, 99, "kind unknown"),
        (1, b"x", "kind unknown"),
        (2, bytes(32), "another round"),
        (2, 5, "another round"),
        (3, 1, "another client"),
        (3, b"", "another client"),
    ]:
        with pytest.raises(PeerFault, match=text):
            decode(
                p, encode_values([*good[:at], value, *good[at + 1 :]]), 2, [Message.ADVERTISE, Message.ROSTER]
            )
    with pytest.raises(PeerFault, match="of 3 parts"):
        decode(p, encode_values(good[:3]), 2, [Message.ADVERTISE])
    with pytest.raises(PeerFault, match="canonical"):
        decode(p, b"\x98" + bytes([len(good)]) + encode_values(good)[1:], 2, list(Message))


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_sets_come_back_and_members_past_the_end_are_refused(members):
    data = write_set(np.array(members))
    assert len(data) == -(-len(members) // 8)
    assert data == sum(1 << i for i, member in enumerate(members) if member).to_bytes(len(data), "little")
    assert read_set(data, len(members)).tolist() == members
    if len(members) % 8:
        with pytest.raises(PeerFault, match="members past"):
            read_set(data[:-1] + bytes([data[-1] | 0x80]), len(members))


def test_rows_stand_at_their_slots():
    slots = np.array([False, True, False, True])
    assert rows_by_slot(b"aabb", slots, 2, "rows").tolist() == [[0, 0], [97, 97], [0, 0], [98, 98]]
    with pytest.raises(PeerFault, match="rows of 5 bytes for 2 slots; expected 2 bytes each"):
        rows_by_slot(b"aabbc", slots, 2, "rows")


# The schema -----------------------------------------------------------------------------------


def test_the_schema_names_every_message_and_field_in_order():
    for message, fields in LAYOUTS.items():
        rule = message.name.lower().replace("_", "-")
        found = re.search(rf"^{rule} = \[(.*?)^\]", SCHEMA, flags=re.DOTALL | re.MULTILINE)
        assert found, f"no rule {rule}"
        lines = [line.split(";")[0].strip().rstrip(",") for line in found[1].strip().splitlines()]
        head = [f"version: {VERSION}", f"kind: {int(message)}", "round: hash", "client: client-number"]
        assert lines[:4] == head
        names = [line.split(":")[0].replace("-", "_") for line in lines[4:]]
        assert names == [field.name for field in fields], rule
    assert set(
        re.findall(r"^  (?:/ )?([a-z-]+)", SCHEMA.split("message =")[1].split("\n\n")[0], re.MULTILINE)
    ) == {message.name.lower().replace("_", "-") for message in Message}


def test_the_schemas_sizes_are_the_codes(make_parameters):
    sizes = dict(re.findall(r"^([a-z0-9-]+) = bstr \.size (\d+)", SCHEMA, flags=re.MULTILINE))
    wanted = {"key": 32, "hash": 32, "ed25519-signature": 64}
    assert {name: int(size) for name, size in sizes.items()} == wanted
    for size in (BOX_BYTES, DELIVERED_BYTES, COMPLAINT_BYTES):
        assert f"{size} bytes" in SCHEMA
    assert f"{SHARE_BYTES} bytes" in SCHEMA
    for signed in (False, True):
        assert f"{roster_entry_bytes(make_parameters(signed=signed))} bytes" in SCHEMA
