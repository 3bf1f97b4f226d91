"""The collector over loopback HTTP, on the cores there are: whole distributed collections, and reports made durable.

The server is one process as ``mapveil serve`` runs it, the devices are others: every device signs its requests, draws
its own keys and noise, masks, and answers. Beside each figure stands what it could not go below: the same shards summed
in one process with nothing sent, an endpoint that reads and answers 204, and SQLite committing such rows alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.collector_service import Service, postgresql
from benchmarks.record import Context, Result, in_process, line
from mapveil.collector.accounts import Accounts
from mapveil.collector.clock import SystemClock
from mapveil.collector.store import Store
from mapveil.device.signature import authorization, enrolment_statement
from mapveil.device.terms import CollectionTerms
from mapveil.local.message import write_reports
from mapveil.privacy.random import Randomness
from mapveil.secure_sum.drivers import ProtocolSum, SumSettings
from mapveil.secure_sum.identity import Identity
from mapveil.secure_sum.vectors import Leaves, SparseVectors

SHARD: Final = 1_000
LOST: Final = 0.05
TOLERATED: Final = Fraction(1, 10)
CORRUPT: Final = Fraction(1, 20)
FLEETS: Final = 2  # processes
CONNECTIONS: Final = 64  # of the sender of reports
GOAL: Final = 2_000.0  # reports a second
LOOK_S: Final = 0.25


class Played(NamedTuple):
    """A distributed collection from its opening to its map."""

    seconds: float
    busy: float  # of these, while messages came in
    waited: float  # for those who had dropped out, until their time was over
    record: dict[str, Any]  # of the collection
    fleets: list[dict[str, Any]]
    server_cpu: float
    idle_mb: float
    peak_mb: float


def run(context: Context) -> list[Result]:
    """Measure collections of sums against both kinds of server, then reports into both stores."""
    few = context.quick
    return [
        *_sums(context, 60 if few else 10_000, active=False, phase_seconds=4 if few else 40),
        *_sums(context, 60 if few else 2_000, active=True, phase_seconds=4 if few else 20),
        *_reports(context, 1_000 if few else 20_000),
    ]


# Sums


def _sums(context: Context, devices: int, *, active: bool, phase_seconds: int) -> list[Result]:
    made = _play(context, devices, active, phase_seconds)
    rounds = made.record["rounds"]
    against = "a server that lies" if active else "an honest but curious server"
    name = f"adaptive, {devices:,} devices over HTTP in {len(rounds)} rounds, shards of {SHARD:,}, 5 % lost, {against}"
    sent = sum(each["sent"] for each in made.fleets)
    devices_cpu = sum(each["cpu"] for each in made.fleets)
    least = sum(_shard_cpu(each, active) for each in rounds)
    vectors = sum(math.ceil(each["length"] * each["bits"] / 8) for each in rounds)
    up, down = (
        sum(each[way]["mean"] * each["devices"] for each in made.fleets) / devices
        for way in ("bytes_up", "bytes_down")
    )
    requests = _bare(context, [b"x" * 100] * (1_000 if context.quick else 20_000))
    return [
        line(
            f"{name}: wall time",
            made.seconds,
            "s",
            f"{phase_seconds} s a phase that lost a device",
            made.waited,
        ),
        line(
            f"{name}: messages while they came in",
            1e-3 * sent / made.busy,
            "k/s",
            "requests to an endpoint that answers 204; a message takes two",
            1e-3 * requests["answered"] / requests["seconds"],
        ),
        line(
            f"{name}: processor seconds of server and devices",
            made.server_cpu + devices_cpu,
            "s",
            "the same shards in one process (from one shard of each round)",
            least,
        ),
        line(f"{name}: of these, the server", made.server_cpu, "s", "the devices", devices_cpu),
        line(f"{name}: a device sends", up / 1e3, "kB", "its vectors alone", vectors / 1e3),
        line(f"{name}: a device receives", down / 1e3, "kB", "its vectors alone", vectors / 1e3),
        line(f"{name}: peak memory of the server", made.peak_mb, "MB", "before the first device", made.idle_mb),
    ]  # fmt: skip


def _play(context: Context, devices: int, active: bool, phase_seconds: int) -> Played:
    """Run one collection, its server and its devices in processes of their own."""
    store = context.folder / f"sums-{devices}-{active}.sqlite"
    with Service(str(store), context.folder, devices) as service:
        collection = service.open(
            trust="distributed",
            method="adaptive",
            options={"shard_size": SHARD, "tolerated_dropout": float(TOLERATED), "corrupt": float(CORRUPT)},
            devices=devices,
            active=active,
            join_seconds=3600,
            phase_seconds=phase_seconds,
        )
        idle, begun = service.cpu, time.perf_counter()
        share = {"server": service.address, "token": service.enrolment, "collection": collection}
        fleets = []
        for number in range(FLEETS):
            part = (devices + number) // FLEETS
            fleets.append(_fleet({**share, "devices": part, "drop": LOST, "seed": number, "active": active}))
        try:
            busy, waited = _watch(service, collection, fleets)
            seconds = time.perf_counter() - begun
            said = [json.loads(fleet.communicate(timeout=300)[0].splitlines()[-1]) for fleet in fleets]
        finally:
            for fleet in fleets:
                fleet.kill()
        record = service.ask("GET", f"/v1/collections/{collection}")
        if record["state"] != "done":
            raise RuntimeError(f"the collection is {record['state']}: {record['reason']}")
        return Played(
            seconds, busy, waited, record, said, service.cpu - idle, service.idle_mb, service.peak_mb
        )


def _fleet(given: dict[str, Any]) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("collector_fleet.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if made.stdin is None:
        raise AssertionError("a pipe was asked for")
    made.stdin.write(json.dumps(given))
    made.stdin.close()
    made.stdin = None
    return made


def _watch(service: Service, collection: str, fleets: list[subprocess.Popen[str]]) -> tuple[float, float]:
    """Seconds in which messages came in, and those for which phases waited with nothing more to come."""
    phases: dict[tuple[int, str], list[float]] = {}  # opened, last grown, closed
    present: dict[tuple[int, str], int] = {}
    while True:
        now = service.ask("GET", f"/v1/collections/{collection}/progress")
        at = time.perf_counter()
        if now["state"] in ("done", "aborted"):
            break
        if any(fleet.poll() for fleet in fleets):
            raise RuntimeError("a part of the fleet failed")
        if now["state"] == "running" and now["phase"]:
            key = (now["round"], now["phase"])
            times = phases.setdefault(key, [at, at, at])
            times[2] = at
            if now["present"] > present.get(key, 0):
                present[key], times[1] = now["present"], at
            print(f"\r{key} {now['present']}/{now['wanted']}  ", end="", file=sys.stderr, flush=True)
        time.sleep(LOOK_S)
    print(file=sys.stderr)
    return sum(last - first for first, last, _ in phases.values()), sum(
        closed - last for _, last, closed in phases.values()
    )


def _shard_cpu(record: dict[str, Any], active: bool) -> float:
    """Processor seconds of a round's shards, every client and the server in this process: one, times how many."""
    shards: int = max(1, round(record["asked"] / SHARD))
    clients = record["asked"] // shards
    leaves = np.full(clients, Leaves.NEVER, dtype=np.int8)
    lost = round(LOST * clients)
    leaves[:lost] = np.arange(lost) % Leaves.INPUT
    settings = SumSettings(
        length=record["length"],
        bits=record["bits"],
        corrupt=CORRUPT,
        dropout=TOLERATED,
        round_id=b"benchmark",
        active=active,
    )
    entries = np.arange(clients)
    vectors = SparseVectors(
        clients, record["length"], entries, entries % record["length"], np.ones(clients, dtype=np.int64)
    )
    start = time.process_time()
    with ProtocolSum() as driver:
        driver.sums(
            vectors, np.array([0, clients]), leaves, settings, Randomness(), before_reveal=lambda _: None
        )
    seconds: float = time.process_time() - start
    return seconds * shards


