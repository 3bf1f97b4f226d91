"""A round of secure sums whose messages were made beforehand: what the server alone takes, and one worker beside two.

The devices are real: their keys, shares, masks and signatures are computed before, from the round as the store holds
it. What is measured is the server: PostgreSQL below it, and a sender beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import select

from benchmarks.collector import CORRUPT, LOST, SHARD, TOLERATED
from benchmarks.collector_reports import GOAL_MS, enrol
from benchmarks.collector_requests import send
from benchmarks.collector_service import Service, postgresql, postgresql_cpu
from benchmarks.record import Context, Result, line, pin
from mapveil.collector.clock import SystemClock
from mapveil.collector.rounds.intake import KeepMembers, KeepMessages, Message
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import messages, rounds
from mapveil.collector.store.schema import shards as drawn
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil.secure_sum.server import Server, any_identity
from mapveil_client.arrays import FloatArray
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import Authority, Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity, authorization
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import ServerState, phase_name, server_phases

GOAL_MINUTES: Final = 30.0  # of a core, for a round of a million devices
GOAL_RATIO: Final = 1.8
GOAL_MB: Final = 600.0
_AUTHORITY: Final = "5a" * 32  # the key of the enrolment authority
_SPEC: Final[dict[str, Any]] = {
    "trust": "distributed",
    "method": "laplace",
    "tiling": "quadtree:4",
    "join_seconds": 3600,
    "options": {"shard_size": SHARD, "tolerated_dropout": float(TOLERATED), "corrupt": float(CORRUPT)},
}
_REPEATS: Final = 3
_LOOK_S: Final = 0.1
_VISITS: Final = 20_000  # of devices that wait for a phase's end
_PHASE_S: Final = 240  # the messages of all phases are made in it, and one that loses devices lasts it
_MOST_PHASE_S: Final = 3600  # of a round that loses none

Sent = dict[ServerState, list[tuple[int, bytes]]]
"""The messages of a shard's clients in each phase."""


class _Fleet(NamedTuple):
    identities: list[Identity]  # drawn from their places
    numbers: list[int]  # of the devices

    def first(self, devices: int) -> _Fleet:
        return _Fleet(self.identities[:devices], self.numbers[:devices])


class _Shard(NamedTuple):
    """One shard of a round, and the places of its clients in the fleet."""

    parameters: RoundParameters
    graph_seed: bytes
    places: list[int]
    population: str  # of the authority that certifies its clients; empty where none does


def run(context: Context) -> list[Result]:
    """Measure rounds of one process, and rounds whose last phase one worker closes, or two."""
    # The conductor's steps and a fresh worker's first imports take as long for two workers as for one: much of the time
    # of ten shards, and little beside the thousand of a million devices.
    shards, signed, ending = (2, 2, 2) if context.quick else (10, 4, 30)
    key = context.folder / "authority.key"
    key.touch(mode=0o600)
    key.write_text(_AUTHORITY, encoding="utf-8")
    rows: list[Result] = []
    with postgresql() as url:
        if url is None:
            return []
        fleet = _Fleet([_identity(place) for place in range(SHARD * ending)], [])
        for some, active in ((shards, False), (signed, True)):
            with Service(url, context.folder, SHARD * ending, "--authority-key", str(key)) as service:
                if not fleet.numbers:
                    fleet = fleet._replace(numbers=enrol(service, fleet.identities))
                rows += _one_process(context, service, fleet.first(SHARD * some), active)
        return rows + _workers(context, url, fleet)


def _identity(place: int) -> Identity:
    return Identity.draw(Randomness(place))


class _Round(NamedTuple):
    """A round over HTTP to a server of one process."""

    shards: int
    used: FloatArray  # processor seconds of the collector and of PostgreSQL
    visits: FloatArray  # such seconds of visits of devices that wait
    worst_ms: float  # 99th percentile of a request, in the slowest phase


