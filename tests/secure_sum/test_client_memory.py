"""A client's memory: it comes back as it was, holds what its state needs, and nothing else is read."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace

import pytest

from mapveil_client import canonical_cbor
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.client_steps import Memory, read_state, write_state
from mapveil_client.secure_sum.states import ClientState, ServerState


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


@pytest.fixture
def memories(local_round, active):
    """What client 0 remembers in each of its states."""
    made = local_round(active, [[1, 2, 3, 4, 5]] * 6)
    made.start()
    found = {}
    while made.server.state is not ServerState.DONE:
        client = made.clients[0]
        found[client.state] = client._memory
        made.deliver()
        made.close()
        made.answer()
    found[ClientState.DONE] = made.clients[0]._memory
    return found


def test_it_comes_back_in_every_state(active, memories):
    for state, memory in memories.items():
        if state in (ClientState.ADVERTISED, ClientState.SHARED):
            memory = replace(memory, vector=bytes(10))
        assert read_state(active, write_state(active, 3, state, memory)) == (3, state, memory)


def test_the_end_remembers_nothing(memories):
    assert memories[ClientState.DONE] == Memory()


def test_a_field_of_another_size_or_state_is_refused(active, memories):
    memory = memories[ClientState.CONSENTED]
    for field in fields(Memory):
        held = getattr(memory, field.name)
        for wrong in (held + b"x", held[:-1] if held else b"xy"):
            data = write_state(active, 0, ClientState.CONSENTED, replace(memory, **{field.name: wrong}))
            with pytest.raises(InputError, match="damaged"):
                read_state(active, data)
    for state in set(ClientState) - {ClientState.CONSENTED}:
        with pytest.raises(InputError, match="damaged"):
            read_state(active, write_state(active, 0, state, memory))


def test_what_was_not_written_here_is_refused(active, memories):
    good = write_state(active, 0, ClientState.CONSENTED, memories[ClientState.CONSENTED])
    values = canonical_cbor.decode(good[:-32])
    for changed, text in [
        (b"\xff\xff", "cannot be read"),
        (canonical_cbor.encode(values[:-1]), "cannot be read"),
        (canonical_cbor.encode([1, *values[1:]]), "cannot be read"),
        (canonical_cbor.encode([*values[:2], bytes(32), *values[3:]]), "cannot be read"),
        (canonical_cbor.encode([values[0], 99, *values[2:]]), "damaged"),
        (canonical_cbor.encode([*values[:3], 6, *values[4:]]), "damaged"),
        (canonical_cbor.encode([*values[:3], b"", *values[4:]]), "damaged"),
    ]:
        with pytest.raises(InputError, match=text):
            read_state(active, sealed(changed))