# Reports


class _Sent(NamedTuple):
    rate: float  # reports a second
    batch: int  # of them in a commit
    size: int  # bytes of one


def _reports(context: Context, devices: int) -> list[Result]:
    folder = context.folder
    sqlite, rows = _report_lines(context, str(folder / "reports.sqlite"), "SQLite", devices)
    rows += [
        line(
            f"local reports, {devices:,} devices: durable in SQLite",
            1e-3 * sqlite.rate,
            "k/s",
            f"SQLite alone, {sqlite.batch} rows a commit",
            1e-3 * _sqlite_alone(folder / "alone.sqlite", sqlite.size, sqlite.batch, devices),
            ">= 2 k/s",
            sqlite.rate >= GOAL,
        )
    ]
    with postgresql() as url:
        if url is not None:
            rows += _report_lines(context, url, "PostgreSQL", devices)[1]
    return rows


def _report_lines(context: Context, store: str, kind: str, devices: int) -> tuple[_Sent, list[Result]]:
    """Reports of that many devices by the default method, signed, from 64 connections at once."""
    with Service(store, context.folder, devices) as service:
        collection = service.open(trust="local", devices=devices, join_seconds=3600)
        terms = CollectionTerms.decode(service.text(f"/v1/collections/{collection}/terms").encode())
        requests, size = _signed_reports(service, terms, devices)
        before = service.metric("mapveil_store_commit_seconds_count")
        made = _send(context, service.address, requests)
        commits = service.metric("mapveil_store_commit_seconds_count") - before
        kept = service.ask("GET", f"/v1/collections/{collection}/progress")["present"]
        if not made["answered"] == kept == devices:
            raise RuntimeError(f"{made['answered']} reports acknowledged, {kept} kept, of {devices}")
    bare = _bare(context, requests)
    rate = devices / made["seconds"]
    name = f"local reports, {devices:,} devices: durable in {kind}"
    peer = "an endpoint that answers 204"
    rows = [
        line(
            name,
            1e-3 * rate,
            "k/s",
            peer,
            1e-3 * bare["answered"] / bare["seconds"],
            ">= 2 k/s" if kind == "SQLite" else "",
            rate >= GOAL if kind == "SQLite" else None,
        ),
        line(f"{name}, median", made["p50_ms"], "ms", peer, bare["p50_ms"]),
        line(f"{name}, 99th percentile", made["p99_ms"], "ms", peer, bare["p99_ms"]),
    ]
    return _Sent(rate, max(1, round(devices / max(1.0, commits))), size), rows


