"""A client's answers: to which survivors, signed by whom, and once."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.messages import (
    DELIVERED_BYTES,
    SHARE_BYTES,
    encode,
    read_set,
    write_set,
)
from mapveil_client.secure_sum.states import Abort, ClientState, Message, PeerFault, ServerState
from tests.secure_sum.test_client_steps import VECTORS, fields, refuses, survivors, with_fields


def asked_about(local_round, p, stays=None):
    made = local_round(p, np.tile(VECTORS, (3, 1))[: p.clients], stays=stays).until(ServerState.INPUTS)
    made.deliver()
    made.close()
    return made


def test_it_answers_once_with_one_share_per_neighbour(local_round, make_parameters):
    p = make_parameters(threshold=3)
    made = asked_about(local_round, p, stays=[9, 9, 2, 9, 9, 9])
    client = made.clients[0]
    held = np.frombuffer(client._memory.shares, dtype=np.uint8).reshape(5, 2, SHARE_BYTES)
    given, shares = fields(client.receive(made.outbox[0]))
    assert read_set(given, 5).all()
    rows = np.frombuffer(shares, dtype=np.uint8).reshape(5, SHARE_BYTES)
    for slot, peer in enumerate(made.server._ring.neighbours[0]):
        # Client 2 dropped out: its mask key. Everybody else: the seed.
        assert rows[slot].tolist() == held[slot, 1 if peer == 2 else 0].tolist()
    for again in (made.outbox[0], survivors(p, 0, 1, 2, 3, 4), survivors(p, 0, 1, 2, 3, 4, 5)):
        refuses(client, again, "expected none now")
    assert client._memory.shares == b""


def test_it_insists_on_the_promised_minimum(local_round, make_parameters):
    p = make_parameters(minimum=5, threshold=3)
    client = asked_about(local_round, p).clients[0]
    with pytest.raises(Abort, match="4 clients are in the sum; 5 are promised"):
        client.receive(survivors(p, 0, 1, 2, 3))
    assert client.state is ClientState.ABORTED
    refuses(client, survivors(p, 0, 1, 2, 3, 4, 5), "expected none now")


def test_it_insists_on_its_own_neighbours_and_on_one_piece(local_round, make_parameters):
    p = make_parameters(12, neighbours=4, threshold=2)
    made = asked_about(local_round, p)
    order = made.server._ring.order
    place = int(np.flatnonzero(order == 0)[0])
    around = np.roll(order, -place)  # client 0 first
    state = made.clients[0].to_state()

    def client() -> Client:
        return Client.from_state(p, state, Randomness(1))

    refuses(client(), survivors(p, *around[1:]), "not in")
    with pytest.raises(Abort, match="1 neighbours of client 0 are in the sum; 2 are needed"):
        client().receive(survivors(p, *around[[0, 1]], *around[3:10]))
    with pytest.raises(Abort, match="not connected"):
        client().receive(survivors(p, *around[[0, 1, 2]], *around[5:9], around[11]))
    client().receive(survivors(p, *around[[0, 1, 2]], *around[4:9], around[11]))


def test_a_survivor_that_sent_no_shares_is_a_lie(local_round, make_parameters):
    p = make_parameters(threshold=3)
    made = asked_about(local_round, p, stays=[9, 9, 1, 9, 9, 9])
    refuses(made.clients[0], survivors(p, 0, 1, 2, 3, 4, 5), "that sent no shares, or wrong ones")
    refuses(made.clients[0], survivors(p, 0, 1, 3)[:-2] + b"\xff\x40", "members past 5")


# The consistency check --------------------------------------------------------------------------


def consented(local_round, p):
    made = local_round(p, VECTORS).until(ServerState.CONSENTS)
    made.deliver()
    made.close()
    return made


def test_in_an_active_round_it_answers_only_to_enough_signatures(local_round, active):
    made = consented(local_round, active)
    client, data = made.clients[0], made.outbox[0]
    assert client.state is ClientState.CONSENTED
    signers, signatures = fields(data)
    assert read_set(signers, 6).tolist() == [True] * 4 + [False] * 2  # a quorum of them, and no more
    for at in range(0, 4 * 64, 64):
        bad = signatures[:at] + bytes([signatures[at] ^ 1]) + signatures[at + 1 :]
        refuses(client, with_fields(active, data, signers, bad), "has not signed the survivors")
    refuses(client, with_fields(active, data, signers, signatures[64:] + signatures[:64]), "has not signed")
    refuses(client, with_fields(active, data, signers, signatures[64:]), "signatures of 192 bytes for 4")
    three = write_set(np.array([1, 0, 1, 1, 0, 0], dtype=np.bool_))
    other = Client.from_state(active, client.to_state(), Randomness(1), credentials=made.credentials[0])
    with pytest.raises(Abort, match="3 of the committee of 6 agreed to the sum; 4 are needed"):
        other.receive(with_fields(active, data, three, signatures[:64] + signatures[128:]))
    client.receive(data)
    refuses(client, data, "expected none now")


def test_two_stories_get_no_answer(local_round, active):
    """The server tells half of the clients that 5 is in the sum, and the others that it is not."""
    made = local_round(active, VECTORS).until(ServerState.INPUTS)
    made.deliver()
    made.close()
    short = np.array([1, 1, 1, 1, 1, 0], dtype=np.bool_)
    consents = {}
    for i in range(5):
        data = (
            made.outbox[i]
            if i < 2
            else with_fields(active, made.outbox[i], write_set(short), fields(made.outbox[i])[1])
        )
        consents[i] = fields(made.clients[i].receive(data))[0]
    committee = np.array(made.server._ring.committee(6))
    there = np.isin(committee, [0, 1, 2, 3])  # a quorum
    all_of_them = b"".join(consents[int(j)] for j in committee[there])
    for i in range(5):
        client = made.clients[i]
        refuses(
            client,
            encode(active, Message.CONFIRMATIONS, i, write_set(there), all_of_them),
            "has not signed the survivors that this client was told",
        )
        honest = (committee != 5) & ((committee < 2) == (i < 2))
        same = b"".join(consents[int(j)] for j in committee[honest])
        with pytest.raises(Abort, match="agreed to the sum"):
            client.receive(encode(active, Message.CONFIRMATIONS, i, write_set(honest), same))


def test_a_neighbour_that_was_told_of_no_shares_gets_no_help(local_round, active):
    """The server keeps client 0's shares from a neighbour: only client 0 adds the mask between them."""
    made = local_round(active, VECTORS).until(ServerState.SHARES)
    made.deliver()
    made.close()
    peer = int(made.server._ring.neighbours[0, 2])
    senders, boxes = fields(made.outbox[peer])
    slot = made.server._ring.neighbours[peer].tolist().index(0)
    told = read_set(senders, 5)
    told[slot] = False
    kept = boxes[: slot * DELIVERED_BYTES] + boxes[(slot + 1) * DELIVERED_BYTES :]
    made.outbox[peer] = with_fields(active, made.outbox[peer], write_set(told), kept)
    made.answer()
    with pytest.raises(PeerFault, match="does not sign the clients whose boxes"):
        made.server.receive(peer, made.pending[peer])
    receipt = fields(made.pending.pop(peer))[3]
    made.deliver()
    everyone = np.ones(6, dtype=np.bool_)
    made.server._arrived = everyone  # a malicious server goes on
    made.close()
    included, receipts = fields(made.outbox[0])
    assert read_set(included, 6).all()
    unit = 65
    forged = receipts[: 2 * unit] + write_set(told) + receipt + receipts[3 * unit :]
    refuses(made.clients[0], made.outbox[0], f"receipt that client {peer} did not sign")
    lie = with_fields(active, made.outbox[0], included, forged)
    refuses(made.clients[0], lie, f"client {peer} opened no box of this client")
    refuses(made.clients[0], with_fields(active, lie, included, receipts[:-1]), "receipts of 324 bytes")


def test_a_signature_of_one_who_is_not_in_the_sum_does_not_count(local_round, active):
    made = local_round(active, VECTORS, stays=[9, 9, 9, 9, 9, 2]).until(ServerState.CONSENTS)
    made.deliver()
    made.close()
    data = made.outbox[0]
    signers, signatures = fields(data)
    there = read_set(signers, 6)
    assert int(there.sum()) == 4
    committee = np.array(made.server._ring.committee(6))
    assert not np.any(committee[there] == 5)
    there[np.flatnonzero(there)[0]] = False
    other = write_set(there | (committee == 5))
    refuses(made.clients[0], with_fields(active, data, other, signatures), "not in the sum")
