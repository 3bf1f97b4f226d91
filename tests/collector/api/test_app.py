from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from mapveil.collector.api import app as application
from mapveil.collector.api.app import create_app
from mapveil.collector.api.settings import Settings
from mapveil.collector.engine import Engine


def health(address: str) -> tuple[int, dict[str, Any]]:
    answer = httpx.get(f"{address}/healthz", timeout=20)
    return answer.status_code, answer.json()


def soon(good: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not good():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_lost_store_is_said_and_heals(api: Any, sqlite_url: str) -> None:
    assert health(api.address) == (200, {"status": "ok", "store": True, "conductor": True})
    path = Path(sqlite_url)
    away = path.rename(path.with_name("away"))
    lost = api.client.get("/v1/open")
    assert (lost.status_code, lost.json()["error"]["code"]) == (503, "unavailable")
    assert lost.headers["retry-after"] == "1"
    assert api.ask("GET", "/v1/collections").status_code == 503
    assert health(api.address) == (503, {"status": "failing", "store": False, "conductor": True})
    away.rename(path)
    assert health(api.address)[0] == 200
    assert api.ask("GET", "/v1/collections").status_code == 200


def test_the_conductor_runs_from_beginning_to_end(live: Any, sqlite_store: Any, clock: Any) -> None:
    engine = Engine(sqlite_store, clock)
    closed: list[bool] = []
    app = create_app(engine, sqlite_store, Settings(), closing=lambda: closed.append(True))
    with live(app, Settings()) as address:
        assert soon(lambda: engine.idle_seconds < 1)
        assert health(address)[1]["conductor"] is True
        assert not closed
    assert closed == [True]
    idle = engine.idle_seconds
    time.sleep(0.3)
    assert engine.idle_seconds > idle + 0.2


def test_a_conductor_that_fails_is_started_again(
    live: Any, sqlite_store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(sqlite_store, clock)
    runs: list[int] = []
    original = engine.run

    async def run() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ZeroDivisionError
        await original()

    monkeypatch.setattr(application, "_RESTART_SECONDS", 0.01)
    monkeypatch.setattr(engine, "run", run)
    with live(create_app(engine, sqlite_store, Settings()), Settings()):
        assert soon(lambda: engine.idle_seconds < 1)
    assert len(runs) == 3


def test_a_conductor_that_hangs_is_said_to(
    live: Any, sqlite_store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(sqlite_store, clock)
    hanging = threading.Event()
    monkeypatch.setattr(application, "_STUCK_SECONDS", 0.3)
    monkeypatch.setattr(engine, "tick", lambda: hanging.wait(5))
    with live(create_app(engine, sqlite_store, Settings()), Settings()) as address:
        try:
            assert soon(
                lambda: health(address) == (503, {"status": "failing", "store": True, "conductor": False})
            )
        finally:
            hanging.set()


def test_bodies_beyond_what_memory_is_for_wait_outside(api_with: Any) -> None:
    api = api_with(waiting_bytes=1 << 20, json_bytes=1 << 20, report_bytes=1 << 20)
    host, port = api.address.removeprefix("http://").split(":")
    head = b"POST /v1/operators HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as held:
        held.sendall(head + bytes(900_000))
        time.sleep(0.5)
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
            time.sleep(0.1)
    time.sleep(0.2)
    told = api.client.get("/metrics").text
    assert 'status="499"' in told
    assert "mapveil_body_bytes 0.0" in told
