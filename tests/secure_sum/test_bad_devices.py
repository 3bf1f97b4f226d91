"""Attacks of one device on a whole sum: each costs at most what that device adds, and names it."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.secure_sum.server_unmask import Fault
from mapveil_client.canonical_cbor import decode as decode_values
from mapveil_client.secure_sum.messages import BOX_BYTES, encode
from mapveil_client.secure_sum.shamir import PRIME
from mapveil_client.secure_sum.states import Abort, Message, ServerState

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


@pytest.mark.parametrize(
    "change", [one_digit, lambda rows: rows + 1, lambda rows: rows * 0, lambda rows: rows[::-1]]
)
def test_an_altered_answer_costs_nothing_and_names_its_device(local_round, parameters, change):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.ANSWERS)
    made.pending[LIAR] = answered(parameters, made.pending[LIAR], change)
    made.deliver()
    made.close()
    assert made.server.total.tolist() == made.true_sum().tolist()
    (fault,) = made.server.faults
    assert (fault.client, fault.kind) == (LIAR, "answers")
    assert fault.proven(parameters) == (change is not one_digit)


def test_two_liars_are_both_named(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.ANSWERS)
    for liar in (LIAR, 8):
        made.pending[liar] = answered(parameters, made.pending[liar], lambda rows: rows * 3)
    made.deliver()
    made.close()
    assert made.server.total.tolist() == made.true_sum().tolist()
    assert {fault.client for fault in made.server.faults} == {LIAR, 8}


def test_one_unopenable_box_costs_nothing(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)
    *_, boxes = decode_values(made.pending[LIAR])
    made.pending[LIAR] = encode(parameters, Message.SHARES, LIAR, bytes(BOX_BYTES) + boxes[BOX_BYTES:])
    assert made.run().tolist() == made.true_sum().tolist()
    (fault,) = made.server.faults
    assert fault.against == 1
    assert not fault.proven(parameters)


def test_boxes_that_nobody_opens_name_their_author(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.SHARES)
    *_, boxes = decode_values(made.pending[LIAR])
    made.pending[LIAR] = encode(parameters, Message.SHARES, LIAR, bytes(len(boxes)))
    with pytest.raises(Abort) as caught:
        made.run()
    assert caught.value.client == LIAR
    assert made.server.faults == [Fault(LIAR, "shares", CLIENTS - 2)]
    assert made.server.faults[0].proven(parameters)


def test_an_altered_commitment_costs_nothing_where_the_shares_agree(local_round, parameters):
    made = local_round(parameters, VECTORS, stays=STAYS).until(ServerState.INPUTS)
    *_, commitment, vector, receipt = decode_values(made.pending[LIAR])
    flipped = bytes([commitment[0] ^ 1]) + commitment[1:]
    made.pending[LIAR] = encode(parameters, Message.MASKED_INPUT, LIAR, flipped, vector, receipt)
    assert made.run().tolist() == made.true_sum().tolist()
    assert [fault[:2] for fault in made.server.faults] == [(LIAR, "commitment")]
