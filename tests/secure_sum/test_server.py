"""The server: what it refuses, whom it asks, when it gives up, and that a replay rebuilds it."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.secure_sum.outbox import Outbox
from mapveil.secure_sum.server import Server, any_identity
from mapveil_client.canonical_cbor import decode as decode_values
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import key_statement
from mapveil_client.secure_sum.messages import (
    BOX_BYTES,
    CERTIFICATE,
    IDENTITY,
    MASK_KEY,
    PAIR_DIGEST,
    SEAL_KEY,
    SHARE_BYTES,
    encode,
    largest,
    read_set,
    write_set,
)
from mapveil_client.secure_sum.states import Abort, Message, OwnFault, PeerFault, ServerState

VECTORS = np.arange(30).reshape(6, 5)


def fields(data: bytes) -> list:
    return decode_values(data)[4:]


def with_fields(parameters, data: bytes, *changed: bytes) -> bytes:
    values = decode_values(data)
    return encode(parameters, Message(values[1]), values[3], *changed)


def refuses(server: Server, client: int, data: bytes, text: str) -> None:
    before = server.fingerprint()
    with pytest.raises(PeerFault, match=f"^client {client}: .*{text}") as caught:
        server.receive(client, data)
    assert caught.value.client == client
    assert server.fingerprint() == before


@pytest.mark.parametrize("kind", ["plain", "signed", "active"])
def test_what_comes_again_late_or_for_another_is_refused(local_round, make_parameters, kind):
    p = make_parameters(signed=kind != "plain", active=kind == "active")
    made = local_round(p, VECTORS)
    made.start()
    old: list[bytes] = []
    while made.server.state is not ServerState.DONE:
        first = dict(made.pending)
        for data in old:
            refuses(made.server, 0, data, "expected .* now|expected none now")
        refuses(made.server, 1, first[0], "another client")
        refuses(made.server, 0, first[0] + b"\x00", "after its end|at most")
        refuses(made.server, 0, bytes(largest(p, Message.INBOX) * 2), "at most")
        made.deliver()
        refuses(made.server, 0, first[0], "once more")
        old.append(first[0])
        made.close()
        made.answer()
    for data in old:
        refuses(made.server, 0, data, "expected none now")
    assert made.server.total.tolist() == VECTORS.sum(axis=0).tolist()


def test_there_are_only_so_many_clients(local_round, make_parameters):
    made = local_round(make_parameters(), VECTORS)
    made.start()
    for client in (-1, 6):
        with pytest.raises(OwnFault, match="0 to 5"):
            made.server.receive(client, made.pending[0])


def test_keys_that_cannot_work_are_refused_at_once(local_round, make_parameters):
    p = make_parameters()
    made = local_round(p, VECTORS)
    made.start()
    (keys,) = fields(made.pending[2])
    small = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
    for poor in (bytes(32), b"\x01" + bytes(31), small):
        refuses(made.server, 2, with_fields(p, made.pending[2], poor + keys[32:]), "no shared secret")
        refuses(made.server, 2, with_fields(p, made.pending[2], keys[:32] + poor), "no shared secret")
    made.server.receive(2, made.pending[2])


def test_keys_must_be_signed_by_an_enrolled_device(local_round, make_parameters):
    p = make_parameters(signed=True)
    made = local_round(p, VECTORS)
    made.start()
    (keys,) = fields(made.pending[2])
    for at in (0, 40, 70, 159):
        bad = keys[:at] + bytes([keys[at] ^ 1]) + keys[at + 1 :]
        refuses(made.server, 2, with_fields(p, made.pending[2], bad), "not signed by the identity")
    other = fields(made.pending[3])[0]
    refuses(made.server, 2, with_fields(p, made.pending[2], other), "not signed by the identity")
    publics = {i: each.identity.public for i, each in enumerate(made.credentials) if i != 2}
    server = Server(p, made.graph_seed, enrolled=lambda client, public: publics.get(client) == public)
    refuses(server, 2, made.pending[2], "not enrolled")
    server.receive(3, made.pending[3])


def test_an_identity_takes_part_once_in_an_active_round(local_round, active):
    made = local_round(active, VECTORS)
    made.start()
    made.server.receive(2, made.pending[2])
    again = Client(active, 3, VECTORS[3], Randomness(5), credentials=made.credentials[2]).advertise()
    refuses(made.server, 3, again, "the identity of another client")
    keys = fields(made.pending[2])[0]
    for name, part in (("mask key", MASK_KEY), ("seal key", SEAL_KEY)):
        own = fields(made.pending[3])[0]
        copied = own[: part.start] + keys[part] + own[part.stop : SEAL_KEY.stop]
        signature = made.credentials[3].identity.sign(key_statement(active, 3, copied))
        twin = copied + own[IDENTITY] + signature + own[CERTIFICATE]
        refuses(made.server, 3, with_fields(active, made.pending[3], twin), f"the {name} of another client")
    made.server.receive(3, made.pending[3])


def test_boxes_inputs_and_answers_must_fit(local_round, make_parameters):
    p = make_parameters(threshold=3, bits=9)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 9, 9, 1]).until(ServerState.SHARES)
    bound, boxes = fields(made.pending[0])
    for other in (
        (boxes + bytes(BOX_BYTES), boxes[:-BOX_BYTES])
        if len(boxes) < 5 * BOX_BYTES
        else (boxes[:-BOX_BYTES],)
    ):
        refuses(made.server, 0, with_fields(p, made.pending[0], bound, other), "boxes of .* 148 bytes each")
    made.until(ServerState.INPUTS)
    vector, *rest = fields(made.pending[0])
    assert len(vector) == 6
    refuses(
        made.server,
        0,
        with_fields(p, made.pending[0], vector[:-1] + b"\xff", *rest),
        "bits that are not zero",
    )
    made.until(ServerState.ANSWERS)
    given, shares = fields(made.pending[0])
    slots = read_set(given, 5)
    absent = int(np.flatnonzero(~slots)[0])
    assert made.server._ring.neighbours[0, absent] == 5
    everyone = write_set(np.ones(5, dtype=np.bool_))
    refuses(
        made.server,
        0,
        with_fields(p, made.pending[0], everyone, shares + bytes(SHARE_BYTES)),
        "that sent none",
    )
    refuses(made.server, 0, with_fields(p, made.pending[0], given, shares[SHARE_BYTES:]), "shares of")
    refuses(made.server, 0, with_fields(p, made.pending[0], b"\xff", shares), "members past 4")
    large = (65521).to_bytes(2, "little")
    refuses(made.server, 0, with_fields(p, made.pending[0], given, large + shares[2:]), "65521 or above")
    other = (65520).to_bytes(2, "little") + shares[2:]
    refuses(made.server, 0, with_fields(p, made.pending[0], given, other), "another share of client")
    made.server.receive(0, made.pending[0])


def test_a_consent_must_sign_these_survivors(local_round, active):
    made = local_round(active, VECTORS).until(ServerState.CONSENTS)
    (signature,) = fields(made.pending[1])
    bad = signature[:-1] + bytes([signature[-1] ^ 1])
    refuses(made.server, 1, with_fields(active, made.pending[1], bad), "does not sign the survivors")
    refuses(made.server, 1, with_fields(active, made.pending[1], *fields(made.pending[2])), "does not sign")
    made.server.receive(1, made.pending[1])


def test_only_those_who_were_asked_may_answer(local_round, make_parameters):
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS).until(ServerState.INPUTS)
    late = made.pending.pop(4)
    made.deliver()
    made.close()
    refuses(made.server, 4, late, "expected .* now|expected none now")
    assert list(made.outbox) == [0, 1, 2, 3, 5]
    made.answer()
    answer = made.pending[0]
    slots, shares = fields(answer)
    refuses(made.server, 4, encode(p, Message.ANSWER, 4, slots, shares), "was not asked")


# The outbox -------------------------------------------------------------------------------------


def test_each_client_gets_what_its_neighbours_sent_it(local_round, make_parameters):
    p = make_parameters(12, neighbours=6, threshold=2)
    made = local_round(p, np.zeros((12, 5), dtype=int), stays=[9, 9, 1, 9, 9, 0, 9, 9, 9, 9, 9, 9])
    made.until(ServerState.SHARES)
    graph = made.server._ring.neighbours.tolist()
    boxes = {}
    for i, data in made.pending.items():
        _, joined = fields(data)
        parts = [joined[at : at + BOX_BYTES] for at in range(0, len(joined), BOX_BYTES)]
        there = [j for j in graph[i] if j != 5]
        boxes.update({(i, j): part for j, part in zip(there, parts, strict=True)})
    made.deliver()
    made.close()
    assert sorted(made.outbox) == [0, 1, 3, 4, 6, 7, 8, 9, 10, 11]
    for i, data in made.outbox.items():
        senders, joined = fields(data)
        peers = [j for j in graph[i] if j not in (2, 5)]
        assert [j for j, sent in zip(graph[i], read_set(senders, 6), strict=True) if sent] == peers
        assert joined == b"".join(boxes[j, i][PAIR_DIGEST.stop :] for j in peers)


def test_an_outbox_is_a_mapping():
    outbox = Outbox(np.array([True, False, True]), lambda client: bytes([client]))
    assert dict(outbox) == {0: b"\x00", 2: b"\x02"}
    assert len(outbox) == 2
    assert 1 not in outbox
    for absent in (1, 3, -1, "0"):
        with pytest.raises(KeyError):
            outbox[absent]


def test_messages_can_still_be_written_after_the_phase(local_round, make_parameters):
    p = make_parameters()
    made = local_round(p, VECTORS).until(ServerState.SHARES)
    made.deliver()
    outbox = made.server.close_phase()
    first = dict(outbox)
    made.outbox = first
    made.phase += 1
    made.answer()
    made.deliver()
    made.close()
    assert dict(outbox) == first


# The end ----------------------------------------------------------------------------------------


def test_the_caller_may_stop_before_anything_is_revealed(local_round, make_parameters):
    p = make_parameters(threshold=3)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9]).until(ServerState.INPUTS)
    with pytest.raises(OwnFault, match="known after phase INPUTS"):
        _ = made.server.included
    made.deliver()
    made.close()
    assert made.server.included.tolist() == [True, True, True, False, True, True]
    made.server.included[0] = False
    assert made.server.included[0]
    with pytest.raises(OwnFault, match="known in state DONE"):
        _ = made.server.total
    made.server.abort()
    assert made.server.state is ServerState.ABORTED
    made.answer()
    refuses(made.server, 0, made.pending[0], "expected none now")
    with pytest.raises(OwnFault, match="ABORTED"):
        made.server.close_phase()
    with pytest.raises(OwnFault, match="known in state DONE"):
        _ = made.server.total
    made.server.abort()


@pytest.mark.parametrize("phase", [1, 2, 3])
def test_below_the_minimum_it_ends(local_round, make_parameters, phase):
    p = make_parameters(threshold=2, minimum=5)
    made = local_round(p, VECTORS, stays=[9, 9, 9, phase - 1, phase - 1, 9])
    with pytest.raises(Abort, match=r"4 clients .*; 5 are promised"):
        made.run()
    assert made.phase == phase - 1
    assert made.server.state is ServerState.ABORTED


def test_with_too_few_answers_it_ends(local_round, make_parameters):
    p = make_parameters(threshold=4)
    made = local_round(p, VECTORS, stays=[9, 9, 9, 3, 3, 9])
    with pytest.raises(Abort, match="3 neighbours of client 0 gave their share; 4 are needed") as caught:
        made.run()
    assert caught.value.client == 0
    with pytest.raises(OwnFault):
        _ = made.server.total


def test_a_replay_of_what_was_accepted_rebuilds_it(local_round, make_parameters, active):
    for p in (make_parameters(threshold=3), active):
        made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9])
        made.start()
        marks = []
        while made.server.state is not ServerState.DONE:
            made.deliver()
            marks.append((len(made.log), made.server.fingerprint()))
            made.close()
            marks.append((len(made.log), made.server.fingerprint()))
            made.answer()
        again = Server(p, made.graph_seed, enrolled=any_identity)
        seen = {}
        for count, entry in enumerate(made.log, start=1):
            if entry is None:
                again.close_phase()
            else:
                again.receive(entry.client, entry.data)
            seen[count] = again.fingerprint()
        assert [(count, seen[count]) for count, _ in marks] == marks
        assert len(set(seen.values())) == len(seen)
        assert again.total.tolist() == made.true_sum().tolist()


def test_the_order_of_messages_within_a_phase_does_not_matter(local_round, make_parameters):
    p = make_parameters(threshold=3)
    one, other = (local_round(p, VECTORS, stays=[9, 9, 2, 9, 9, 9]) for _ in range(2))
    one.run()
    other.start()
    while other.server.state is not ServerState.DONE:
        other.pending = dict(reversed(other.pending.items()))
        other.deliver()
        other.close()
        other.answer()
    assert one.server.fingerprint() == other.server.fingerprint()


def test_a_signed_round_says_whose_identities_it_takes(make_parameters):
    with pytest.raises(OwnFault, match="authority or enrolled"):
        Server(make_parameters(signed=True), bytes(32))
    Server(make_parameters(), bytes(32))
