"""The protocol without its cryptography: keys agree on nothing, masks are zero, boxes are open.

Whatever goes wrong here is the wiring: who is whose neighbour, which slot holds whose share, who is
asked for what. Only the tests can make this instance.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mapveil.secure_sum import server_unmask
from mapveil_client.canonical_cbor import decode
from mapveil_client.secure_sum import boxes, client_steps, keys
from mapveil_client.secure_sum.messages import SHARE_BYTES, read_set
from mapveil_client.secure_sum.states import ServerState
from mapveil_client.secure_sum.vectors import unpack


@pytest.fixture
def toy(monkeypatch):
    def agree(private, public, info):
        return hashlib.sha256(info).digest()

    def no_masks(vector, seeds, signs, cipher):
        assert len(seeds) == len(signs)

    def seal(key, plaintext, associated, cipher):
        return plaintext + key[:16]

    def open_sealed(key, sealed, associated, cipher):
        assert sealed[-16:] == key[:16], "a box went to the wrong client"
        return sealed[:-16]

    monkeypatch.setattr(keys, "agree", agree)
    monkeypatch.setattr(client_steps, "add_masks", no_masks)
    monkeypatch.setattr(server_unmask, "add_masks", no_masks)
    monkeypatch.setattr(boxes, "seal", seal)
    monkeypatch.setattr(boxes, "open_sealed", open_sealed)


@pytest.fixture
def toy_round(toy, local_round, make_parameters):
    clients = 600
    chance = np.random.default_rng(4)
    stays = np.where(chance.random(clients) < 0.05, chance.integers(0, 4, clients), 9)
    parameters = make_parameters(clients, neighbours=16, threshold=9, length=3, bits=20, minimum=400)
    vectors = chance.integers(0, 1 << 20, size=(clients, 3))
    return local_round(parameters, vectors, stays=stays)


def test_unmasked_inputs_are_the_vectors_and_add_up(toy_round):
    toy_round.until(ServerState.INPUTS)
    for client, data in toy_round.pending.items():
        assert unpack(decode(data)[4], 3, 20).tolist() == toy_round.vectors[client].tolist()
    assert toy_round.run().tolist() == toy_round.true_sum().tolist()


def test_each_share_is_held_by_the_right_neighbour(toy_round):
    toy_round.until(ServerState.ANSWERS)
    server, graph = toy_round.server, toy_round.server._ring.neighbours
    sharing = toy_round.stays >= 2
    for client, data in toy_round.pending.items():
        given, shares = decode(data)[4:]
        slots = read_set(given, 16)
        assert slots.tolist() == sharing[graph[client]].tolist()
        assert len(shares) == int(slots.sum()) * SHARE_BYTES
    toy_round.deliver()
    # Without masks the sum is right anyway: that the secrets came back is what the checks tell.
    toy_round.close()
    assert server.state is ServerState.DONE


def test_neighbours_know_each_other_and_nobody_else(toy_round):
    toy_round.until(ServerState.SHARES)
    graph = toy_round.server._ring.neighbours
    for client in range(0, 600, 37):
        for slot, peer in enumerate(graph[client].tolist()):
            assert graph[peer].tolist().index(client) == 15 - slot
    present = toy_round.stays >= 1
    for client in np.flatnonzero(present)[::50].tolist():
        seed, there, keys_given, known, committee_keys = decode(toy_round.outbox[client])[4:]
        assert seed == toy_round.graph_seed
        assert read_set(there, 16).tolist() == present[graph[client]].tolist()
        advertised = toy_round.server._keys[graph[client][present[graph[client]]]]
        assert keys_given == advertised.tobytes()
        assert (known, committee_keys) == (b"", b"")  # not an active round
