"""A hundred thousand altered messages: refused with a typed error and nothing changed, or valid after all."""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import pytest

from mapveil_client.canonical_cbor import NotCanonical, decode, encode
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.states import Abort, ClientState, PeerFault, ServerState

VECTORS = np.arange(12).reshape(4, 3)
TURNS = [
    *(
        (kind, "server", state)
        for kind in ("plain", "active")
        for state in ("KEYS", "SHARES", "INPUTS", "ANSWERS")
    ),
    *(
        (kind, "client", state)
        for kind in ("plain", "active")
        for state in ("ADVERTISED", "SHARED", "MASKED")
    ),
    *(("active", "server", "CONSENTS"), ("active", "client", "CONSENTED")),
]
INPUTS = 100_000 // len(TURNS) + 1


class Mutator:
    """Alters messages: their bytes, or their values so that they stay canonical."""

    def __init__(self, seed: int, corpus: list[bytes]) -> None:
        self.chance = np.random.default_rng(seed)
        self.corpus = corpus

    def below(self, top: int) -> int:
        return int(self.chance.integers(0, max(top, 1)))

    def noise(self, size: int) -> bytes:
        return self.chance.bytes(size)

    def alter(self, message: bytes) -> bytes:
        base = message if self.below(10) < 7 else self.corpus[self.below(len(self.corpus))]
        if self.below(2):
            try:
                return self.alter_values(decode(base))
            except NotCanonical:
                pass
        for _ in range(1 + self.below(3)):
            base = self.alter_bytes(base)
        return base

    def alter_bytes(self, data: bytes) -> bytes:
        at, end = sorted((self.below(len(data) + 1), self.below(len(data) + 1)))
        kind = self.below(8)
        if kind == 0 and data:
            at = self.below(len(data))
            return data[:at] + bytes([data[at] ^ (1 << self.below(8))]) + data[at + 1 :]
        if kind == 1 and data:
            at = self.below(min(len(data), 45))  # the head and the lengths
            return data[:at] + self.noise(1) + data[at + 1 :]
        if kind == 2:
            return data[:at] + data[end:]
        if kind == 3:
            return data[:end] + data[at:]
        if kind == 4:
            return data[:at] + self.noise(1 + self.below(9)) + data[at:]
        if kind == 5:
            return data[:at]
        if kind == 6:
            other = self.corpus[self.below(len(self.corpus))]
            return data[:at] + other[self.below(len(other)) :]
        return self.noise(self.below(2 * len(data) + 4))

    def alter_values(self, values: list) -> bytes:
        i = self.below(len(values)) if self.below(3) else len(values) - 1
        value = values[i]
        kind = self.below(6)
        if kind == 0:
            values[i] = int(self.chance.integers(0, 1 << 62)) >> self.below(62)
        elif kind == 1:
            values[i] = self.noise(self.below(200))
        elif kind == 2:
            values = values[:i] + values[i + 1 :] if self.below(2) else [*values[: i + 1], *values[i:]]
        elif isinstance(value, int):
            values[i] = max(0, value + self.below(3) - 1)
        elif kind == 3:
            values[i] = self.noise(len(value))
        elif kind == 4:
            at = self.below(len(value) + 1)
            values[i] = value[:at] + self.noise(1) + value[at + 1 :]
        else:
            values[i] = value[: self.below(len(value) + 1)] + bytes(self.below(40))
        return encode(values)


@pytest.mark.parametrize(("kind", "party", "state"), TURNS)
def test_altered_messages_find_no_other_exception(local_round, make_parameters, kind, party, state):
    extra = {"signed": True, "active": True} if kind == "active" else {}
    parameters = make_parameters(4, length=3, bits=12, **extra)
    corpus = everything_sent(local_round(parameters, VECTORS))
    mutator = Mutator(TURNS.index((kind, party, state)), corpus)
    made = local_round(parameters, VECTORS)
    judge = ServerJudge(made, state) if party == "server" else ClientJudge(made, state)
    for _ in range(INPUTS):
        judge.hand(mutator.alter(judge.right))
    assert judge.refused > INPUTS // 2
    assert judge.taken > INPUTS // 500
    assert len(judge.reasons) >= 6


