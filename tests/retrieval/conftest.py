"""A small database, its server and a client with the hint."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_server import Server
from mapveil.retrieval.records import Database
from mapveil.retrieval.shape import Shape


class Parties(NamedTuple):
    records: np.ndarray
    server: Server
    client: Client


def client_of(server: Server) -> Client:
    client = Client(server.offer())
    for message in server.hint_messages():
        client.receive_hint(message)
    return client


@pytest.fixture(scope="session")
def make_parties() -> Callable[..., Parties]:
    def make(records: int = 23, record_bytes: int = 3, per_column: int = 4, seed: int = 1) -> Parties:
        values = np.random.default_rng(seed).integers(0, 256, (records, record_bytes), dtype=np.uint8)
        database = Database.of(values, b"about", shape=Shape(records, record_bytes, per_column))
        server = Server(database, compiled=False)
        return Parties(values, server, client_of(server))

    return make


@pytest.fixture(scope="session")
def parties(make_parties: Callable[..., Parties]) -> Parties:
    return make_parties()
