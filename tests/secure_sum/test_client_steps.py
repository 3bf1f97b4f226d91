"""A client's steps: what each refuses, what ends the round, and what it tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mapveil.secure_sum.server_unmask import Fault, FaultKind
from mapveil_client.canonical_cbor import decode as decode_values
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum import messages
from mapveil_client.secure_sum.certificate import CLOCKS_S, Authority, Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.graph import make_ring
from mapveil_client.secure_sum.keys import Identity, draw_graph_seed
from mapveil_client.secure_sum.messages import (
    COMPLAINT_BYTES,
    DELIVERED_BYTES,
    encode,
    read_set,
    write_set,
)
from mapveil_client.secure_sum.states import Abort, ClientState, Message, PeerFault, ServerState
from tests.authority import NAMED, certificate_of

VECTORS = np.arange(30).reshape(6, 5) - 7


def fields(data: bytes) -> list:
    return decode_values(data)[4:]


def with_fields(parameters, data: bytes, *changed: bytes) -> bytes:
    values = decode_values(data)
    return encode(parameters, Message(values[1]), values[3], *changed)


def refuses(client: Client, data: bytes, text: str, fault: type[Exception] = PeerFault) -> None:
    before = client.to_state()
    with pytest.raises(fault, match=text):
        client.receive(data)
    assert client.to_state() == before


def survivors(p, *members: int) -> bytes:
    included = np.zeros(p.clients, dtype=np.bool_)
    included[list(members)] = True
    return encode(p, Message.SURVIVORS, 0, write_set(included), b"")


# Roster and inbox ------------------------------------------------------------------------------


def test_a_roster_must_make_sense(local_round, make_parameters):
    p = make_parameters()
    made = local_round(p, VECTORS).until(ServerState.KEYS)
    made.deliver()
    made.close()
    client, data = made.clients[0], made.outbox[0]
    seed, present, keys, *none = fields(data)
    refuses(client, with_fields(p, data, seed, present, keys[:-64], *none), "256 bytes for 5 slots")
    refuses(client, with_fields(p, data, seed, b"\xff", keys, *none), "members past 4")
    peer = int(made.server._ring.neighbours[0, 0])
    for at in (0, 32):  # mask key, seal key
        no_key = keys[:at] + bytes(32) + keys[at + 32 :]
        refuses(
            client, with_fields(p, data, seed, present, no_key, *none), f"key of client {peer} that is no key"
        )


def test_the_roster_of_an_active_round_is_every_clients_own(local_round, active):
    made = local_round(active, VECTORS, stays=[9, 9, 9, 9, 0, 9]).until(ServerState.KEYS)
    made.deliver()
    made.close()
    client, data = made.clients[0], made.outbox[0]
    graph, present, keys, *committee = fields(data)
    assert graph[32 + 4 * 24 : 32 + 5 * 24] == bytes(24)

    def lists(entry: int, part: bytes, at: int = 0) -> bytes:
        start = 32 + entry * 24 + at
        whole = graph[:start] + part + graph[start + len(part) :]
        return with_fields(active, data, whole, present, keys, *committee)

    for at in (0, 8):
        refuses(client, lists(0, b"\x01" * 8, at), "other keys of client 0 than")
        refuses(client, lists(2, b"\x01" * 8, at), "other keys of client")
    refuses(client, lists(4, bytes(23) + b"\x01"), "other keys of client")
    refuses(client, lists(2, graph[32 + 3 * 24 :][:8]), "lists one identity twice")
    refuses(client, with_fields(active, data, graph[:-24], present, keys, *committee), "graph of 152 bytes")
    few = write_set(np.array([1, 1, 1, 0, 0], dtype=np.bool_))
    refuses(
        client, with_fields(active, data, graph, few, keys[: 3 * 248], *committee), "other keys of client"
    )


def test_clients_that_were_shown_different_graphs_share_nothing(local_round, active):
    made = local_round(active, VECTORS).until(ServerState.KEYS)
    made.deliver()
    made.close()
    graph, *rest = fields(made.outbox[0])
    # The server's own bytes: every order of these six is a complete graph, so that the slots are the same set.
    made.outbox[0] = with_fields(active, made.outbox[0], bytes(32) + graph[32:], *rest)
    with pytest.raises(PeerFault, match="other keys of client"):
        made.answer()
    rng = Randomness(3)
    while True:  # another seed that leaves slots and committee as they were
        other = rng.words(32, np.uint8).tobytes() + graph[32:]
        ring = make_ring(6, 5, draw_graph_seed(active, other))
        if ring.order.tolist() == made.server._ring.order.tolist():
            break
    made.outbox[0] = with_fields(active, made.outbox[0], other, *rest)
    made.answer()
    made.deliver()
    made.close()
    made.answer()
    # No pair of its agrees on keys: the server leaves it out, and nobody masks with it.
    assert 0 not in made.outbox
    assert made.server.faults == [Fault(0, FaultKind.PAIRS, 5)]
    for client in made.clients[1:]:
        assert int(read_set(client._memory.opened, 5).sum()) == 4


def test_too_few_neighbours_end_it(local_round, make_parameters):
    p = make_parameters(threshold=4)
    made = local_round(p, VECTORS).until(ServerState.KEYS)
    made.deliver()
    made.close()
    client, data = made.clients[0], made.outbox[0]
    seed, _, keys, *none = fields(data)
    few = write_set(np.array([1, 0, 1, 0, 1], dtype=np.bool_))
    with pytest.raises(Abort, match="3 neighbours of client 0 advertised keys; 4 are needed") as caught:
        client.receive(with_fields(p, data, seed, few, keys[: 3 * 64], *none))
    assert caught.value.client == 0
    assert client.state is ClientState.ABORTED
    refuses(client, data, "expected none now")


def test_keys_that_the_device_did_not_sign_are_refused(local_round, make_parameters):
    p = make_parameters(signed=True)
    made = local_round(p, VECTORS).until(ServerState.KEYS)
    made.deliver()
    made.close()
    client, data = made.clients[0], made.outbox[0]
    seed, present, keys, *none = fields(data)
    peer = int(made.server._ring.neighbours[0, 2])
    for at in (0, 40, 70, 100):
        bad = bytearray(keys)
        bad[2 * 248 + at] ^= 1
        lie = with_fields(p, data, seed, present, bytes(bad), *none)
        refuses(client, lie, f"client {peer} that are not signed")
    # Swapped: each is signed, but as another client's.
    swapped = keys[248:496] + keys[:248] + keys[496:]
    refuses(client, with_fields(p, data, seed, present, swapped, *none), "not signed by its identity")


def test_the_committee_is_of_the_clients_that_the_roster_lists(local_round, make_parameters):
    p = make_parameters(12, neighbours=4, threshold=3, signed=True, active=True)
    stays = np.where(np.arange(12) == 7, 0, 9)
    made = local_round(p, np.tile(VECTORS, (2, 1)), stays=stays).until(ServerState.KEYS)
    made.deliver()
    made.close()
    ring = made.server._ring
    members = ring.committee(12)
    client, data = made.clients[0], made.outbox[0]
    graph, present, keys, known, rows = fields(data)
    there = read_set(known, 12)
    assert there.tolist() == [member != 7 for member in members]

    def told(given: np.ndarray, entries: bytes) -> bytes:
        return with_fields(p, data, graph, present, keys, write_set(given), entries)

    stranger = next(
        number
        for number, member in enumerate(members)
        if there[number] and member not in {0, *ring.neighbours[0]}
    )
    at = 248 * int(np.count_nonzero(there[:stranger]))
    for byte in (0, 40, 70, 100, 170):  # mask key, seal key, identity, signature, certificate
        bad = bytearray(rows)
        bad[at + byte] ^= 1
        refuses(client, told(there, bytes(bad)), f"lists other keys of client {members[stranger]} than")
    fewer = there.copy()
    fewer[stranger] = False
    refuses(
        client, told(fewer, rows[:at] + rows[at + 248 :]), f"other keys of client {members[stranger]} than"
    )
    refuses(client, told(there, rows[:-248]), "committee keys of")
    assert client.receive(data)


def test_a_member_of_the_committee_must_be_certified_as_a_neighbour_is(local_round, make_parameters):
    """A server that lists a device of its own making, whose hash it has fixed like everybody's."""
    p = make_parameters(12, neighbours=4, threshold=3, signed=True, active=True)
    made = local_round(p, np.tile(VECTORS, (2, 1))).until(ServerState.KEYS)
    identity = Identity(bytes([7] * 32))
    forged = Credentials(identity, replace(certificate_of(identity), signature=bytes(64)), NAMED)
    made.pending[5] = Client(p, 5, VECTORS[0], Randomness(4), credentials=forged).advertise()
    made.deliver()
    made.close()
    assert made.server._ring.neighbours.shape[1] < 11  # so that some have it in the committee only
    for client in set(range(12)) - {5}:
        text = "keys of client 5: its certificate is not by the enrolment authority"
        refuses(made.clients[client], made.outbox[client], text)


