"""Reports of local privacy over loopback HTTP, each durable before it is acknowledged.

Real devices, enrolled; each randomizes its cell and signs its request. That is done before, so that what is measured is
the server. Beside it: an endpoint of the same kind that reads and answers 204, and SQLite committing such rows alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks.collector_requests import CONNECTIONS, bare, send
from benchmarks.collector_service import Service, postgresql
from benchmarks.record import Context, Result, line
from mapveil.collector.clock import SystemClock
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts
from mapveil_client.local.message import write_reports
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, authorization, enrolment_statement
from mapveil_client.terms import CollectionTerms

GOALS: Final = {
    "SQLite": 6_000.0,
    "PostgreSQL": 4_000.0,
}  # reports a second, on two cores that do nothing else
GOAL_MS: Final = 250.0
GOAL_S: Final = 300.0  # for a million
_MANY: Final = 256  # connections
_AT_ONCE: Final = 10_000  # devices


class _Sent(NamedTuple):
    rate: float  # reports a second
    batch: int  # of them in a commit
    size: int  # bytes of one


def run(context: Context) -> list[Result]:
    """Measure both stores."""
    devices = 1_000 if context.quick else 20_000
    folder = context.folder
    sqlite, rows = _report_lines(context, str(folder / "reports.sqlite"), "SQLite", devices)
    rows += [
        line(
            f"local reports, {devices:,} devices: durable in SQLite",
            1e-3 * sqlite.rate,
            "k/s",
            "SQLite alone, as many rows a commit",
            1e-3 * _sqlite_alone(folder / "alone.sqlite", sqlite.size, sqlite.batch, devices),
        )
    ]
    with postgresql() as url:
        if url is not None:
            rows += _report_lines(context, url, "PostgreSQL", devices)[1]
    return rows


def million(context: Context) -> list[Result]:
    """Measure a million reports in PostgreSQL, one after another as fast as they are acknowledged."""
    devices = 20_000 if context.quick else 1_000_000
    with postgresql() as url:
        if url is None:
            return []
        with Service(url, context.folder, devices) as service:
            name = f"local reports, {devices:,} devices: durable in PostgreSQL"
            sent, rows = _sent(context, service, name, GOALS["PostgreSQL"], devices, CONNECTIONS)
    seconds = devices / sent.rate
    goal = (f"<= {GOAL_S:g} s", None if context.quick else seconds <= GOAL_S)
    return [*rows, line(f"{name}, from the first to the last", seconds, "s", "the goal", GOAL_S, *goal)]


def _report_lines(context: Context, store: str, kind: str, devices: int) -> tuple[_Sent, list[Result]]:
    """Reports of that many devices by the default method, signed: over 64 connections, and over more."""
    name = f"local reports, {devices:,} devices: durable in {kind}"
    with Service(store, context.folder, 2 * devices) as service:
        sent, rows = _sent(context, service, name, GOALS[kind], devices, CONNECTIONS)
        many = f"{name}, over {_MANY} connections"
        return sent, rows + _sent(context, service, many, GOALS[kind], devices, _MANY)[1]


def _sent(
    context: Context, service: Service, name: str, goal: float, devices: int, connections: int
) -> tuple[_Sent, list[Result]]:
    collection = service.open(trust="local", devices=devices, join_seconds=3600)
    terms = CollectionTerms.decode(service.text(f"/v1/collections/{collection}/terms").encode())
    requests, size = signed_reports(service, terms, devices)
    before, used = service.metric("mapveil_store_commit_seconds_count"), service.cpu
    made = send(context, service.address, requests, connections)
    used = service.cpu - used
    commits = service.metric("mapveil_store_commit_seconds_count") - before
    kept = service.ask("GET", f"/v1/collections/{collection}/progress")["present"]
    if not made["answered"] == kept == devices:
        raise RuntimeError(f"{made['answered']} reports acknowledged, {kept} kept, of {devices}")
    least = bare(context, requests, connections)
    rate, peer = devices / made["seconds"], "an endpoint that answers 204"
    bare_rate = 1e-3 * least["answered"] / least["seconds"]
    rows = [
        line(name, 1e-3 * rate, "k/s", peer, bare_rate, f">= {1e-3 * goal:g} k/s", rate >= goal),
        line(
            f"{name}, processor time of the service a report",
            1e6 * used / devices,
            "us",
            "its wall time",
            1e6 / rate,
        ),
        line(f"{name}, median", made["p50_ms"], "ms", peer, least["p50_ms"]),
        line(
            f"{name}, 99th percentile",
            made["p99_ms"],
            "ms",
            peer,
            least["p99_ms"],
            f"< {GOAL_MS:g} ms",
            made["p99_ms"] < GOAL_MS,
        ),
    ]
    return _Sent(rate, max(1, round(devices / max(1.0, commits))), size), rows


def signed_reports(service: Service, terms: CollectionTerms, devices: int) -> tuple[list[bytes], int]:
    """Enrol the devices, have each randomize its cell, and write and sign the requests that send the reports."""
    rng = Randomness()
    identities = [Identity.draw(rng) for _ in range(devices)]
    numbers = enrol(service, identities)
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


def enrol(service: Service, identities: list[Identity]) -> list[int]:
    """Enrol the devices; their numbers."""
    store = Store(service.store, clock=SystemClock())
    accounts, token = Accounts(store), service.enrolment

    async def enrolled(some: list[Identity]) -> list[int]:
        return await asyncio.gather(
            *(
                accounts.enrol(token, each.public, each.sign(enrolment_statement(token, each.public)))
                for each in some
            )
        )

    numbers: list[int] = []
    with contextlib.closing(store):
        for first in range(0, len(identities), _AT_ONCE):
            numbers += asyncio.run(enrolled(identities[first : first + _AT_ONCE]))
    return numbers


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
