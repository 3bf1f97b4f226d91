"""A store, the services on it, and fleets of devices: processes that a test starts, kills and starts again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from mapveil.collector.clock import SystemClock
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from tests.authority import NAMED

from ...client.conduct import saved

BOX = (-74.03, 40.69, -73.90, 40.83)
DEPTH = 2
KEY = bytes(range(32))
SEEDS = range(1, 1 + int(os.environ.get("MAPVEIL_FAULT_SEEDS", "1")))
"""Of tests that draw their faults: ``make faults`` takes more of them."""
UNLIMITED = ("--address-rate", "0", "--device-rate", "0", "--enrol-minute", "0")
_CELLS = Quadtree(Region.from_bbox(*BOX), DEPTH)


def until(true: Callable[[], object], what: str, seconds: float = 600.0) -> None:
    """Wait until something is so; the limit only ends a run that hangs."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not in {seconds:g} s: {what}"
        time.sleep(0.01)


def cell_of(index: int) -> int:
    """The cell of device ``index``: more of them are in some than in others."""
    return (index * index) % 13


def place(index: int) -> tuple[float, float]:
    """Where device ``index`` is."""
    lon, lat = _CELLS.centres(np.array([cell_of(index)]))
    return float(lon[0]), float(lat[0])


def free_port() -> int:
    """A port of no connection's own: a client must not meet itself there while the service is away."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


class Running:
    """A process."""

    def __init__(self, number: int, log: Path) -> None:
        self.number, self.log = number, log

    @property
    def alive(self) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, 0)
            return True
        return False

    def kill(self) -> None:
        """As the kernel does it: no word of it, nothing flushed."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGKILL)
        until(lambda: not self.alive, "a killed process is gone")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGTERM)
        self.wait(40)

    def wait(self, seconds: float = 120.0) -> None:
        until(lambda: not self.alive, f"a process has ended: {self.log.read_text()[-2000:]}", seconds)