def test_a_device_that_the_policys_authority_has_not_certified_is_refused(local_round, make_parameters):
    p = make_parameters(signed=True)
    made = local_round(p, VECTORS).until(ServerState.KEYS)
    made.deliver()
    made.close()
    state, own = made.clients[0].to_state(), made.credentials[0]

    def again(credentials: Credentials) -> Client:
        return Client.from_state(p, state, Randomness(1), credentials=credentials)

    again(own).receive(made.outbox[0])
    others = (
        Authority(NAMED.population, Identity(bytes(32)).public),
        Authority("others", NAMED.key),
    )
    for other in others:
        refuses(again(own._replace(authority=other)), made.outbox[0], "not by the enrolment authority")
    for now in (-1.0 - CLOCKS_S, float(1 << 40) + CLOCKS_S):
        refuses(again(own._replace(now=lambda now=now: now)), made.outbox[0], "must be valid at")


@pytest.mark.parametrize("twin", [0, 2])
def test_a_device_that_stands_in_a_roster_twice_is_refused(local_round, make_parameters, monkeypatch, twin):
    """A neighbour under two numbers; and this device itself, under a neighbour's number."""
    monkeypatch.setattr(messages, "find_repeated", lambda *_: "")  # by the server
    p = make_parameters(signed=True)
    made = local_round(p, VECTORS)
    made.clients[1] = Client(p, 1, VECTORS[1], Randomness(3), credentials=made.credentials[twin])
    made.until(ServerState.KEYS)
    made.deliver()
    made.close()
    refuses(made.clients[0], made.outbox[0], "two clients one identity")


