"""A malicious server that seats its own devices around one client: with t of its k neighbours it had the exact vector.

Before the graph followed from everybody's keys, 73 corrupt clients of 10,000 sufficed where 500 were provisioned for,
and 49 where 100 were.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mapveil_client.canonical_cbor import decode
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum import messages
from mapveil_client.secure_sum.boxes import open_box, seal_box, sealing_key
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.graph import make_ring
from mapveil_client.secure_sum.keys import (
    Identity,
    draw_graph_seed,
    key_statement,
    list_clients,
    pair_key,
    pair_mask_sign,
    self_mask_seed,
)
from mapveil_client.secure_sum.masks import Purpose, add_masks
from mapveil_client.secure_sum.round_parameters import RoundParameters, SumSettings
from mapveil_client.secure_sum.shamir import reconstruct_secrets
from mapveil_client.secure_sum.states import Message, PeerFault
from mapveil_client.secure_sum.vectors import unpack
from tests.authority import certificate_of, credentials_of

CLIENTS, VECTOR = 10_000, np.arange(64)
TRIED = 300


def parameters(corrupt: Fraction) -> RoundParameters:
    settings = SumSettings(
        length=64, bits=16, corrupt=corrupt, dropout=Fraction(1, 20), round_id=b"seats", active=True
    )
    return settings.parameters(CLIENTS)


class Seats:
    """The victim, and k clients around it that the server writes itself; it knows the keys of ``corrupt`` of them."""

    def __init__(self, p: RoundParameters, victim: int, peers: list[int]) -> None:
        rng = Randomness(1)
        self.p, self.victim, self.peers = p, victim, peers
        self.identity = Identity.draw(rng)
        self.client = Client(
            p, victim, VECTOR, rng.child("victim"), credentials=credentials_of(self.identity)
        )
        self.keys = decode(self.client.advertise())[4]
        self.private = [
            [X25519PrivateKey.from_private_bytes(rng.words(32, np.uint8).tobytes()) for _ in ("mask", "seal")]
            for _ in peers
        ]
        self.entries = [
            self._entry(peer, Identity.draw(rng), *pair)
            for peer, pair in zip(peers, self.private, strict=True)
        ]

    def _entry(
        self, peer: int, identity: Identity, mask: X25519PrivateKey, sealing: X25519PrivateKey
    ) -> bytes:
        keys = mask.public_key().public_bytes_raw() + sealing.public_key().public_bytes_raw()
        signature = identity.sign(key_statement(self.p, peer, keys))
        return keys + identity.public + signature + certificate_of(identity).entry

    def graph(self, seed: bytes) -> bytes:
        """The roster's list: the victim, its neighbours to be, and nine thousand others of whom nothing is known."""
        keys = np.frombuffer(
            Randomness(2).words(CLIENTS * len(self.keys), np.uint8).tobytes(), dtype=np.uint8
        )
        rows = keys.reshape(CLIENTS, -1).copy()
        for client, entry in ((self.victim, self.keys), *zip(self.peers, self.entries, strict=True)):
            rows[client] = np.frombuffer(entry, dtype=np.uint8)
        return seed + list_clients(self.p, rows).tobytes()

    def roster(self, graph: bytes) -> bytes:
        there = messages.write_set(np.ones(self.p.neighbours, dtype=np.bool_))
        nobody = messages.write_set(np.zeros(self.p.committee, dtype=np.bool_))
        keys = b"".join(self.entries)
        return messages.encode(self.p, Message.ROSTER, self.victim, graph, there, keys, nobody, b"")

    def vector(self, graph: bytes, slots: list[int]) -> np.ndarray:
        """The victim's vector as those ``slots`` know it once it has sent its masked input."""
        p, seed = self.p, draw_graph_seed(self.p, graph)
        boxes = decode(self.client.receive(self.roster(graph)))[5]
        rows = np.frombuffer(boxes, dtype=np.uint8).reshape(p.neighbours, -1)

        def sealing(slot: int) -> bytes:
            private, peer = self.private[slot][1], self.peers[slot]
            return pair_key(p, Purpose.SEALING, seed, private, self.keys[32:64], peer, self.victim)

        opened = b"".join(
            open_box(
                p,
                seed,
                sealing_key(sealing(slot), self.victim, self.peers[slot]),
                self.victim,
                self.peers[slot],
                rows[slot, messages.PAIR_DIGEST.stop :].tobytes(),
            )
            for slot in slots
        )
        shares = np.frombuffer(opened, dtype="<u2").reshape(len(slots), 2, -1).transpose(1, 0, 2)
        own, mask = reconstruct_secrets(
            np.tile(np.array(slots) + 1, (2, 1)), np.ascontiguousarray(shares)
        ).tolist()
        inbox = b"".join(
            seal_box(p, seed, sealing(slot), peer, self.victim, bytes(68))[messages.PAIR_DIGEST.stop :]
            for slot, peer in enumerate(self.peers)
        )
        there = messages.write_set(np.ones(p.neighbours, dtype=np.bool_))
        masked = decode(self.client.receive(messages.encode(p, Message.INBOX, self.victim, there, inbox)))[4]
        found = unpack(masked, p.length, p.bits).astype("<u2")
        private = X25519PrivateKey.from_private_bytes(bytes(mask))
        pairs = [
            pair_key(p, Purpose.PAIR_MASK, seed, private, entry[:32], self.victim, peer)
            for peer, entry in zip(self.peers, self.entries, strict=True)
        ]
        signs = [-1, *(-pair_mask_sign(self.victim, peer) for peer in self.peers)]
        add_masks(found, [self_mask_seed(p, seed, self.victim, bytes(own)), *pairs], signs, p.cipher)
        return found


