"""Attacks of devices on a whole sum: each costs at most what that device adds, or ends the sum and names it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.secure_sum.server import Server, any_identity
from mapveil.secure_sum.server_unmask import Fault
from mapveil_client.canonical_cbor import decode as decode_values
from mapveil_client.secure_sum.boxes import complain, seal_box
from mapveil_client.secure_sum.messages import (
    BOX_BYTES,
    PAIR_DIGEST,
    SHARE_BYTES,
    encode,
    read_set,
    write_set,
)
from mapveil_client.secure_sum.shamir import PRIME, split_secrets
from mapveil_client.secure_sum.states import Abort, Message, PeerFault, ServerState

CLIENTS = 12
VECTORS = np.arange(5 * CLIENTS).reshape(CLIENTS, 5)
STAYS = [9, 9, 9, 2, *[9] * (CLIENTS - 4)]  # client 3 drops out after it sent shares
LIAR = 5


@pytest.fixture(params=[False, True], ids=["semi-honest", "active"])
def parameters(request, make_parameters):
    return make_parameters(CLIENTS, threshold=6 + request.param, signed=request.param, active=request.param)


def answered(p, data: bytes, change) -> bytes:
    """An ANSWER with its shares changed, shape (slots given, 17)."""
    _, _, _, client, given, shares = decode_values(data)
    rows = np.frombuffer(shares, dtype="<u2").reshape(-1, 17).astype(np.int64)
    return encode(p, Message.ANSWER, client, given, (change(rows) % PRIME).astype("<u2").tobytes())


def one_digit(rows):
    rows[0, 0] += 1
    return rows


def boxed(p, data: bytes, change) -> bytes:
    """A SHARES whose boxes are changed, shape (k, 148)."""
    _, _, _, client, commitment, boxes = decode_values(data)
    rows = np.frombuffer(boxes, dtype=np.uint8).reshape(-1, BOX_BYTES).copy()
    change(rows)
    return encode(p, Message.SHARES, client, commitment, rows.tobytes())


def garbage(rows):
    rows[:, PAIR_DIGEST.stop :] = 0


def dealt(made, client: int, shares: np.ndarray, commitment: bytes | None = None) -> bytes:
    """A SHARES with boxes rightly made of any shares, shape (2, k, 17)."""
    p, memory = made.parameters, made.clients[client]._memory
    peers = made.server._ring.neighbours[client].tolist()
    pairs = [memory.box_pairs[slot * 32 : slot * 32 + 32] for slot in range(p.neighbours)]
    rows = np.ascontiguousarray(shares.transpose(1, 0, 2)).astype("<u2")
    boxes = b"".join(
        seal_box(p, memory.graph_seed, pair, client, peer, row.tobytes())
        for pair, peer, row in zip(pairs, peers, rows, strict=True)
    )
    told = decode_values(made.pending[client])[4] if commitment is None else commitment
    return encode(p, Message.SHARES, client, told, boxes)


def secrets_of(made, client: int) -> np.ndarray:
    """The seed of a client that stays, and in place of its mask key, which nobody needs, zeros."""
    return np.frombuffer(made.clients[client]._memory.seed + bytes(32), dtype=np.uint8).reshape(2, 32)


def finish(made) -> bool:
    """Run to the end, without the messages that are refused; whether there is a sum, and that it is right."""
    while made.server.state is not ServerState.DONE:
        for client, data in made.pending.items():
            if made.server.state is ServerState.INPUTS:
                made.inputs[client] = data
            with contextlib.suppress(PeerFault):
                made.server.receive(client, data)
        try:
            made.close()
        except Abort:
            return False
        made.answer()
    assert made.server.total.tolist() == made.true_sum().tolist()
    return True


@pytest.mark.parametrize(
    "change", [one_digit, lambda rows: rows + 1, lambda rows: rows * 0, lambda rows: rows[::-1]]
)
def test_an_altered_answer_is_refused_and_costs_nothing(local_round, parameters, change):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.ANSWERS)
    right = made.pending[LIAR]
    made.pending[LIAR] = answered(parameters, right, change)
    with pytest.raises(PeerFault, match="another share of client") as caught:
        made.server.receive(LIAR, made.pending[LIAR])
    assert caught.value.client == LIAR
    assert finish(made)
    assert made.server.faults == []


def test_an_answer_that_keeps_a_share_back_is_refused(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.ANSWERS)
    _, _, _, client, given, shares = decode_values(made.pending[LIAR])
    slots = read_set(given, CLIENTS - 1)
    slots[0] = False
    short = encode(parameters, Message.ANSWER, client, write_set(slots), shares[SHARE_BYTES:])
    with pytest.raises(PeerFault, match="without a share that this client holds"):
        made.server.receive(LIAR, short)


@settings(max_examples=40)
@given(
    liars=st.sets(st.integers(0, 7), max_size=8),
    silent=st.integers(0, 4),
    owner=st.integers(0, 7),
    bent=st.booleans(),
)
def test_no_number_of_liars_makes_a_wrong_sum_or_blames_an_honest_device(
    local_round, make_parameters, liars, silent, owner, bent
):
    # The liars move all their shares of one secret to another polynomial; its owner may be bound to that secret.
    p = make_parameters(8, threshold=4)
    made = local_round(p, np.arange(40).reshape(8, 5)).until(ServerState.SHARES)
    if bent:
        _, _, _, client, _, boxes = decode_values(made.pending[owner])
        made.pending[owner] = encode(p, Message.SHARES, client, bytes(32), boxes)
    made.until(ServerState.ANSWERS)
    for liar in liars - {owner}:
        slot = int(np.flatnonzero(made.server._ring.neighbours[liar] == owner)[0])
        x = p.neighbours - slot  # the slot of the liar at the owner, from 1

        def move(rows, slot=slot, x=x):
            rows[slot, 0] += 1 + 2 * x
            return rows

        made.pending[liar] = answered(p, made.pending[liar], move)
    for client in [each for each in range(8) if each not in liars][:silent]:
        del made.pending[client]
    done = finish(made)
    assert {fault.client for fault in made.server.faults} <= ({owner} if bent else set())
    if done:
        assert not bent
    elif not bent:
        assert len(liars - {owner}) + silent > 7 - p.threshold


def test_boxes_that_nobody_opens_cost_their_dealers_vector_only(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)
    made.pending[LIAR] = boxed(parameters, made.pending[LIAR], garbage)
    assert finish(made)
    assert np.flatnonzero(~made.server.included).tolist() == [3, LIAR]
    assert made.server.faults == [Fault(LIAR, "boxes", CLIENTS - 2)]  # client 3 is gone
    assert made.server.faults[0].proven


def test_one_box_that_does_not_open_costs_its_dealers_vector_only(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)
    made.pending[LIAR] = boxed(parameters, made.pending[LIAR], lambda rows: garbage(rows[:1]))
    assert finish(made)
    assert np.flatnonzero(~made.server.included).tolist() in ([3, LIAR], [3])
    holder = int(made.server._ring.neighbours[LIAR, 0])
    assert made.server.faults == ([] if holder == 3 else [Fault(LIAR, "boxes", 1)])


@pytest.mark.parametrize("good", [1, 3, 5])
def test_too_few_good_boxes_cost_the_vectors_of_their_holders_too(local_round, parameters, good):
    made = local_round(parameters, VECTORS).until(ServerState.SHARES)
    made.pending[LIAR] = boxed(parameters, made.pending[LIAR], lambda rows: garbage(rows[good:]))
    done = finish(made)
    holders = made.server._ring.neighbours[LIAR, :good].tolist()
    assert made.server.faults == [Fault(LIAR, "boxes", CLIENTS - 1 - good)]
    # Whoever is left needs t others; of twelve, five go with the liar at most.
    assert done == (CLIENTS - 1 - good > parameters.threshold)
    if done:
        assert np.flatnonzero(~made.server.included).tolist() == sorted([LIAR, *holders])


def test_without_the_message_at_hand_a_vector_cannot_be_taken_out_again(local_round, parameters):
    made = local_round(parameters, VECTORS)
    made.server = Server(parameters, made.graph_seed, enrolled=any_identity)
    made.until(ServerState.SHARES)
    made.pending[LIAR] = boxed(parameters, made.pending[LIAR], garbage)
    made.until(ServerState.INPUTS)
    made.deliver()
    with pytest.raises(Abort, match=f"client {LIAR} must be left out") as caught:
        made.close()
    assert caught.value.client == LIAR


def test_shares_outside_the_field_do_not_silence_those_who_hold_them(local_round, parameters):
    made = local_round(parameters, VECTORS).until(ServerState.SHARES)
    made.pending[LIAR] = dealt(made, LIAR, np.full((2, CLIENTS - 1, 17), 0xFFFF))
    assert finish(made)
    assert np.flatnonzero(~made.server.included).tolist() == [LIAR]
    assert made.server.faults == [Fault(LIAR, "boxes", CLIENTS - 1)]


@pytest.mark.parametrize("off", [1, 2, 7])
def test_shares_off_the_polynomial_name_their_dealer_and_nobody_else(local_round, parameters, off):
    made = local_round(parameters, VECTORS).until(ServerState.SHARES)
    shares = split_secrets(
        secrets_of(made, LIAR), CLIENTS - 1, parameters.threshold, made.clients[LIAR]._steps.rng
    )
    shares[0, :off, 0] = (shares[0, :off, 0].astype(int) + 1 + np.arange(off) ** 7) % PRIME
    made.pending[LIAR] = dealt(made, LIAR, shares)
    assert finish(made) == (off <= (CLIENTS - 1 - parameters.threshold) // 2)
    (fault,) = made.server.faults
    assert (fault.client, fault.proven) == (LIAR, True)


def test_shares_of_another_secret_name_their_dealer(local_round, parameters):
    made = local_round(parameters, VECTORS).until(ServerState.SHARES)
    other = np.zeros((2, 32), dtype=np.uint8)
    shares = split_secrets(other, CLIENTS - 1, parameters.threshold, made.clients[LIAR]._steps.rng)
    made.pending[LIAR] = dealt(made, LIAR, shares)
    assert not finish(made)
    assert made.server.faults == [Fault(LIAR, "commitment", CLIENTS - 1)]


def test_another_key_than_the_shares_names_its_dealer(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)
    other = np.zeros((2, 32), dtype=np.uint8)
    shares = split_secrets(other, CLIENTS - 1, parameters.threshold, made.clients[3]._steps.rng)
    made.pending[3] = dealt(made, 3, shares)
    assert not finish(made)
    assert made.server.faults == [Fault(3, "key", CLIENTS - 1)]


def test_an_altered_commitment_ends_the_sum_and_names_its_device(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)
    _, _, _, client, commitment, boxes = decode_values(made.pending[LIAR])
    flipped = bytes([commitment[0] ^ 1]) + commitment[1:]
    made.pending[LIAR] = encode(parameters, Message.SHARES, client, flipped, boxes)
    assert not finish(made)
    assert [fault[:2] for fault in made.server.faults] == [(LIAR, "commitment")]


def test_of_a_pair_whose_keys_differ_one_is_left_out(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)

    def one_pair(rows):
        rows[0, 0] ^= 1

    made.pending[LIAR] = boxed(parameters, made.pending[LIAR], one_pair)
    peer = int(made.server._ring.neighbours[LIAR, 0])
    assert finish(made)
    (fault,) = made.server.faults
    assert fault.client in {LIAR, peer}
    assert (fault.kind, fault.against, fault.proven) == ("pairs", 1, False)
    assert np.flatnonzero(~made.server.included).tolist() == sorted({3, fault.client})


def test_two_liars_that_contradict_one_device_cost_one_report_each_at_most(local_round, parameters):
    made = local_round(parameters, VECTORS).until(ServerState.SHARES)
    for liar in (LIAR, 8):
        slot = made.server._ring.neighbours[liar].tolist().index(2)

        def pair(rows, slot=slot):
            rows[slot, 0] ^= 1

        made.pending[liar] = boxed(parameters, made.pending[liar], pair)
    assert finish(made)
    assert np.count_nonzero(~made.server.included) <= 2
    assert not any(fault.proven for fault in made.server.faults)


def test_a_device_whose_keys_all_contradict_is_left_out_before_anything_is_masked(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)

    def every_pair(rows):
        rows[:, 0] ^= 1

    made.pending[LIAR] = boxed(parameters, made.pending[LIAR], every_pair)
    made.deliver()
    made.close()
    assert LIAR not in made.outbox
    made.answer()
    assert finish(made)
    assert np.flatnonzero(~made.server.included).tolist() == [3, LIAR]
    assert made.server.faults == [Fault(LIAR, "pairs", CLIENTS - 1)]
    assert not made.server.faults[0].proven


@pytest.mark.parametrize("shown", ["the pair's key", "another key"])
def test_a_false_complaint_is_refused_and_names_its_device(local_round, parameters, shown):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)
    memory = made.clients[LIAR]._memory
    made.until(ServerState.INPUTS)
    dealer = int(made.server._ring.neighbours[LIAR, 0])
    pair = memory.box_pairs[:32] if shown == "the pair's key" else bytes(32)
    _, _, _, client, vector, _, _, receipt = decode_values(made.pending[LIAR])
    unopened = np.arange(CLIENTS - 1) == 0
    complaint = complain(parameters, pair, dealer, LIAR, bytes(132))
    false = encode(parameters, Message.MASKED_INPUT, client, vector, write_set(unopened), complaint, receipt)
    with pytest.raises(PeerFault, match=f"client {LIAR}: a complaint about the box of client {dealer}"):
        made.server.receive(LIAR, false)
    del made.pending[LIAR]
    assert finish(made)
    assert np.flatnonzero(~made.server.included).tolist() == [3, LIAR]


def test_a_server_that_alters_boxes_is_shown_no_key_that_opens_them(local_round, parameters):
    made = local_round(parameters, VECTORS).until(ServerState.SHARES)
    made.deliver()
    made.close()
    victim = 0
    _, _, _, _, senders, boxes = decode_values(made.outbox[victim])
    spoilt = bytes([boxes[-1] ^ 1])
    made.outbox[victim] = encode(parameters, Message.INBOX, victim, senders, boxes[:-1] + spoilt)
    dealer = int(made.server._ring.neighbours[victim, -1])
    sealing = complain(
        parameters, made.clients[victim]._memory.box_pairs[-32:], dealer, victim, boxes[-132:]
    )[:32]
    *_, unopened, complaints, _ = decode_values(made.clients[victim].receive(made.outbox[victim]))
    assert np.flatnonzero(read_set(unopened, CLIENTS - 1)).tolist() == [CLIENTS - 2]
    assert complaints[:32] != sealing
    with pytest.raises(PeerFault):
        made.server.receive(victim, made.clients[victim].parameters.digest)
