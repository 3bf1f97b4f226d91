"""A leader and a helper in this process, each with its own store, keys and ledger, and devices that report to them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.leader import Leader
from mapveil.collector.operators.operator_keys import OperatorKeys, PeerKey
from mapveil.collector.operators.peer import Peer, PeerUnavailable
from mapveil.collector.operators.task import Task
from mapveil.collector.rounds.engine import Engine
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.sealed_report import Report
from mapveil_client.two_operators.sharding import ReportRandomness, make_report
from tests.collector.engine.conftest import ACTOR, REGION, Crowd, MortalStore

SHARED = PeerKey(b"\7" * 32)
OWN = (OperatorKeys(b"\1" * 32, LEADER), OperatorKeys(b"\2" * 32, HELPER))
HOUR = 495_432


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "title": "Where people are",
        "trust": "operators",
        "method": "laplace",
        "region": REGION,
        "tiling": "quadtree:2",
        "devices": 24,
        "minimum": 20,
        "epsilon": "2",
        "accept_custom_policy": True,
        **changes,
    }


class Away:
    """A helper that cannot be reached."""

    def __getattr__(self, name: str) -> Any:
        raise PeerUnavailable("the helper does not answer (ConnectError)")


class Pair:
    """Both services, each on a store of its own; ``meddle`` wraps the helper as the leader sees it."""

    def __init__(
        self,
        folder: Path,
        clock: Any,
        *,
        devices: int = 24,
        meddle: Callable[[Helper], Any] = lambda helper: helper,
        urls: Sequence[str] = (),
    ) -> None:
        self.clock, self.meddle = clock, meddle
        self.urls = urls or [f"sqlite:///{folder / name}" for name in ("leader.sqlite", "helper.sqlite")]
        self.stores: list[MortalStore] = []
        self.kept: dict[int, Task] = {}  # the shares of exact sums, before each operator deleted its own
        self.away = False
        self.start()
        self.crowd = Crowd(self.stores[LEADER], devices)
        self.terms: CollectionTerms

    def start(self, dies: tuple[int | None, int | None] = (None, None), *, after: bool = False) -> None:
        """Begin again with what the stores hold."""
        for store in self.stores:
            store.close()
        self.stores = [
            MortalStore(url, clock=self.clock, dies_at=at, after=after)
            for url, at in zip(self.urls, dies, strict=True)
        ]
        for store, at in zip(self.stores, dies, strict=True):
            store.dies_at = None
            store.create_tables()
            store.commits, store.dies_at = 0, at
        self.helper = Helper(self.stores[HELPER], OWN[HELPER], SHARED)
        peer: Peer = Away() if self.away else self.meddle(self.helper)
        self.leader = Leader(self.stores[LEADER], OWN[LEADER], SHARED, peer)
        self.engine = Engine(self.stores[LEADER], self.clock, leader=self.leader)
        self.other = Engine(self.stores[HELPER], self.clock, helper=self.helper)

    def open(self, **changes: Any) -> str:
        id = str(self.engine.create(spec(**changes), ACTOR)["id"])
        self.engine.open(id, ACTOR)
        self.terms = CollectionTerms.decode(self.engine.devices.terms(id))
        return id

    def reports(self, sites: Iterable[int | None], seed: int = 5) -> list[bytes]:
        """A report of each site; None is nowhere."""
        return reports_of(self.terms, sites, seed)

    def send(self, id: str, bodies: Sequence[bytes], first: int = 1) -> None:
        async def all_of() -> None:
            for device, body in enumerate(bodies, start=first):
                await self.engine.devices.report(id, device, body)

        asyncio.run(all_of())

    def play(self, id: str, turns: int = 5) -> str:
        """The conductor works until the collection ends, or waits."""
        for _ in range(turns):
            self.engine.tick()
            state = str(self.engine.collection(id)["state"])
            if state in ("done", "aborted"):
                break
        return state

    def close(self) -> None:
        for store in self.stores:
            store.close()


def reports_of(terms: CollectionTerms, sites: Iterable[int | None], seed: int = 5) -> list[bytes]:
    rng, (leader, helper) = Randomness(seed), terms.configs
    made = []
    for number, site in zip(itertools.count(), sites):
        contribution = np.zeros(terms.sharding.sites, dtype=np.int64)
        if site is not None:
            contribution[site] = terms.sharding.most
        drawn = ReportRandomness.draw(terms.sharding, rng.child(str(number)))
        made.append(make_report(terms.sharding, contribution, (leader, helper), HOUR, drawn).encode())
    return made


def changed(body: bytes, **parts: Any) -> bytes:
    """A report with another part."""
    return Report.decode(body)._replace(**parts).encode()