def _signed_reports(service: Service, terms: CollectionTerms, devices: int) -> tuple[list[bytes], int]:
    """Enrol the devices, have each randomize its cell, and write and sign the requests that send the reports."""
    rng = Randomness()
    identities = [Identity.draw(rng) for _ in range(devices)]
    numbers = _enrol(service, identities)
    cells = np.random.default_rng(1).integers(0, terms.cells.size, devices)
    bodies = write_reports(terms.randomizer.randomize(cells, rng), terms.randomizer)
    path = f"/v1/collections/{terms.identifier}/report"
    head = f"PUT {path} HTTP/1.1\r\nHost: collector\r\nContent-Type: application/cbor\r\n"
    requests = [
        f"{head}Authorization: {authorization(identity, number, 'PUT', path, body)}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
        for identity, number, body in zip(identities, numbers, bodies, strict=True)
    ]
    return requests, len(bodies[0])


def _enrol(service: Service, identities: list[Identity]) -> list[int]:
    store = Store(service.store, clock=SystemClock())
    accounts, token = Accounts(store), service.enrolment

    async def enrol() -> list[int]:
        return await asyncio.gather(
            *(
                accounts.enrol(token, each.public, each.sign(enrolment_statement(token, each.public)))
                for each in identities
            )
        )

    with contextlib.closing(store):
        return asyncio.run(enrol())


def _send(context: Context, address: str, requests: list[bytes]) -> dict[str, Any]:
    written = context.folder / "requests"
    written.write_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in requests))
    return in_process(sys.executable, "collector_sender.py", address, written, CONNECTIONS)


@contextlib.contextmanager
def _bare_endpoint() -> Iterator[str]:
    script = Path(__file__).with_name("collector_bare.py")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _bare(context: Context, requests: list[bytes]) -> dict[str, Any]:
    """The same requests, or such bodies, to the endpoint that keeps nothing."""
    whole = [
        each
        if each.startswith(b"PUT")
        else b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(each), each)
        for each in requests
    ]
    with _bare_endpoint() as address:
        return _send(context, address, whole)


def _sqlite_alone(path: Path, size: int, batch: int, rows: int) -> float:
    """Rows a second that SQLite makes durable with nothing in its way, as many to a commit as the server had."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE reports (collection TEXT, device INTEGER, body BLOB, PRIMARY KEY (collection, device)) "
            "WITHOUT ROWID",
        ):
            file.execute(statement)
        body = bytes(size)
        start = time.perf_counter()
        for first in range(0, rows, batch):
            file.execute("BEGIN IMMEDIATE")
            file.executemany(
                "INSERT INTO reports VALUES (?, ?, ?)",
                [("0" * 32, device, body) for device in range(first, min(first + batch, rows))],
            )
            file.execute("COMMIT")
        return rows / (time.perf_counter() - start)
