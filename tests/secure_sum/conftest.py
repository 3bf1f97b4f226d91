"""A whole round in this process, with every message at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from mapveil.secure_sum.server import Server, any_identity
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import ClientState, ServerState
from tests.authority import credentials_of


class Delivery(NamedTuple):
    client: int
    data: bytes


class LocalRound:
    """Clients and server of one round; ``stays[i]`` messages of client i arrive (all by default)."""

    def __init__(
        self, parameters: RoundParameters, vectors: np.ndarray, *, seed: int = 1, stays=None
    ) -> None:
        n = parameters.clients
        rng = Randomness(seed)
        self.parameters = parameters
        self.vectors = np.asarray(vectors)
        self.stays = np.full(n, 9) if stays is None else np.asarray(stays)
        self.credentials = [
            credentials_of(Identity.draw(rng)) if parameters.signed else None for _ in range(n)
        ]
        self.graph_seed = rng.words(32, np.uint8).tobytes()
        self.inputs: dict[int, bytes] = {}
        self.server = Server(
            parameters, self.graph_seed, enrolled=any_identity, reread=self.inputs.__getitem__
        )
        self.clients = [
            Client(parameters, i, self.vectors[i], rng.child(str(i)), credentials=self.credentials[i])
            for i in range(n)
        ]
        self.phase = 0
        self.pending: dict[int, bytes] = {}  # from clients
        self.outbox: dict[int, bytes] = {}  # to clients
        self.log: list[Delivery | None] = []  # accepted by the server; None where a phase was closed

    def start(self) -> None:
        self.pending = {i: c.advertise() for i, c in enumerate(self.clients) if self.stays[i] > 0}

    def deliver(self) -> None:
        for client, data in self.pending.items():
            if self.server.state is ServerState.INPUTS:
                self.inputs[client] = data
            self.server.receive(client, data)
            self.log.append(Delivery(client, data))
        self.pending = {}

    def close(self) -> None:
        self.log.append(None)
        self.outbox = dict(self.server.close_phase())
        self.phase += 1

    def answer(self) -> None:
        self.pending = {
            i: self.clients[i].receive(data) for i, data in self.outbox.items() if self.stays[i] > self.phase
        }

    def until(self, state: ServerState) -> LocalRound:
        """Run up to where the server collects for ``state``, the clients' messages pending."""
        if self.clients[0].state is ClientState.FRESH:
            self.start()
        while self.server.state is not state:
            self.deliver()
            self.close()
            self.answer()
        return self

    def run(self) -> np.ndarray:
        self.until(ServerState.ANSWERS)
        self.deliver()
        self.close()
        return self.server.total

    def true_sum(self) -> np.ndarray:
        whole = self.vectors[self.server.included].astype(object).sum(axis=0)
        return np.array([int(x) % (1 << self.parameters.bits) for x in whole], dtype=np.uint64)


@pytest.fixture(scope="session")
def local_round() -> Callable[..., LocalRound]:
    return LocalRound


@pytest.fixture(scope="session")
def make_parameters() -> Callable[..., RoundParameters]:
    def make(clients: int = 6, **changes: object) -> RoundParameters:
        neighbours = changes.get("neighbours", clients - 1)
        settings: dict = {
            "round_id": b"round",
            "context": b"tests",
            "clients": clients,
            "neighbours": neighbours,
            "threshold": neighbours // 2 + 1,
            "length": 5,
            "bits": 16,
            "minimum": 2,
        }
        if changes.get("active"):
            settings |= {"committee": clients, "quorum": clients // 2 + 1}
        return RoundParameters(**{**settings, **changes})

    return make


@pytest.fixture
def active(make_parameters: Callable[..., RoundParameters]) -> RoundParameters:
    return make_parameters(signed=True, active=True)
