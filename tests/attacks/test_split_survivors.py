"""A malicious server that names different survivors to different arcs of the ring, for a sum of fewer than promised."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mapveil.secure_sum.server_unmask import Collected, recover, unmask
from mapveil_client.canonical_cbor import decode
from mapveil_client.secure_sum.masks import word_type
from mapveil_client.secure_sum.messages import SHARE_BYTES, encode, read_set, write_set
from mapveil_client.secure_sum.round_parameters import RoundParameters, SumSettings
from mapveil_client.secure_sum.states import Abort, Message, ServerState
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
        commitments=made.server._commitments,
        sharing=made.server._sharing,
        included=included,
        given=given,
        shares=shares,
    )
    recovered = recover(p, ring, collected)
    if recovered.missing is not None:
        return Split(included, None, refused)
    rows = [unpack(inputs[client][5], p.length, p.bits) for client in named]
    masked = np.sum(rows, axis=0, dtype=np.uint64).astype(word_type(p.bits))
    return Split(included, unmask(p, ring, masked, collected, recovered), refused)


def confirm(made: LocalRound, arc: np.ndarray, consents: dict[int, bytes]) -> tuple[dict[int, bytes], int]:
    """Pass on to each device the signatures of its own arc."""
    answers: dict[int, bytes] = {}
    for client in consents:
        around = made.server._ring.neighbours[client]
        same = np.array([int(peer) in consents and arc[peer] == arc[client] for peer in around])
        rows = b"".join(decode(consents[int(peer)])[4] for peer in around[same])
        message = encode(made.parameters, Message.CONFIRMATIONS, client, write_set(same), rows)
        try:
            answers[client] = made.clients[client].receive(message)
        except Abort:
            continue
    return answers, len(consents) - len(answers)


def test_arcs_that_are_told_of_other_survivors_reveal_a_sum_of_fewer_than_promised() -> None:
    p = parameters()
    found = split(p)
    assert np.count_nonzero(found.included) == 92 < p.minimum
    assert found.total is not None
    assert found.total.tolist() == VECTORS[found.included].sum(axis=0).tolist()
