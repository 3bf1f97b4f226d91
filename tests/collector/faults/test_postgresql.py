"""PostgreSQL that is restarted in the middle of a collection, and services that share one and die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .outcome import outcome_of
from .scene import Scene, Service, until
from .wire import Request, Send, Wire

ADAPTIVE = {
    "method": "adaptive-grid",
    "devices": 16,
    "minimum": 8,
    "options": {"shard_size": 8, "tolerated_dropout": 0.25, "corrupt": 0},
}


def workers(service: Service) -> list[int]:
    """The processes that a service started to answer."""
    assert service.process is not None
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == service.process.number and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return sorted(found)


class Moments:
    """Does something at given counts of what devices ask and say; what is asked meanwhile takes its chance."""

    def __init__(self, doing: dict[int, Callable[[], None]]) -> None:
        self._doing = dict(doing)
        self._asked = 0

    async def carry(self, request: Request, send: Send) -> bytes | None:
        if request.signed:
            self._asked += 1
            do = self._doing.pop(self._asked, None)
            if do is not None:
                sent = asyncio.ensure_future(send(request))
                await asyncio.to_thread(do)
                return await sent
        return await send(request)

    @property
    def done(self) -> bool:
        return not self._doing


def check(scene: Scene, service: Service, collection: str) -> None:
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included, found.spent) == ("done", (16, 16), 4000)


def test_a_postgresql_that_is_restarted_loses_nothing(postgresql_scene: Scene, postgresql: Any) -> None:
    scene = postgresql_scene
    service = scene.service()
    collection = scene.open(service, **ADAPTIVE)
    moments = Moments(dict.fromkeys((10, 60, 110, 170, 230), postgresql.restart))
    with Wire([service.port], moments.carry) as wire:
        scene.fleet(wire.url, collection, range(16)).wait()
    assert moments.done
    assert (service.alive, service.lives) == (True, 1)  # it found its way back by itself
    check(scene, service, collection)


def test_a_service_dies_and_the_other_on_the_same_postgresql_goes_on(postgresql_scene: Scene) -> None:
    scene = postgresql_scene
    one, other = scene.service(), scene.service()
    collection = scene.open(one, **ADAPTIVE)
    # Each of them dies once, so one of them as the conductor.
    moments = Moments({60: one.kill, 100: one.start, 160: other.kill})
    with Wire([one.port, other.port], moments.carry) as wire:
        scene.fleet(wire.url, collection, range(16)).wait()
    assert moments.done
    assert (one.alive, other.alive) == (True, False)
    check(scene, one, collection)


def test_a_worker_that_is_killed_is_replaced(postgresql_scene: Scene) -> None:
    scene = postgresql_scene
    service = scene.service("--workers", "2")
    until(lambda: len(workers(service)) == 2, "two workers run")
    first = workers(service)
    collection = scene.open(service, **ADAPTIVE)
    moments = Moments({60: lambda: os.kill(first[0], signal.SIGKILL)})
    with Wire([service.port], moments.carry) as wire:
        scene.fleet(wire.url, collection, range(16)).wait()
    assert moments.done
    until(lambda: len(workers(service)) == 2 and first[0] not in workers(service), "another one runs")
    check(scene, service, collection)


def test_workers_end_with_the_process_that_started_them(postgresql_scene: Scene) -> None:
    service = postgresql_scene.service("--workers", "2")
    until(lambda: len(workers(service)) == 2, "two workers run")
    left = workers(service)
    service.kill()
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in left), "its workers have ended")
    service.start()  # the port is free
    assert postgresql_scene.ask(service, "/me")["role"] == "admin"