def _one_process(context: Context, service: Service, fleet: _Fleet, active: bool) -> list[Result]:
    """A round of one shard, nobody lost, and then the one that is measured."""
    _round(context, service, fleet.first(SHARD), 0.0, active)
    first_mb = service.peak_mb
    made = _round(context, service, fleet, LOST, active)
    devices = len(fleet.numbers)
    against = "a malicious server" if active else "an honest but curious server"
    scene = f"shards of {SHARD:,}, l = 256, {LOST:.0%} lost, {against}"
    name = f"a round of secure sums, {devices:,} devices over HTTP, {scene}"
    own, below = (1e3 * made.used / devices).tolist()
    goal, both = GOAL_MINUTES * 60 / 1e3, own + below
    own_visit, below_visit = (1e3 * made.visits / _VISITS).tolist()
    aim = () if active else (f"both <= {goal:g} ms", both <= goal)
    shard_mb = (service.peak_mb - first_mb) / (made.shards - 1)
    return [
        line(f"{name}: processor time of the collector, of a device", own, "ms", "with PostgreSQL", both, *aim),
        line(f"{name}: processor time of PostgreSQL, of a device", below, "ms", "with the collector", both),
        line(f"{name}: 99th percentile of a request, in the slowest phase", made.worst_ms, "ms", "the goal", GOAL_MS,
             f"< {GOAL_MS:g} ms", made.worst_ms < GOAL_MS),
        line(f"{name}: peak memory of the collector, of every shard but the first", shard_mb, "MB", "with the first",
             first_mb),
        *([] if active else [
            line(f"{name}: a visit of a device that waits, of the collector and PostgreSQL with their idle loops",
                 own_visit + below_visit, "ms", "a device in the whole round", both),
        ]),
    ]  # fmt: skip


def _round(context: Context, service: Service, fleet: _Fleet, lost: float, active: bool) -> _Round:
    phases, worst = server_phases(active=active), 0.0
    with _store(service.store) as store:
        collection, shards, played = _begin(service, store, fleet, lost, active)
    written = [list(_requests(collection, phase, shards, played, fleet)) for phase in phases]
    used, visits = np.zeros(2), np.zeros(2)  # by the collector and by PostgreSQL
    for phase, requests in zip(phases, written, strict=True):
        _wait(service, collection, phase)
        used -= _cpu(service)
        worst = max(worst, send(context, service.address, requests)["p99_ms"])
        if phase is ServerState.INPUTS and lost:
            # The time for which it waits for the lost is no work of theirs.
            used += _cpu(service)
            visits -= _cpu(service)
            send(context, service.address, [_visit(collection)] * _VISITS)
            visits += _cpu(service)
            _wait(service, collection, phase, 1.0)
            used -= _cpu(service)
        following = next((each for each in phases if each.value > phase.value), None)
        _wait(service, collection, following)
        if following is None:
            _wait_for_deletion(service, collection)
        used += _cpu(service)
    return _Round(len(shards), used, visits, worst)


def _cpu(service: Service) -> FloatArray:
    return np.array([service.cpu, postgresql_cpu(service.store)])


def _begin(
    service: Service, store: Store, fleet: _Fleet, lost: float, active: bool = False
) -> tuple[str, list[_Shard], list[Sent]]:
    """Open a collection that all devices join, and make their messages of its round."""
    devices = len(fleet.numbers)
    lasts = _PHASE_S if lost else _MOST_PHASE_S
    collection = service.open(devices=devices, phase_seconds=lasts, active=active, **_SPEC)

    async def join() -> None:
        keep = KeepMembers(collection, devices)
        await asyncio.gather(*(store.put(keep, number) for number in fleet.numbers))

    asyncio.run(join())
    _wait(service, collection, ServerState.KEYS)
    told = service.ask("GET", f"/v1/collections/{collection}")["authority"]
    population = Authority.parse(told).population if active else ""
    shards = _shards(store, collection, fleet, population)
    with multiprocessing.get_context("spawn").Pool() as pool:
        return collection, shards, pool.starmap(play, [(each, lost) for each in shards])


