"""A collector with much to do: a map of a million cells and twelve files of it beside other collections, and twenty
collections at once.

Deadlines of other collections are followed all the while, and so is a request that needs next to nothing. Twenty
collections of secure sums are played one after another, then at once; what counts is the server's processor time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.collector import start_fleet
from benchmarks.collector_reports import signed_reports
from benchmarks.collector_requests import send
from benchmarks.collector_service import Service
from benchmarks.record import Context, Result, line
from mapveil_client.terms import CollectionTerms

GOAL_MS: Final = 250.0
GOAL_WORK: Final = 1.3
GOAL_LATE_S: Final = 1.0  # a look of the conductor, and some more
_FORMATS: Final = ("geotiff", "geoparquet", "geojson", "png", "html")
_EXPORTS: Final = 12
_QUIET_S: Final = 10
_LOOK_S: Final = 0.05


class _Waits(NamedTuple):
    """Waits of others meanwhile."""

    late_s: float  # the latest deadline
    p99_ms: float


def run(context: Context) -> list[Result]:
    """Measure both."""
    return [*_beside_a_large_map(context), *_many_at_once(context)]


def _beside_a_large_map(context: Context) -> list[Result]:
    depth, reports = (6, 50) if context.quick else (10, 1_000)
    with Service(str(context.folder / "busy.sqlite"), context.folder, reports) as service:
        collection = service.open(
            trust="local", tiling=f"quadtree:{depth}", devices=reports, join_seconds=3600
        )
        terms = CollectionTerms.decode(service.text(f"/v1/collections/{collection}/terms").encode())
        requests, _ = signed_reports(service, terms, reports)
        with _watched(service) as quiet:
            time.sleep(1 if context.quick else _QUIET_S)
        with _watched(service) as making:
            send(context, service.address, requests)
            while service.ask("GET", f"/v1/collections/{collection}")["state"] != "done":
                time.sleep(_LOOK_S)
        at = f"/v1/collections/{collection}/map/exports/"
        with _watched(service) as writing, ThreadPoolExecutor(_EXPORTS) as viewers:
            asked = [_FORMATS[number % len(_FORMATS)] for number in range(_EXPORTS)]
            sizes = list(viewers.map(lambda form: service.size(at + form), asked))
        if not all(sizes):
            raise RuntimeError("a file is empty")
        peak = service.peak_mb
    cells = f"{4**depth:,} cells"
    rows = []
    for what, waits in (
        (f"a map of {cells} is made", making[0]),
        (f"{_EXPORTS} files of it are made", writing[0]),
    ):
        name, goal_s = f"while {what}", quiet[0].late_s + GOAL_LATE_S
        rows += [
            line(f"another collection's deadline, {name}: late by", waits.late_s, "s", "nothing else", quiet[0].late_s,
                 f"<= {GOAL_LATE_S:g} s more", waits.late_s <= goal_s),
            line(f"GET /v1/me, 99th percentile, {name}", waits.p99_ms, "ms", "nothing else", quiet[0].p99_ms,
                 f"< {GOAL_MS:g} ms", waits.p99_ms < GOAL_MS),
        ]  # fmt: skip
    rows.append(
        line(f"peak memory of the service, {cells}", peak, "MB", "before the first report", service.idle_mb)
    )
    return rows


@contextlib.contextmanager
def _watched(service: Service) -> Iterator[list[_Waits]]:
    """Follow deadlines and requests from the beginning to the end of a block."""
    over = threading.Event()
    found: list[_Waits] = []
    with ThreadPoolExecutor(2) as watchers:
        watching = [watchers.submit(act, service, over) for act in (_lateness, _latencies)]
        try:
            yield found
        finally:
            over.set()
        late, took = (each.result() for each in watching)
    found.append(_Waits(max(late), 1e3 * float(np.quantile(took, 0.99))))


def _lateness(service: Service, over: threading.Event) -> list[float]:
    """Seconds by which collections whose time was one second ended later, one after another."""
    late: list[float] = []
    while not (over.is_set() and late):
        identifier = service.open(trust="local", devices=10, join_seconds=1)
        while (record := service.ask("GET", f"/v1/collections/{identifier}"))["state"] == "open":
            time.sleep(_LOOK_S)
        opened, ended = (datetime.fromisoformat(record[name]) for name in ("opened_at", "ended_at"))
        late.append((ended - opened).total_seconds() - 1)
    return late


def _latencies(service: Service, over: threading.Event) -> list[float]:
    took: list[float] = []
    while not (over.is_set() and took):
        start = time.perf_counter()
        service.ask("GET", "/v1/me")
        took.append(time.perf_counter() - start)
        time.sleep(_LOOK_S)
    return took


def _many_at_once(context: Context) -> list[Result]:
    count, devices = (3, 60) if context.quick else (20, 100)
    spec: dict[str, Any] = {
        "trust": "distributed",
        "method": "adaptive",
        "options": {"shard_size": devices, "tolerated_dropout": 0.1, "corrupt": 0.05},
        "devices": devices,
        "active": False,
        "join_seconds": 3600,
        "phase_seconds": 600,
    }
    used: dict[str, tuple[float, float]] = {}
    for how in ("alone", "at once"):
        store = context.folder / f"many-{how.replace(' ', '-')}.sqlite"
        with Service(str(store), context.folder, count * devices) as service:
            begun, before = time.perf_counter(), service.cpu
            if how == "alone":
                for number in range(count):
                    _play(service, [service.open(**spec)], devices, number)
            else:
                _play(service, [service.open(**spec) for _ in range(count)], devices, 0)
            used[how] = service.cpu - before, time.perf_counter() - begun
    name = f"{count} collections of {devices} devices at once"
    (alone, alone_s), (together, together_s) = used["alone"], used["at once"]
    holds = together <= GOAL_WORK * alone
    return [
        line(f"{name}: processor seconds of the server", together, "s", "one after another", alone,
             f"<= {GOAL_WORK:g} x", holds),
        line(f"{name}: wall time", together_s, "s", "one after another", alone_s),
    ]  # fmt: skip


def _play(service: Service, collections: list[str], devices: int, seed: int) -> None:
    """Answer collections at once, each with devices of its own, until all have a map."""
    given = {"server": service.address, "token": service.enrolment, "collections": collections}
    fleet = start_fleet({**given, "devices": devices, "drop": 0, "seed": seed, "active": False})
    fleet.communicate(timeout=3600)
    for identifier in collections:
        while (record := service.ask("GET", f"/v1/collections/{identifier}"))["state"] in (
            "running",
            "finishing",
        ):
            time.sleep(_LOOK_S)
        if record["state"] != "done":
            raise RuntimeError(f"a collection is {record['state']}: {record['reason']}")