@pytest.mark.parametrize(("corrupt", "known"), [(Fraction(1, 20), 73), (Fraction(1, 100), 49)])
def test_seats_around_a_client_are_not_the_servers_to_choose(corrupt: Fraction, known: int) -> None:
    p = parameters(corrupt)
    assert p.threshold == known
    chosen = Randomness(3).words(32, np.uint8).tobytes()
    ring = make_ring(CLIENTS, p.neighbours, chosen)
    victim = int(ring.order[0])
    slots = list(range(p.threshold))
    # Where the server is trusted with the graph, these clients give it the exact vector: the steps are right.
    trusting = Seats(
        replace(p, active=False, committee=0, quorum=0), victim, ring.neighbours[victim].tolist()
    )
    assert trusting.vector(chosen, slots).tolist() == VECTOR.tolist()
    seats = Seats(p, victim, ring.neighbours[victim].tolist())
    with pytest.raises(PeerFault, match="graph of 32 bytes; expected exactly 240032"):
        seats.vector(chosen, slots)
    with pytest.raises(PeerFault, match="lists other keys of client"):
        seats.vector(seats.graph(chosen), slots)


def test_seeds_that_the_server_tries_bring_no_more_corrupt_neighbours_than_provisioned_for() -> None:
    p = parameters(Fraction(1, 20))
    seats = Seats(p, 0, [])
    corrupt = np.arange(CLIENTS) % 20 == 1
    half, most, mean = p.neighbours // 2, 0, p.neighbours / 20
    listed = seats.graph(bytes(32))[32:]
    for tried in range(TRIED):
        graph = tried.to_bytes(32, "big") + listed
        slots = corrupt[make_ring(CLIENTS, p.neighbours, draw_graph_seed(p, graph)).neighbours[0]]
        most = max(most, int(slots.sum()))
        assert max(slots[:half].sum(), slots[half:].sum()) < p.threshold - half
    # A server that tries seeds does better than by chance, and by as much as the hypergeometric law says.
    assert mean < most < mean + 6 * math.sqrt(mean)
    assert most < p.threshold // 3
