"""The collector itself, on a free port of this machine: what the fleet and the client are tested against."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import uvicorn

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.settings import Settings
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.leader import Leader
from mapveil.collector.operators.operator_keys import OperatorKeys, PeerKey
from mapveil.collector.operators.peer import HttpPeer, Peer
from mapveil.collector.operators.task_records import find_task
from mapveil.collector.operators.verification import scheme_for
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil.two_operators.sum_schemes import noisy_sums_of
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY

_Kind = TypeVar("_Kind", bound="Live")
KEYS = tuple(OperatorKeys(bytes([7 + number]) * 32, number) for number in (LEADER, HELPER))
BETWEEN = PeerKey(bytes(32))
BOX = [-74.03, 40.69, -73.90, 40.83]


class Live:
    """A served collector, with an authority of its own or another, and an operator's hands."""

    def __init__(self, folder: Path, authority: Any = AUTHORITY, **settings: Any) -> None:
        clock = SystemClock()
        url = f"sqlite:///{folder / 'collector.sqlite'}"
        self.store = Store(url, clock=clock)
        self.store.create_tables()
        self.engine = Engine(self.store, clock, authority=authority)
        accounts = Accounts(self.store)
        operator = accounts.create_operator("tests", "admin", timedelta(days=1), "command line")
        self.actor = f"operator {operator.id}"
        self.token = accounts.create_enrolment(
            "tests", 10_000, timedelta(days=1), operator.id, self.actor
        ).token
        apart = str(authority) if isinstance(authority, Authority) else None
        self.settings = Settings(store=url, authority=apart, enrol_minute=0, enrol_day=0, **settings)
        self._app = create_app(self.engine, self.store, self.settings)
        self.port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = uvicorn.Server(uvicorn.Config(self._app, port=self.port, log_config=None))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(30)

    def create(self, **spec: Any) -> str:
        """Create a pending collection; its identifier."""
        given = {
            "title": "a test",
            "trust": "distributed",
            "method": "laplace",
            "epsilon": "1",
            "accept_custom_policy": True,
            "region": BOX,
            "tiling": "quadtree:3",
            "devices": 24,
            "minimum": 20,
            "join_seconds": 60,
            "phase_seconds": 30,
            **spec,
        }
        if given["trust"] == "random-features":
            del given["epsilon"]
        made: str = self.engine.create(given, self.actor)["id"]
        return made

    def open(self, **spec: Any) -> str:
        """Create and open a collection; its identifier."""
        made = self.create(**spec)
        self.engine.open(made, self.actor)
        return made


class LiveHelper(Live):
    """A served helper of two operators."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        helper = Helper(self.store, KEYS[HELPER], BETWEEN)
        self.engine = Engine(self.store, SystemClock(), helper=helper)
        self._app = create_app(self.engine, self.store, self.settings, peer_key=BETWEEN)


class LiveLeader(Live):
    """A served leader of two operators, with a served helper or one in this process."""

    def __init__(self, folder: Path, helper: LiveHelper | None = None) -> None:
        super().__init__(folder)
        self.helper_key = KEYS[HELPER].config.public_key.hex()
        self._own = None if helper else Store(f"sqlite:///{folder / 'helper.sqlite'}", clock=SystemClock())
        peer: Peer
        if self._own is not None:
            self._own.create_tables()
            self.other, peer = self._own, Helper(self._own, KEYS[HELPER], BETWEEN)
        elif helper is not None:
            self.other, peer = helper.store, HttpPeer(helper.url, BETWEEN)
        leader = Leader(self.store, KEYS[LEADER], BETWEEN, peer)
        self.engine = Engine(self.store, SystemClock(), leader=leader)
        self._app = create_app(self.engine, self.store, self.settings)

    def stop(self) -> None:
        super().stop()
        if self._own is not None:
            self._own.close()

    def exact(self, collection: str) -> list[int]:
        """The sums of both operators' shares, without noise."""
        shares = []
        for store in (self.store, self.other):
            with store.read() as connection:
                shares.append(np.frombuffer(find_task(connection, collection).sums, dtype=np.uint8)[None])
        terms = CollectionTerms.decode(self.engine.devices.terms(collection))
        return noisy_sums_of(scheme_for(terms), (shares[0], shares[1])).tolist()


@contextlib.contextmanager
def live_collector(folder: Path) -> Iterator[Live]:
    """A collector for the time of a test."""
    with served(Live(folder)) as live:
        yield live


@contextlib.contextmanager
def served(live: _Kind) -> Iterator[_Kind]:
    """Serve a collector for the time of a test."""
    live.start()
    try:
        yield live
    finally:
        live.stop()
        live.store.close()