class Mother:
    """Starts processes; see ``mother.py``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("mother.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def run(self, what: str, log: Path, **given: Any) -> Running:
        log.touch()
        order = json.dumps({"run": what, "log": str(log), "given": given})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(order, file=self._process.stdin, flush=True)
        return Running(int(self._process.stdout.readline()), log)

    def close(self) -> None:
        self._process.communicate()


class Service:
    """``mapveil serve`` on a port that it keeps from one life to the next."""

    def __init__(self, mother: Mother, store: str, folder: Path, *options: str, skew: Path | None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.lives = 0
        self._mother, self._folder, self._skew = mother, folder, skew
        self._arguments = ("--store", store, "--port", str(self.port), *UNLIMITED, *options)
        self.process: Running | None = None

    def start(self) -> Service:
        self.lives += 1
        self.process = self._mother.run(
            "serve",
            self._folder / f"service-{self.port}.log",
            arguments=self._arguments,
            skew=None if self._skew is None else str(self._skew),
        )
        until(self.answers, f"the service answers: {self.log[-2000:]}")
        return self

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            until(lambda: not self.answers(), "the workers of a killed service have left its port")

    def stop(self) -> None:
        if self.process is not None:
            self.process.end()

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def log(self) -> str:
        return (self._folder / f"service-{self.port}.log").read_text()


class Scene:
    """Everything that a test of faults needs; see the fixtures ``scene`` and ``scene_on``."""

    def __init__(self, mother: Mother, store: str, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.skew = folder / "skew"
        self.skew.write_text("0")
        key = folder / "authority.key"
        key.touch(0o600)
        key.write_text(bytes(range(32)).hex())
        self.authority = ("--authority-key", str(key), "--population", NAMED.population)
        self._mother = mother
        self._services: list[Service] = []
        self._fleets: list[Running] = []
        self._folders: dict[Path, Sequence[int]] = {}
        opened = Store(store, clock=SystemClock())
        opened.create_tables()
        accounts, lasting = Accounts(opened), timedelta(days=30)
        self.admin = accounts.create_operator("tests", "admin", lasting, "command line").token
        self.token = accounts.create_enrolment("tests", 10_000, lasting, None, "command line").token
        opened.close()
        self._client = httpx.Client(timeout=30, headers={"Authorization": f"Bearer {self.admin}"})

    def service(self, *options: str, skewed: bool = False) -> Service:
        """A service that runs."""
        skew = self.skew if skewed else None
        made = Service(self._mother, self.store, self.folder, *self.authority, *options, skew=skew)
        self._services.append(made)
        return made.start()

    def ask(self, service: Service, path: str, method: str = "GET", **given: Any) -> Any:
        """The reply to an operator; a service that is starting again is asked again."""
        end, told = time.monotonic() + 600, ""
        while True:
            try:
                answer = self._client.request(method, f"{service.url}/v1{path}", **given)
                if answer.status_code != 503:
                    assert answer.is_success, answer.text
                    return answer.json()
                told = answer.text
            except httpx.TransportError as error:
                told = repr(error)
            assert time.monotonic() < end, f"{method} {path} is not answered: {told}; {service.log[-3000:]}"
            time.sleep(0.05)

    def open(self, service: Service, **changed: Any) -> str:
        """A collection that devices may join; its identifier."""
        spec = {
            "title": "a test",
            "trust": "distributed",
            "method": "laplace",
            "epsilon": "4000",
            "accept_large_epsilon": True,
            "accept_custom_policy": True,
            "region": list(BOX),
            "tiling": f"quadtree:{DEPTH}",
            "devices": 24,
            "join_seconds": 120,
            "phase_seconds": 60,
            "options": {"tolerated_dropout": 0.1, "corrupt": 0},
            **changed,
        }
        identifier: str = self.ask(service, "/collections", "POST", json=spec)["id"]
        self.ask(service, f"/collections/{identifier}/open", "POST")
        return identifier

    def progress(self, service: Service, collection: str) -> Any:
        return self.ask(service, f"/collections/{collection}/progress")

    def fleet(
        self,
        server: str,
        collection: str,
        devices: Sequence[int],
        *,
        slow_s: float = 0.0,
        name: str = "fleet",
        hosted: bool = False,
        helper: str | None = None,
    ) -> Running:
        """A process of devices that answers a collection; the same name is the same devices again.

        Where ``hosted``, the service certifies them, by its own clock; ``helper`` is the key of the second operator.
        """
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        assert self._folders.setdefault(folder, devices) == devices
        made = self._mother.run(
            "fleet",
            self.folder / f"{name}.log",
            server=server,
            places=[place(index) for index in devices],
            slow_s=slow_s,
            hosted=hosted,
            helper=helper,
            folder=str(folder),
            key=KEY.hex(),
            token=self.token,
            authority=str(NAMED),
            collection=collection,
            summary=str(self.folder / f"{name}.json"),
        )
        self._fleets.append(made)
        return made

    def memories(self) -> dict[int, DeviceMemory]:
        """Memories of the devices, by their number in the collector."""
        found = {}
        for folder, devices in self._folders.items():
            for place_in_fleet in range(len(devices)):
                path = folder / f"device-{place_in_fleet:06d}.vault"
                if path.exists() and (memory := saved(path, KEY)).device is not None:
                    found[memory.device] = memory
        return found

    def whereabouts(self) -> dict[int, Whereabouts]:
        """Where each device is, by its number in the collector."""
        found = {}
        for folder, devices in self._folders.items():
            for place_in_fleet, index in enumerate(devices):
                path = folder / f"device-{place_in_fleet:06d}.vault"
                if path.exists() and (memory := saved(path, KEY)).device is not None:
                    lon, lat = place(index)
                    found[memory.device] = Whereabouts(np.array([lon]), np.array([lat]))
        return found

    def close(self) -> None:
        for running in self._fleets:
            running.kill()
        for service in self._services:
            service.kill()
        self._client.close()