def _shards(store: Store, collection: str, fleet: _Fleet, population: str) -> list[_Shard]:
    """The shards of the round that has begun, as the server drew them."""
    held = ShardMachines(store).of(collection, 1)
    if held is None:
        raise AssertionError("the round has begun")
    announced = held.announcement
    places = [[0] * size for size in announced.sizes]
    for place, number in enumerate(fleet.numbers):
        assigned = held.assignment(number)
        if assigned is None:
            raise AssertionError("every device joined")
        places[assigned.shard][assigned.client] = place
    here = drawn.c.collection == collection, drawn.c.round == 1
    with store.read() as connection:
        seeds = connection.execute(select(drawn.c.graph_seed).where(*here).order_by(drawn.c.shard)).scalars()
        return [
            _Shard(announced.parameters(shard), seed, places[shard], population)
            for shard, seed in enumerate(seeds)
        ]


def play(shard: _Shard, lost: float) -> Sent:
    """Every client of a shard, and the server that they answer."""
    parameters, rng = shard.parameters, Randomness()
    n = parameters.clients
    gone = round(lost * n)  # after the shares: who is lost then costs the server most
    server = Server(parameters, shard.graph_seed, enrolled=any_identity)
    clients = [
        Client(
            parameters,
            client,
            np.eye(1, parameters.length, client % parameters.length, dtype=np.int64)[0],
            rng,
            credentials=_credentials(shard.population, shard.places[client]) if parameters.signed else None,
        )
        for client in range(n)
    ]
    sent: Sent = {}
    outbox: Mapping[int, bytes] = {}
    for at, phase in enumerate(server_phases(active=parameters.active)):
        staying = [client for client in range(n) if at < 2 or (client >= gone and client in outbox)]
        sent[phase] = [
            (client, clients[client].receive(outbox[client]) if at else clients[client].advertise())
            for client in staying
        ]
        for client, body in sent[phase]:
            server.receive(client, body)
        outbox = server.close_phase()
    return sent


def _credentials(population: str, place: int) -> Credentials:
    """A device's key, and its certificate by the collector's own authority."""
    identity = _identity(place)
    authority = EnrolmentAuthority(population, Identity(bytes.fromhex(_AUTHORITY)))
    return Credentials(identity, authority.certify(identity.public, time.time()), authority.named)


def _requests(
    collection: str, phase: ServerState, shards: list[_Shard], played: list[Sent], fleet: _Fleet
) -> Iterator[bytes]:
    """What the devices send in a phase: each asks for its shard or the server's message, then sends its own."""
    base = f"/v1/collections/{collection}/rounds/1"
    ask = f"{base}/{'assignment' if phase is ServerState.KEYS else 'server-message'}"
    for shard, sent in zip(shards, played, strict=True):
        for client, body in sent[phase]:
            place = shard.places[client]
            identity, number = fleet.identities[place], fleet.numbers[place]
            yield _request("GET", ask, identity, number)
            yield _request("PUT", f"{base}/messages/{phase_name(phase)}", identity, number, body)


def _visit(collection: str) -> bytes:
    """A device's question for where the collection stands, which nobody signs."""
    return f"GET /v1/collections/{collection}/progress HTTP/1.1\r\nHost: collector\r\n\r\n".encode()


