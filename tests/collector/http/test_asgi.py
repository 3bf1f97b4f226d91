from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from mapveil.collector.http import asgi as application
from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.prometheus import Metrics
from mapveil.collector.http.settings import Settings
from mapveil.collector.roles import Loop, Role
from mapveil.collector.rounds import loops
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.heartbeats import ABSENT_SECONDS, BEAT_SECONDS, STUCK_SECONDS, send_heartbeat
from mapveil.collector.store.work_queue import Task, Work, order
from tests.authority import AUTHORITY

from ..faults.scene import until
from ..heartbeats import age_heartbeats

IDLE = {"stuck": [], "workers": True}
LOST = {"status": "failing", "store": False, "conductor": None, "workers": None}


def health(address: str) -> tuple[int, dict[str, Any]]:
    answer = httpx.get(f"{address}/healthz", timeout=300)
    return answer.status_code, answer.json()


def body_bytes(api: Any) -> float:
    found = re.search(r"^mapveil_body_bytes (\S+)$", api.client.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_a_lost_store_is_said_and_heals(api: Any, sqlite_url: str) -> None:
    assert health(api.address) == (200, {"status": "ok", "store": True, "conductor": True, **IDLE})
    path = Path(sqlite_url)
    away = path.rename(path.with_name("away"))
    lost = api.client.get("/v1/open")
    assert (lost.status_code, lost.json()["error"]["code"]) == (503, "unavailable")
    assert lost.headers["retry-after"] in ("1", "2")  # drawn, so that devices come again apart
    assert api.ask("GET", "/v1/collections").status_code == 503
    assert health(api.address) == (503, {**LOST, "stuck": []})
    away.rename(path)
    assert health(api.address)[0] == 200
    assert api.ask("GET", "/v1/collections").status_code == 200


def test_the_conductor_runs_from_beginning_to_end(live: Any, sqlite_store: Any, clock: Any) -> None:
    engine = Engine(sqlite_store, clock, authority=AUTHORITY)
    closed: list[bool] = []
    app = create_app(engine, sqlite_store, Settings(), closing=lambda: closed.append(True))
    with live(app, Settings()) as address:
        until(lambda: Loop.CONDUCT in engine.loops._beats, "the conductor runs")
        assert health(address)[1]["conductor"] is True
        assert not closed
    assert closed == [True]
    beats = engine.loops._beats.copy()
    time.sleep(0.3)
    assert engine.loops._beats == beats  # nothing ticks any more


def test_a_conductor_that_fails_is_started_again(
    live: Any, sqlite_store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(sqlite_store, clock, authority=AUTHORITY)
    runs: list[int] = []
    original = engine.loops.run

    async def run(role: Role) -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ZeroDivisionError
        await original(role)

    monkeypatch.setattr(application, "_RESTART_SECONDS", 0.01)
    monkeypatch.setattr(engine.loops, "run", run)
    with live(create_app(engine, sqlite_store, Settings()), Settings()):
        until(lambda: Loop.CONDUCT in engine.loops._beats, "the conductor runs")
    assert len(runs) == 3


@pytest.mark.parametrize("loop", Loop)
def test_a_loop_that_hangs_is_said_to(
    live: Any, sqlite_store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, loop: Loop
) -> None:
    engine = Engine(sqlite_store, clock, authority=AUTHORITY)
    hanging = threading.Event()
    for limit in ("STUCK_SECONDS", "MOST_SECONDS"):
        monkeypatch.setattr(loops, limit, 1.0)
    monkeypatch.setitem(engine.loops._acts, loop, lambda: hanging.wait(120))
    told = {"status": "failing", "store": True, "conductor": loop is not Loop.CONDUCT}
    with live(create_app(engine, sqlite_store, Settings()), Settings()) as address:
        try:
            until(
                lambda: health(address) == (503, {**told, **IDLE, "stuck": [loop.value]}),
                "the loop is said to hang",
            )
        finally:
            hanging.set()


def test_work_that_waits_for_a_worker_is_said_to(api_with: Any, postgresql_store: Any) -> None:
    api = api_with(store=postgresql_store)
    send_heartbeat(postgresql_store, "conductor")
    with api.store.write() as connection:
        order(connection, [Work(Task.MAP, "a" * 32)])
    assert health(api.address)[1]["workers"] is True
    api.clock.advance(100)
    # Whoever answers works all the same.
    assert health(api.address) == (
        200,
        {"status": "degraded", "store": True, "conductor": True, **IDLE, "workers": False},
    )


@pytest.mark.parametrize("role", Role)
def test_that_no_process_conducts_is_said_by_all(
    live: Any,
    new_store: Any,
    postgresql_store: Any,
    postgresql_url: str,
    clock: Any,
    role: Role,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application, "_MEASURE_SECONDS", 0.05)
    settings = Settings(role=role, store="postgresql://elsewhere/store", exports="unused")
    engine = Engine(postgresql_store, clock, authority=AUTHORITY)
    conductor = Engine(new_store(postgresql_url), clock, authority=AUTHORITY)
    absent, there = (200, "degraded", False), (200, "ok", True)
    with live(create_app(engine, postgresql_store, settings, conduct=False), settings) as address:

        def told() -> tuple[int, str, bool]:
            status, said = health(address)
            number = f"\nmapveil_conducted {float(said['conductor'])}\n"
            until(lambda: number in httpx.get(f"{address}/metrics", timeout=300).text, "the number follows")
            return status, said["status"], said["conductor"]

        assert told() == absent
        conductor.loops.tick()
        assert told() == there
        age_heartbeats(postgresql_store, STUCK_SECONDS)  # a long step
        assert told() == there
        age_heartbeats(postgresql_store, ABSENT_SECONDS - STUCK_SECONDS)
        assert told() == absent
        clock.advance(BEAT_SECONDS)
        conductor.loops.tick()
        assert told() == there


def test_loops_that_are_stuck_are_counted_without_a_scrape(
    live: Any, sqlite_store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_MEASURE_SECONDS", 0.05)
    engine = Engine(sqlite_store, clock, authority=AUTHORITY)
    monkeypatch.setattr(engine.loops, "stuck", lambda: ["conductor", "maps"])
    counted: list[float] = []
    monkeypatch.setattr(application, "Metrics", lambda *given: _watched(Metrics(*given), "stuck", counted))
    with live(create_app(engine, sqlite_store, Settings(), conduct=False), Settings()):
        until(lambda: counted.count(2) > 1, "the number is set again and again")


def _watched(metrics: Metrics, name: str, kept: list[float]) -> Metrics:
    """Metrics that keep whatever one of their numbers is set to."""
    number = getattr(metrics, name)
    setattr(metrics, name, SimpleNamespace(set=lambda value: (kept.append(value), number.set(value))))
    return metrics


def test_processes_that_do_not_answer_devices_tell_of_their_health_only(
    live: Any, sqlite_store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(role="worker", store="postgresql://elsewhere/store", exports="unused")
    engine = Engine(sqlite_store, clock, authority=AUTHORITY)
    with live(create_app(engine, sqlite_store, settings), settings) as address:
        assert health(address)[0] == 200
        for path in ("/", "/v1/open", "/v1/me", "/device/"):
            assert httpx.get(address + path, timeout=300).status_code == 404


def test_bodies_beyond_what_memory_is_for_wait_outside(api_with: Any) -> None:
    api = api_with(waiting_bytes=2 << 20, json_bytes=1 << 20, report_bytes=1 << 20)
    host, port = api.address.removeprefix("http://").split(":")
    head = b"POST /v1/operators HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as held:
        held.sendall(head + bytes(900_000))
        until(lambda: body_bytes(api) == 900_000, "the first body is held")
        refused = api.ask("POST", "/v1/operators", content=bytes(500_000))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        held.sendall(bytes(100_000))
        assert held.recv(1000).startswith(b"HTTP/1.1 4")
    assert api.ask("POST", "/v1/operators", content=bytes(500_000)).status_code == 422


def test_who_leaves_in_the_middle_leaves_nothing_behind(api: Any) -> None:
    host, port = api.address.removeprefix("http://").split(":")
    for path in ("/v1/operators", "/v1/collections/" + "a" * 32 + "/retrieval/query"):
        with socket.create_connection((host, int(port)), timeout=10) as leaving:
            leaving.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc".encode())
            until(lambda: body_bytes(api) == 3, "the service waits for the rest")
        until(lambda: body_bytes(api) == 0, "nothing is held")
    assert 'status="499"' in api.client.get("/metrics").text
