"""The collector over loopback HTTP: distributed collections whole, on the cores there are.

The server is one process as ``mapveil serve`` runs it, the devices are others: every device signs its requests, draws
its own keys and noise, masks, and answers. Beside each figure stands what it could not go below, such as the same
shards summed in one process with nothing sent.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.collector_requests import bare
from benchmarks.collector_service import Service
from benchmarks.record import Context, Result, line
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

SHARD: Final = 1_000
LOST: Final = 0.05
TOLERATED: Final = Fraction(1, 10)
CORRUPT: Final = Fraction(1, 20)
FLEETS: Final = 2  # processes
LOOK_S: Final = 0.25


class Played(NamedTuple):
    """A distributed collection from its opening to its map."""

    seconds: float
    busy: float  # of these, while messages came in
    waited: float  # for those who had dropped out, until their time was over
    messages: int  # that came; to join is none
    record: dict[str, Any]  # of the collection
    fleets: list[dict[str, Any]]
    server_cpu: float
    idle_mb: float
    peak_mb: float


def run(context: Context) -> list[Result]:
    """Measure a collection against an honest but curious server."""
    few = context.quick
    return sums(context, 60 if few else 10_000, active=False, phase_seconds=4 if few else 60)


def sums(context: Context, devices: int, *, active: bool, phase_seconds: int) -> list[Result]:
    """Play one collection and stand it beside what it could not go below."""
    made = _play(context, devices, active, phase_seconds)
    rounds = made.record["rounds"]
    against = "a malicious server" if active else "an honest but curious server"
    method = f"{made.record['method']} in {len(rounds)} rounds"
    name = f"{method}, {devices:,} devices over HTTP, shards of {SHARD:,}, {LOST:.0%} lost, {against}"
    devices_cpu = sum(each["cpu"] for each in made.fleets)
    least = sum(_shard_cpu(each, active) for each in rounds)
    vectors = sum(math.ceil(each["length"] * each["bits"] / 8) for each in rounds)
    up, down = (
        sum(each[way]["mean"] * each["devices"] for each in made.fleets) / devices
        for way in ("bytes_up", "bytes_down")
    )
    requests = bare(context, [b"x" * 100] * (1_000 if context.quick else 20_000))
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
            1e-3 * made.messages / made.busy,
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
            options={"shard_size": SHARD, "tolerated_dropout": float(TOLERATED), "corrupt": float(CORRUPT)},
            devices=devices,
            active=active,
            join_seconds=3600,
            phase_seconds=phase_seconds,
        )
        idle, begun = service.cpu, time.perf_counter()
        share = {"server": service.address, "token": service.enrolment, "collections": [collection]}
        share["authority"] = service.ask("GET", f"/v1/collections/{collection}")["authority"]
        fleets = []
        for number in range(FLEETS):
            part = (devices + number) // FLEETS
            fleets.append(
                start_fleet({**share, "devices": part, "drop": LOST, "seed": number, "active": active})
            )
        try:
            busy, waited, messages = _watch(service, collection, fleets)
            seconds = time.perf_counter() - begun
            said = [json.loads(fleet.communicate(timeout=300)[0].splitlines()[-1]) for fleet in fleets]
        finally:
            for fleet in fleets:
                fleet.kill()
        record = service.ask("GET", f"/v1/collections/{collection}")
        if record["state"] != "done":
            raise RuntimeError(f"the collection is {record['state']}: {record['reason']}")
        if any(each["state"] != "done" for each in record["rounds"]):
            raise RuntimeError("a round was run again: its devices need longer phases on this machine")
        return Played(
            seconds,
            busy,
            waited,
            messages,
            record,
            said,
            service.cpu - idle,
            service.idle_mb,
            service.peak_mb,
        )


def start_fleet(given: dict[str, Any]) -> subprocess.Popen[str]:
    """A part of a fleet, in a process of its own."""
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


def _watch(
    service: Service, collection: str, fleets: list[subprocess.Popen[str]]
) -> tuple[float, float, int]:
    """Seconds in which messages came in, those for which phases waited with nothing more to come, and how many came."""
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
            if sys.stderr.isatty():
                where = f"\rround {key[0]}: {key[1]} {now['present']}/{now['wanted']}  "
                print(where, end="", file=sys.stderr, flush=True)
        time.sleep(LOOK_S)
    return (
        sum(last - first for first, last, _ in phases.values()),
        sum(closed - last for _, last, closed in phases.values()),
        sum(present.values()),
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