def _request(method: str, path: str, identity: Identity, number: int, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: collector\r\n"
    if method == "PUT":
        head += f"Content-Type: application/cbor\r\nContent-Length: {len(body)}\r\n"
    return (
        f"{head}Authorization: {authorization(identity, number, method, path, body)}\r\n\r\n".encode() + body
    )


def _wait(service: Service, collection: str, phase: ServerState | None, left_s: float = math.inf) -> None:
    """Wait until a phase has begun, or all are over where it is None, and until it has no more time left than this."""
    while True:
        now = service.ask("GET", f"/v1/collections/{collection}/progress")
        if now["state"] == "aborted":
            raise RuntimeError(f"the collection is aborted: {now['reason']}")
        there = phase is not None and now["phase"] == phase_name(phase)
        if now["state"] in ("finishing", "done") or (there and now["closes_in_s"] <= left_s):
            return
        time.sleep(_LOOK_S)


def _workers(context: Context, url: str, fleet: _Fleet) -> list[Result]:
    """The last phase of a round, from its end to the sums, closed by workers that were just started, of a core each."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    most, phases = 0.0, server_phases(active=False)
    exports = ("--exports", str(context.folder / "exports"))
    with (
        Service(url, context.folder, 1, "--role", "intake", *exports) as intake,
        Service(url, context.folder, 1, "--role", "conductor"),
        _store(url) as store,
    ):
        for count in (1, 2) * (1 if context.quick else _REPEATS):
            with Service(url, context.folder, 1, "--role", "worker", *exports):
                collection, _, played = _begin(intake, store, fleet, 0.0)
                for phase in phases[:-1]:
                    _wait(intake, collection, phase)
                    _put(store, collection, phase, played)
                _wait(intake, collection, phases[-1])
            with contextlib.ExitStack() as stack:
                workers = [
                    stack.enter_context(Service(url, context.folder, 1, "--role", "worker", *exports))
                    for _ in range(count)
                ]
                for core, worker in zip(sorted(os.sched_getaffinity(0)), workers, strict=False):
                    pin(worker.process.pid, core)
                _put(store, collection, phases[-1], played)
                while _collects(store, collection):
                    time.sleep(_LOOK_S)
                begun = time.perf_counter()
                _wait(intake, collection, None)
                seconds[count].append(time.perf_counter() - begun)
                most = max(most, *(each.peak_mb for each in workers))
    one, two = (float(np.median(seconds[count])) for count in (1, 2))
    name = (
        f"the last phase of a round of {len(fleet.numbers):,} devices, nobody lost, an honest but curious server, "
        "from its end to the sums, closed by fresh workers of a core each:"
    )
    return [
        line(f"{name} two", two, "s", "one", one, f">= {GOAL_RATIO:g} x", one / two >= GOAL_RATIO),
        line(f"{name} two, the slowest of {len(seconds[2])}", max(seconds[2]), "s", "one, the fastest",
             min(seconds[1])),
        line(f"{name} peak memory of one", most, "MB", "the goal", GOAL_MB,
             f"<= {GOAL_MB:g} MB", most <= GOAL_MB),
    ]  # fmt: skip


def _collects(store: Store, collection: str) -> bool:
    """Whether a phase is open: the conductor counts messages for a part of the time, whoever closes shards."""
    with store.read() as connection:
        return bool(
            connection.execute(select(rounds.c.open).where(rounds.c.collection == collection)).scalar_one()
        )


def _wait_for_deletion(service: Service, collection: str) -> None:
    """Wait until a worker has deleted the messages of a round, which is part of its cost."""
    of_collection = select(messages.c.client).where(messages.c.collection == collection).limit(1)
    with _store(service.store) as store:
        while True:
            with store.read() as connection:
                if connection.execute(of_collection).first() is None:
                    return
            time.sleep(_LOOK_S)


def _put(store: Store, collection: str, phase: ServerState, played: list[Sent]) -> None:
    """Store the messages of a phase as the intake does."""
    keep = KeepMessages(collection, 1, phase)

    async def put() -> None:
        await asyncio.gather(
            *(
                store.put(keep, Message(shard, client, body))
                for shard, sent in enumerate(played)
                for client, body in sent[phase]
            )
        )

    asyncio.run(put())


@contextlib.contextmanager
def _store(url: str) -> Iterator[Store]:
    with contextlib.closing(Store(url, clock=SystemClock())) as store:
        yield store