def everything_sent(made) -> list[bytes]:
    made.start()
    sent: list[bytes] = []
    while made.server.state is not ServerState.DONE:
        sent += made.pending.values()
        made.deliver()
        made.close()
        sent += made.outbox.values()
        made.answer()
    return sent


class Judge:
    def __init__(self) -> None:
        self.refused, self.taken = 0, 0
        self.reasons: set[str] = set()

    def note(self, fault: Exception) -> None:
        text = str(fault)
        assert "\n" not in text
        self.reasons.add("".join(letter for letter in text if not letter.isdigit()))


class ServerJudge(Judge):
    """The server that awaits client 1's message; whatever it takes, it is put back after."""

    def __init__(self, made, state: str) -> None:
        super().__init__()
        made.until(ServerState[state])
        self.right = made.pending.pop(1)
        made.deliver()
        self.fresh = made.server
        self.now = copy.deepcopy(self.fresh)
        self.before = self.now.fingerprint()

    def hand(self, data: bytes) -> None:
        try:
            self.now.receive(1, data)
        except PeerFault as fault:
            self.refused += 1
            self.note(fault)
            blamed, same = fault.client, self.now.fingerprint() == self.before
        else:
            self.taken += 1
            try:
                self.now.close_phase()
            except Abort as fault:
                self.note(fault)
            self.now = copy.deepcopy(self.fresh)
            return
        assert blamed == 1
        assert same


class ClientJudge(Judge):
    """Client 1 in one of its states; whatever it takes, it is put back after."""

    def __init__(self, made, state: str) -> None:
        super().__init__()
        made.start()
        while made.clients[1].state is not ClientState[state]:
            made.deliver()
            made.close()
            made.answer()
        made.deliver()
        made.close()
        self.right = made.outbox[1]
        self.parameters, self.credentials = made.parameters, made.credentials[1]
        self.before = made.clients[1].to_state()
        self.now = self.again()

    def again(self) -> Client:
        return Client.from_state(self.parameters, self.before, Randomness(1), credentials=self.credentials)

    def hand(self, data: bytes) -> None:
        try:
            self.now.receive(data)
        except PeerFault as fault:
            self.refused += 1
            self.note(fault)
            same = self.now.to_state() == self.before
        except Abort as fault:
            self.refused += 1
            self.note(fault)
            same = self.now.state is ClientState.ABORTED
            self.now = self.again()
        else:
            self.taken += 1
            self.now = self.again()
            return
        assert same


@pytest.mark.parametrize("kind", ["plain", "active"])
def test_a_round_with_altered_messages_ends_in_a_sum_or_a_typed_error(local_round, make_parameters, kind):
    extra = {"signed": True, "active": True} if kind == "active" else {}
    parameters = make_parameters(4, length=3, bits=12, **extra)
    mutator = Mutator(99, everything_sent(local_round(parameters, VECTORS)))
    ends: dict[str, int] = {}
    for trial in range(100):
        made = local_round(parameters, VECTORS, seed=trial)
        end = a_round_with_some_altered(made, mutator)
        ends[end] = ends.get(end, 0) + 1
    assert set(ends) <= {"DONE", "ABORTED"}
    assert min(ends.values()) >= 10, ends


def a_round_with_some_altered(made, mutator: Mutator) -> str:
    phases = 5 if made.parameters.active else 4
    phase, to_server = mutator.below(phases), mutator.below(2)
    victims = [client for client in range(4) if mutator.below(5) < 2]
    made.start()
    for now in range(phases):
        if now == phase and to_server:
            made.pending.update({i: mutator.alter(made.pending[i]) for i in victims if i in made.pending})
        for client, data in made.pending.items():
            with contextlib.suppress(PeerFault):
                made.server.receive(client, data)
        try:
            outbox = dict(made.server.close_phase())
        except Abort:
            break
        if now == phase and not to_server:
            outbox.update({i: mutator.alter(outbox[i]) for i in victims if i in outbox})
        made.pending = {}
        for client, data in outbox.items():
            with contextlib.suppress(PeerFault, Abort):
                made.pending[client] = made.clients[client].receive(data)
    return made.server.state.name
