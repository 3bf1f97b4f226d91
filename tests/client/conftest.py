"""Collections without a network: terms, announcements, and a shard of devices with the real server machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.map_points import map_points
from mapveil.secure_sum.server import Server, any_identity
from mapveil.trust.queries import Query
from mapveil.trust.secure_aggregation.round_terms import RoundTerms
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.device_locations import Whereabouts
from mapveil_client.encodings import NodeEncoding
from mapveil_client.memory import DeviceMemory
from mapveil_client.morton import PrefixTree
from mapveil_client.participation import Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features.report import write_query
from mapveil_client.randomness.noise_shares import share_shape
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import ServerState
from mapveil_client.terms import CollectionTerms
from tests.authority import NAMED, certified

REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
DEPTH = 3
FINE = 8
BANDWIDTH_M = 150.0
PHASES = {state: state.name.lower() for state in ServerState}

collect_ignore = ["third_party"]  # programs of their own, which are run, not imported


def make_terms(**changes: Any) -> CollectionTerms:
    """Terms of a distributed collection of 24 devices; a projection's query is made where it is missing."""
    given: dict[str, Any] = {
        "identifier": "0123456789abcdef" * 2,
        "title": "where people are",
        "trust": "distributed",
        "method": "laplace",
        "epsilon": Fraction(1),
        "options": {},
        "tiling": Quadtree(REGION, DEPTH).to_dict(),
        "devices": 24,
        "minimum": 20,
        **changes,
    }
    if given["trust"] == "distributed" and given.get("active", True):
        given.setdefault("authority", NAMED)
    if given["trust"] == "random-features":
        given.setdefault("query", b"")
        given["epsilon"] = None
        # Fine enough that no frequency is folded.
        given["tiling"] = changes.get("tiling", Quadtree(REGION, FINE).to_dict())
        if not given["query"]:
            mechanism = FourierKde(**given["options"])
            where = map_points(Quadtree(REGION, FINE))
            given["query"] = write_query(mechanism.query(where, mechanism.bandwidth_m or BANDWIDTH_M))
    terms = CollectionTerms(**given)
    if terms.trust == "distributed" and "own_epsilon" not in changes:
        terms = replace(terms, own_epsilon=terms.least_own_epsilon)
    return terms


def make_announcement(terms: CollectionTerms, **changes: Any) -> RoundAnnouncement:
    """The first round of these terms, as an honest server announces it, one shard of all devices by default."""
    encoding = NodeEncoding(PrefixTree.uniform(DEPTH, DEPTH))
    sizes = changes.pop("sizes", (terms.devices,))
    epsilon = changes.pop("epsilon", terms.epsilon)
    mechanism: Any = terms.parameters
    corrupt, dropout = (Fraction(str(getattr(mechanism, name))) for name in ("corrupt", "tolerated_dropout"))
    alpha = share_shape(min(sizes), dropout, corrupt)
    query = Query("a test", encoding, epsilon)
    made = RoundTerms.of(query, np.array(sizes), alpha, mechanism.scale or 1024, mechanism.rounding)
    given = {
        "terms": terms.digest.hex(),
        "number": 1,
        "run": "5a" * 16,
        "purpose": query.purpose,
        "encoding": encoding.to_dict(),
        "length": encoding.length,
        "epsilon": epsilon,
        "alpha": alpha,
        "scale": made.scale,
        "rounding": mechanism.rounding,
        "bits": made.bits,
        "corrupt": corrupt,
        "dropout": dropout,
        "active": terms.active,
        "sizes": tuple(sizes),
        **changes,
    }
    # Over the wire and back: what a device reads.
    return RoundAnnouncement.decode(RoundAnnouncement(**given).encode())


def somewhere(index: int) -> Whereabouts:
    """One place inside the region, another for each device."""
    west, south, east, north = REGION.bbox
    rng = np.random.default_rng(index)
    return Whereabouts(rng.uniform(west, east, 1), rng.uniform(south, north, 1))


class Shard:
    """Devices of one shard and the server's machine; a test may change what the server says."""

    def __init__(
        self, terms: CollectionTerms, devices: Iterable[Participation], announcement: RoundAnnouncement
    ) -> None:
        self.terms, self.announcement = terms, announcement
        self.devices = list(devices)
        graph_seed = Randomness(5).words(32, np.uint8).tobytes()
        self.server = Server(announcement.parameters(0), graph_seed, enrolled=any_identity)
        self.outbox: Any = {}

    @property
    def phase(self) -> str:
        return PHASES[self.server.state]

    def message(self, client: int) -> bytes | None:
        """What device ``client`` sends in the phase that is open."""
        device = self.devices[client]
        if self.phase == "keys":
            return device.begin(self.announcement, 0, client)
        return device.answer(self.announcement, self.phase, self.outbox.get(client, b""))

    def deliver(self, clients: Iterable[int] | None = None) -> None:
        for client in range(len(self.devices)) if clients is None else clients:
            body = self.message(client)
            assert body is not None
            self.server.receive(client, body)

    def close(self) -> None:
        self.outbox = self.server.close_phase()

    def until(self, phase: str) -> Shard:
        while self.phase != phase:
            self.deliver()
            self.close()
        return self


@pytest.fixture
def new_terms() -> Callable[..., CollectionTerms]:
    return make_terms


@pytest.fixture
def new_announcement() -> Callable[..., RoundAnnouncement]:
    return make_announcement


@pytest.fixture
def new_device() -> Callable[..., Participation]:
    """A device with a memory of its own (or one that is given), which has joined."""

    def make(terms: CollectionTerms, index: int = 0, *, joined: bool = True, **given: Any) -> Participation:
        memory = given.get("memory") or DeviceMemory.open(rng=Randomness(1000 + index))
        certified(memory)
        device = Participation(
            memory,
            given.get("policy", DevicePolicy(authority=NAMED)),
            terms,
            given.get("places") or somewhere(index),
            Randomness(index),
            given.get("now", time.time),
        )
        if joined:
            device.join()
        return device

    return make


@pytest.fixture
def new_shard(new_device: Callable[..., Participation]) -> Callable[..., Shard]:
    """A shard of devices that have joined; ``special`` gives some of them, by number."""

    def make(
        terms: CollectionTerms, special: dict[int, Participation] | None = None, **changes: Any
    ) -> Shard:
        given = special or {}
        policy = DevicePolicy(authority=NAMED, active_only=terms.active)
        devices = [
            given.get(index) or new_device(terms, index, policy=policy) for index in range(terms.devices)
        ]
        return Shard(terms, devices, make_announcement(terms, **changes))

    return make
