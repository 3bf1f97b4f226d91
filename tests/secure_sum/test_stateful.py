"""Any order of good and bad deliveries: bad ones change nothing, and what is left sums up exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mapveil.secure_sum.server import Server, any_identity
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.states import Abort, ClientState, Message, OwnFault, PeerFault, ServerState

CLIENTS = 5
WHO = st.integers(0, CLIENTS - 1)
WHICH = st.integers(0, 1000)
ENDS = (ServerState.DONE, ServerState.ABORTED)


def spoil(data: bytes, how: str, where: int) -> bytes:
    """A message that nobody may accept."""
    if how == "cut":
        return data[: where % len(data)]
    if how == "longer":
        return data + b"\x00"
    if how == "oversized":
        return data + bytes(100_000)
    if how == "not canonical":
        return b"\x98" + bytes([data[0] & 31]) + data[1:]
    values = decode(data)
    if how == "version":
        values[0] += 1
    elif how == "kind":
        values[1] += 1 + where % 9
    elif how == "round":
        values[2] = bytes(32)
    elif how == "client":
        values[3] = (values[3] + 1 + where % (CLIENTS - 1)) % CLIENTS
    elif how == "field gone":
        del values[-1]
    elif how == "field more":
        values.append(0)
    elif how == "field short":
        values[4 + where % (len(values) - 4)] = b"\x01"
    return encode(values)


HOW = st.sampled_from(
    [
        *("cut", "longer", "oversized", "not canonical", "version", "kind", "round", "client"),
        *("field gone", "field more", "field short"),
    ]
)


class Round(RuleBasedStateMachine):
    """One round whose messages come in any order, altered, doubled, or never."""

    made_round = None
    make_parameters = None
    sums = 0  # of all rounds run

    @initialize(active=st.booleans(), seed=st.integers(0, 1 << 30))
    def begin(self, active: bool, seed: int) -> None:
        extra = {"signed": True, "active": True} if active else {}
        vectors = np.random.default_rng(seed).integers(-9, 9, size=(CLIENTS, 4))
        parameters = type(self).make_parameters(CLIENTS, length=4, bits=11, threshold=3, **extra)
        self.round = type(self).made_round(parameters, vectors, seed=seed)
        self.parameters, self.server, self.clients = parameters, self.round.server, self.round.clients
        self.outbox: dict[int, bytes] = {}
        self.pending: dict[int, bytes] = {}  # written by clients, not yet at the server
        self.to_server: list[tuple[int, bytes]] = []
        self.to_client: list[list[bytes]] = [[] for _ in range(CLIENTS)]
        self.log: list[tuple[int, bytes] | None] = []
        self.arrived = 0  # in this phase

    # What should work -------------------------------------------------------------------------

    @rule(client=WHO)
    def start(self, client: int) -> None:
        if self.clients[client].state is ClientState.FRESH:
            self.pending[client] = self.clients[client].advertise()
        else:
            with pytest.raises(OwnFault):
                self.clients[client].advertise()

    @rule()
    def start_all(self) -> None:
        for client in range(CLIENTS):
            self.start(client)

    @rule(client=WHO)
    def deliver(self, client: int) -> None:
        if client not in self.pending:
            return
        data = self.pending.pop(client)
        if self.server.state in ENDS or decode(data)[1] not in self.expected():
            self.refused_by_server(client, data)  # the phase is over
        else:
            self.server.receive(client, data)
            self.log.append((client, data))
            self.arrived += 1
        self.to_server.append((client, data))

    @rule()
    def deliver_all(self) -> None:
        for client in range(CLIENTS):
            self.deliver(client)

    @rule(client=WHO)
    def pass_on(self, client: int) -> None:
        if client not in self.outbox:
            return
        data = self.outbox.pop(client)
        self.to_client[client].append(data)
        try:
            self.pending[client] = self.clients[client].receive(data)
        except Abort:
            assert self.clients[client].state is ClientState.ABORTED

    @rule()
    def pass_all_on(self) -> None:
        for client in range(CLIENTS):
            self.pass_on(client)

    @rule(early=st.integers(0, 29).map(lambda drawn: drawn == 29))
    def close(self, early: bool) -> None:
        if self.arrived < 4 and not early:  # then the round would end, and seldom it may
            return
        self.arrived = 0
        if self.server.state in ENDS:
            with pytest.raises(OwnFault):
                self.server.close_phase()
            return
        try:
            self.outbox = dict(self.server.close_phase())
        except Abort:
            assert self.server.state is ServerState.ABORTED
            self.outbox = {}
            return
        self.log.append(None)
        if self.server.state is ServerState.DONE:
            type(self).sums += 1
            assert self.server.total.tolist() == self.round.true_sum().tolist()

    @rule()
    def whole_phase(self) -> None:
        self.start_all()
        self.pass_all_on()
        self.deliver_all()
        self.close(early=False)

    # What must change nothing -----------------------------------------------------------------

    @rule(client=WHO, how=HOW, where=WHICH)
    def deliver_spoilt(self, client: int, how: str, where: int) -> None:
        if client in self.pending:
            self.refused_by_server(client, spoil(self.pending[client], how, where))

    @rule(client=WHO, how=HOW, where=WHICH)
    def pass_on_spoilt(self, client: int, how: str, where: int) -> None:
        if client in self.outbox:
            self.refused_by_client(client, spoil(self.outbox[client], how, where))

    @rule(which=WHICH)
    def deliver_again(self, which: int) -> None:
        if self.to_server:
            self.refused_by_server(*self.to_server[which % len(self.to_server)])

    @rule(client=WHO, which=WHICH)
    def pass_on_again(self, client: int, which: int) -> None:
        if self.to_client[client]:
            self.refused_by_client(client, self.to_client[client][which % len(self.to_client[client])])

    @rule(client=WHO, other=WHO)
    def deliver_as_another(self, client: int, other: int) -> None:
        if client in self.pending and other != client:
            self.refused_by_server(other, self.pending[client])

    @rule(client=WHO, other=WHO)
    def pass_on_to_another(self, client: int, other: int) -> None:
        if client in self.outbox and other != client:
            self.refused_by_client(other, self.outbox[client])

    @rule(client=WHO, which=WHICH)
    def turn_a_message_round(self, client: int, which: int) -> None:
        if self.to_client[client]:
            self.refused_by_server(client, self.to_client[client][which % len(self.to_client[client])])
        if client in self.pending:
            self.refused_by_client(client, self.pending[client])

    # Restarts ---------------------------------------------------------------------------------

    @rule(client=WHO)
    def restart_client(self, client: int) -> None:
        state = self.clients[client].to_state()
        self.clients[client] = Client.from_state(
            self.parameters, state, Randomness(client), credentials=self.round.credentials[client]
        )

    @rule()
    def rebuild_server(self) -> None:
        if self.server.state is ServerState.ABORTED:
            return
        again = Server(self.parameters, self.round.graph_seed, enrolled=any_identity)
        for entry in self.log:
            if entry is None:
                again.close_phase()
            else:
                again.receive(*entry)
        assert again.fingerprint() == self.server.fingerprint()
        self.server = self.round.server = again

    # ------------------------------------------------------------------------------------------

    def expected(self) -> set[Message]:
        return {
            ServerState.KEYS: {Message.ADVERTISE},
            ServerState.SHARES: {Message.SHARES},
            ServerState.INPUTS: {Message.MASKED_INPUT},
            ServerState.CONSENTS: {Message.CONSENT},
            ServerState.ANSWERS: {Message.ANSWER},
        }[self.server.state]

    def refused_by_server(self, client: int, data: bytes) -> None:
        before = self.server.fingerprint()
        with pytest.raises(PeerFault) as caught:
            self.server.receive(client, data)
        assert caught.value.client == client
        assert self.server.fingerprint() == before

    def refused_by_client(self, client: int, data: bytes) -> None:
        before = self.clients[client].to_state()
        with pytest.raises(PeerFault):
            self.clients[client].receive(data)
        assert self.clients[client].to_state() == before

    @invariant()
    def never_a_wrong_sum(self) -> None:
        if getattr(self, "server", None) is not None and self.server.state is ServerState.DONE:
            assert self.server.total.tolist() == self.round.true_sum().tolist()
            assert self.server.included.sum() >= 3


def test_any_order_of_good_and_bad_deliveries(local_round, make_parameters):
    made = type(
        "Made", (Round,), {"made_round": local_round, "make_parameters": staticmethod(make_parameters)}
    )
    run_state_machine_as_test(
        made,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert made.sums >= 5  # of a hundred rounds, most of which good deliveries do not end
