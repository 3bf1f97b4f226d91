"""A malicious server that names different survivors to different arcs of the ring, for a sum of fewer than promised."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from mapveil.secure_sum.server_unmask import Collected, recover, unmask
from mapveil_client.canonical_cbor import decode
from mapveil_client.secure_sum.masks import word_type
from mapveil_client.secure_sum.messages import SHARE_BYTES, encode, read_set, receipt_bytes, write_set
from mapveil_client.secure_sum.round_parameters import RoundParameters, SumSettings
from mapveil_client.secure_sum.states import Abort, Message, PeerFault, ServerState
from mapveil_client.secure_sum.vectors import unpack
from tests.secure_sum.conftest import LocalRound

CLIENTS, ARCS, LEFT_OUT = (
    100,
    4,
    (10, 13),
)  # of each arc, the places whose clients it is told have dropped out
VECTORS = np.random.default_rng(5).integers(0, 1 << 12, (CLIENTS, 8))


def parameters(active: bool = True) -> RoundParameters:
    twentieth, hundredth = Fraction(1, 20), Fraction(1, 100)
    settings = SumSettings(
        length=8, bits=20, corrupt=hundredth, dropout=twentieth, round_id=b"arcs", active=active
    )
    return settings.parameters(CLIENTS)


class Split(NamedTuple):
    """The server's knowledge at the end."""

    included: np.ndarray  # clients in the sum it goes for
    total: np.ndarray | None  # that sum, where enough shares came
    refused: int  # devices that ended the round


def split(p: RoundParameters) -> Split:
    """Everybody sends a masked vector; each arc is told of dropouts of its own."""
    made = LocalRound(p, VECTORS).until(ServerState.INPUTS)
    inputs = {client: decode(data) for client, data in made.pending.items()}
    made.deliver()
    made.close()
    ring, length = made.server._ring, CLIENTS // ARCS
    arc = np.empty(CLIENTS, dtype=int)
    arc[ring.order] = np.arange(CLIENTS) // length
    told = np.ones((ARCS, CLIENTS), dtype=np.bool_)
    for number in range(ARCS):
        told[number, ring.order[number * length + np.array(LEFT_OUT)]] = False
    included = told.all(axis=0)
    named = {
        client: encode(
            p, Message.SURVIVORS, client, write_set(told[arc[client]]), decode(made.outbox[client])[5]
        )
        for client in np.flatnonzero(included).tolist()
    }
    replies = {client: made.clients[client].receive(data) for client, data in named.items()}
    refused = 0
    if p.active:
        replies, refused = confirm(made, arc, replies)
    given = np.zeros((CLIENTS, p.neighbours), dtype=np.bool_)
    shares = np.zeros((CLIENTS, p.neighbours, SHARE_BYTES), dtype=np.uint8)
    for client, data in replies.items():
        slots, revealed = decode(data)[4:]
        given[client] = read_set(slots, p.neighbours)
        shares[client, given[client]] = np.frombuffer(revealed, dtype=np.uint8).reshape(-1, SHARE_BYTES)
    collected = Collected(
        keys=made.server._keys,
        commitments=made.server._dealt.commitments,
        sharing=made.server._sharing,
        included=included,
        held=made.server._dealt.held,
        given=given,
        shares=shares,
    )
    recovered = recover(p, ring, collected)
    if recovered.missing is not None:
        return Split(included, None, refused)
    rows = [unpack(inputs[client][4], p.length, p.bits) for client in named]
    masked = np.sum(rows, axis=0, dtype=np.uint64).astype(word_type(p.bits))
    return Split(included, unmask(p, ring, masked, collected, recovered), refused)


def confirm(made: LocalRound, arc: np.ndarray, consents: dict[int, bytes]) -> tuple[dict[int, bytes], int]:
    """Pass on to each device the signatures of its own arc."""
    answers: dict[int, bytes] = {}
    committee = np.array(made.server._ring.committee(made.parameters.committee))
    for client in consents:
        same = np.array([member in consents and arc[member] == arc[client] for member in committee.tolist()])
        same &= np.cumsum(same) <= made.parameters.quorum
        rows = b"".join(decode(consents[member])[4] for member in committee[same].tolist())
        message = encode(made.parameters, Message.CONFIRMATIONS, client, write_set(same), rows)
        try:
            answers[client] = made.clients[client].receive(message)
        except Abort:
            continue
    return answers, len(consents) - len(answers)


def test_arcs_that_are_told_of_other_survivors_reveal_nothing() -> None:
    p = parameters()
    # Where nobody signs the survivors, the same graph gives the sum of fewer than promised: the steps are right.
    trusting = replace(p, active=False, committee=0, quorum=0)
    found = split(trusting)
    assert np.count_nonzero(found.included) == 92 < p.minimum
    assert found.total is not None
    assert found.total.tolist() == VECTORS[found.included].sum(axis=0).tolist()
    # Where the neighbours' signatures sufficed, it did too. A quorum of one committee stands behind one arc at most.
    found = split(p)
    assert found.total is None
    answered = np.count_nonzero(found.included) - found.refused
    assert answered in (0, 23)  # an arc of 25, less the two that it is told have dropped out


def test_a_device_whose_shares_were_withheld_is_not_named_as_a_survivor() -> None:
    """Else it would be counted without its noise: no neighbour would share a mask with it."""
    p = parameters()
    made = LocalRound(p, VECTORS).until(ServerState.SHARES)
    made.deliver()
    made.close()
    victim = 3
    around = made.server._ring.neighbours[victim].tolist()
    for peer in around:
        senders, boxes = decode(made.outbox[peer])[4:]
        told, unit = read_set(senders, p.neighbours), len(boxes) // p.neighbours
        slot = made.server._ring.neighbours[peer].tolist().index(victim)
        told[slot] = False
        kept = boxes[: slot * unit] + boxes[(slot + 1) * unit :]
        made.outbox[peer] = encode(p, Message.INBOX, peer, write_set(told), kept)
    made.answer()
    named = write_set(np.ones(CLIENTS, dtype=np.bool_))
    receipts = bytes(p.neighbours * receipt_bytes(p))
    for peer in around:
        with pytest.raises(PeerFault, match="counts a neighbour as in the sum"):
            made.clients[peer].receive(encode(p, Message.SURVIVORS, peer, named, receipts))