def test_one_serial_is_of_one_device(local_round, make_parameters, monkeypatch):
    monkeypatch.setattr(messages, "find_repeated", lambda *_: "")  # by the server
    p = make_parameters(signed=True)
    made = local_round(p, VECTORS)
    one, other = made.credentials[1], made.credentials[2]
    copied = one._replace(certificate=certificate_of(one.identity, serial=other.certificate.serial))
    made.clients[1] = Client(p, 1, VECTORS[1], Randomness(3), credentials=copied)
    made.until(ServerState.KEYS)
    made.deliver()
    made.close()
    refuses(made.clients[0], made.outbox[0], "two clients one certificate")


def test_a_box_that_does_not_open_is_shown_and_not_masked_with(local_round, make_parameters):
    p = make_parameters()
    made = local_round(p, VECTORS).until(ServerState.SHARES)
    made.deliver()
    made.close()
    data = made.outbox[0]
    senders, boxes = fields(data)
    made.outbox[0] = with_fields(p, data, senders, bytes([boxes[0] ^ 1]) + boxes[1:])
    made.answer()
    _, unopened, complaints, _ = fields(made.pending[0])
    assert read_set(unopened, 5).tolist() == [True, False, False, False, False]
    assert len(complaints) == COMPLAINT_BYTES
    assert read_set(made.clients[0]._memory.opened, 5).tolist() == [False, True, True, True, True]
    # The dealer's box was right: it is the server that lies, or whoever altered the message.
    with pytest.raises(PeerFault, match="which is right"):
        made.server.receive(0, made.pending[0])
    peer = int(made.server._ring.neighbours[0, 0])
    del made.pending[0]
    made.deliver()
    made.close()
    included = survivors(p, *range(6))
    refuses(made.clients[0], included, "that sent no shares, or wrong ones")
    made.clients[0].receive(survivors(p, *({*range(6)} - {peer})))


def test_an_inbox_must_make_sense(local_round, make_parameters):
    p = make_parameters(threshold=4)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 9, 0, 9]).until(ServerState.SHARES)
    made.deliver()
    made.close()
    client, data = made.clients[0], made.outbox[0]
    senders, boxes = fields(data)
    everyone = write_set(np.ones(5, dtype=np.bool_))
    refuses(client, with_fields(p, data, everyone, boxes + bytes(DELIVERED_BYTES)), "advertised no keys")
    refuses(client, with_fields(p, data, senders, boxes[:-DELIVERED_BYTES]), "boxes of")
    three = read_set(senders, 5)
    three[np.flatnonzero(three)[0]] = False
    with pytest.raises(Abort, match="3 neighbours of client 0 sent shares; 4 are needed"):
        client.receive(with_fields(p, data, write_set(three), boxes[DELIVERED_BYTES:]))
