"""The client: what it tells, what it refuses, when it leaves, and that a restart changes nothing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from mapveil_client.canonical_cbor import decode as decode_values
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.masks import VERSION
from mapveil_client.secure_sum.states import ClientState, OwnFault, PeerFault, ServerState
from tests.authority import credentials_of

VECTORS = np.arange(30).reshape(6, 5) - 7


def fields(data: bytes) -> list:
    return decode_values(data)[4:]


# A whole round ---------------------------------------------------------------------------------


def test_it_goes_through_its_states(local_round, make_parameters, active):
    for p, middle in ((make_parameters(), []), (active, ["CONSENTED"])):
        made = local_round(p, VECTORS)
        client = made.clients[0]
        seen = [client.state.name]
        made.start()
        while made.server.state is not ServerState.DONE:
            seen.append(client.state.name)
            made.deliver()
            made.close()
            made.answer()
        assert seen == ["FRESH", "ADVERTISED", "SHARED", "MASKED", *middle, "DONE"]
        assert made.server.total.tolist() == made.true_sum().tolist()


@pytest.mark.parametrize("bits", [1, 7, 8, 16, 33, 63, 64])
def test_numbers_are_taken_modulo_two_to_the_bits(local_round, make_parameters, bits):
    chance = np.random.default_rng(bits)
    vectors = chance.integers(-(1 << 63), 1 << 63, size=(6, 5))
    made = local_round(make_parameters(bits=bits), vectors)
    assert made.run().tolist() == made.true_sum().tolist()


def test_a_masked_vector_tells_nothing_that_its_masks_do_not_hide(local_round, make_parameters):
    # The same seeds mask two vectors: the difference of what is sent is the difference of the vectors.
    p = make_parameters()
    sent = []
    for vectors in (VECTORS, VECTORS + np.arange(5)):
        made = local_round(p, vectors).until(ServerState.INPUTS)
        sent.append([np.frombuffer(fields(made.pending[i])[0], dtype="<u2") for i in range(6)])
    for one, other, plain in zip(*sent, VECTORS, strict=True):
        assert (other - one).tolist() == list(range(5))
        assert one.tolist() != (plain % 65536).tolist()


# Refusals --------------------------------------------------------------------------------------


def refuses(client: Client, data: bytes, text: str, fault: type[Exception] = PeerFault) -> None:
    before = client.to_state()
    with pytest.raises(fault, match=text):
        client.receive(data)
    assert client.to_state() == before


def test_a_message_out_of_turn_is_refused(local_round, active):
    made = local_round(active, VECTORS)
    sent: list[bytes] = []
    made.start()
    client = made.clients[0]
    while made.server.state is not ServerState.DONE:
        made.deliver()
        made.close()
        if 0 not in made.outbox:
            break
        for old in sent:
            refuses(client, old, "expected .* now|expected none now")
        refuses(client, made.outbox[1], "another client")
        refuses(client, b"", "ends early")
        refuses(client, made.outbox[0] + b"\x00", "after its end|at most")
        refuses(client, made.outbox[0][:-1], "ends early")
        sent.append(made.outbox[0])
        made.answer()
    assert client.state is ClientState.DONE
    for old in sent:
        refuses(client, old, "expected none now")


def test_it_starts_once(make_parameters):
    client = Client(make_parameters(), 0, VECTORS[0], Randomness(1))
    client.advertise()
    with pytest.raises(OwnFault, match="ADVERTISED; expected one call"):
        client.advertise()


# Construction, secrets, restarts ----------------------------------------------------------------


def test_what_does_not_fit_the_round_is_refused(make_parameters):
    p, rng, identity = make_parameters(), Randomness(1), Identity.draw(Randomness(1))
    for client in (-1, 6):
        with pytest.raises(ParameterError, match="0 to 5"):
            Client(p, client, VECTORS[0], rng)
    for vector in (VECTORS[0, :4], VECTORS, VECTORS[0] * 1.0):
        with pytest.raises(ParameterError, match=r"integers of shape \(5,\)"):
            Client(p, 0, vector, rng)
    with pytest.raises(ParameterError, match="credentials"):
        Client(p, 0, VECTORS[0], rng, credentials=credentials_of(identity))
    with pytest.raises(ParameterError, match="credentials"):
        Client(make_parameters(signed=True), 0, VECTORS[0], rng)


def test_a_restart_between_any_two_messages_changes_nothing(local_round, make_parameters, active):
    for p in (make_parameters(), make_parameters(signed=True), active):
        plain = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9])
        plain.run()
        made = local_round(p, VECTORS, stays=[9, 9, 9, 2, 9, 9])
        rngs = [client._steps.rng for client in made.clients]

        def restart(made=made, p=p, rngs=rngs) -> None:
            for i, client in enumerate(made.clients):
                state = client.to_state()
                made.clients[i] = Client.from_state(p, state, rngs[i], credentials=made.credentials[i])
                assert made.clients[i].to_state() == state
                assert made.clients[i].state is client.state

        restart()
        made.start()
        while made.server.state is not ServerState.DONE:
            restart()
            made.deliver()
            made.close()
            made.answer()
        restart()
        assert made.log == plain.log
        assert made.server.total.tolist() == made.true_sum().tolist()


def test_a_damaged_or_foreign_state_is_refused(local_round, make_parameters):
    p = make_parameters()
    made = local_round(p, VECTORS).until(ServerState.INPUTS)
    state = made.clients[0].to_state()
    for at in range(0, len(state), 7):
        with pytest.raises(InputError, match="cannot be read"):
            Client.from_state(p, state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :], Randomness(1))
    for foreign in (b"", state[:-1], state[:40]):
        with pytest.raises(InputError, match="cannot be read"):
            Client.from_state(p, foreign, Randomness(1))
    with pytest.raises(InputError, match="cannot be read"):
        Client.from_state(make_parameters(round_id=b"other"), state, Randomness(1))


def test_what_is_no_longer_needed_is_forgotten(local_round, make_parameters):
    made = local_round(make_parameters(), VECTORS)
    made.start()
    client = made.clients[0]
    secrets = {
        "seed": client._memory.seed,
        "mask": client._memory.mask_private,
        "seal": client._memory.seal_private,
    }
    vector = (VECTORS[0] % 65536).astype("<u2").tobytes()

    def kept() -> set[str]:
        state = client.to_state()
        return {name for name, secret in {**secrets, "vector": vector}.items() if secret in state}

    assert kept() == {"seed", "mask", "seal", "vector"}
    made.until(ServerState.SHARES)
    assert kept() == {"seed", "vector"}
    made.until(ServerState.INPUTS)
    assert kept() == set()
    other = local_round(make_parameters(), VECTORS).until(ServerState.SHARES).clients[0]
    other.abort()
    assert len(other.to_state()) < 120
    assert other._vector.size == 0


def test_secrets_never_show_and_never_travel(local_round, make_parameters):
    made = local_round(make_parameters(), VECTORS).until(ServerState.SHARES)
    client = made.clients[0]
    memory = client._memory
    for shown in (repr(client), str(client), repr(memory), repr(client._steps)):
        for secret in (memory.seed, memory.pair_seeds[:32], memory.box_pairs[:32]):
            assert secret.hex() not in shown
            assert repr(secret)[2:-1] not in shown
    assert repr(client) == "Client(0 of 6, SHARED)"
    for carried in (client, memory):
        for carry in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                carry(carried)


def test_the_version_is_on_the_wire(make_parameters):
    data = Client(make_parameters(), 3, VECTORS[3], Randomness(1)).advertise()
    assert decode_values(data)[:4] == [VERSION, 1, make_parameters().digest, 3]
