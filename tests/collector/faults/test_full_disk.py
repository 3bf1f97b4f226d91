"""A disk that fills up in the middle of a collection, and is emptied again."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .outcome import outcome_of
from .scene import Scene, Service, until
from .wire import Request, Send, Wire

FEW = {"devices": 12, "minimum": 6}


class Filler:
    """Fills the disk when the service has taken some messages of a phase, and empties it a little later."""

    def __init__(self, fill: Callable[[], None], empty: Callable[[], None], phases: tuple[str, ...]) -> None:
        self._fill, self._empty = fill, empty
        self._left = dict.fromkeys(phases, 4)
        self.unavailable = self.emptied = 0
        self.other: set[int] = set()

    async def carry(self, request: Request, send: Send) -> bytes | None:
        phase = request.path.rsplit("/", 1)[1]
        if request.method == "PUT" and self._left.get(phase, 0):
            self._left[phase] -= 1
            if not self._left[phase]:
                self._fill()
                self.unavailable = 0
        answer = await send(request)
        status = 0 if answer is None else int(answer.split(b" ", 2)[1])
        if status == 503:
            assert answer is not None
            assert b'"unavailable"' in answer
            assert b"retry-after" in answer.lower()
            self.unavailable += 1
            if self.unavailable == 3:
                self._empty()
                self.emptied += 1
        elif status >= 400:
            self.other.add(status)
        return answer


def check(scene: Scene, service: Service, fill: Callable[[], None], empty: Callable[[], None]) -> None:
    lives, phases = service.lives, ("me", "shares", "inputs", "answers")
    collection = scene.open(service, **FEW)
    filler = Filler(fill, empty, phases)
    with Wire([service.port], filler.carry) as wire:
        scene.fleet(wire.url, collection, range(12)).wait()
    assert filler.emptied == len(phases)  # each time some devices were told to come again
    assert not filler.other
    assert (service.alive, service.lives) == (True, lives)  # it went on by itself
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included, found.spent) == ("done", (12,), 4000)


@pytest.mark.skipif(
    "MAPVEIL_FAULT_SEEDS" not in os.environ,
    reason="of 'make faults': it can outlast its patience on a busy machine",
)
def test_a_file_that_may_not_grow(scene: Scene) -> None:
    """As with a quota: the system refuses to write past what is there."""
    service = scene.service()
    assert service.process is not None
    number, store = service.process.number, Path(scene.store)
    unlimited = resource.prlimit(number, resource.RLIMIT_FSIZE)

    def fill() -> None:
        log = Path(f"{store}-wal")
        most = max(store.stat().st_size, log.stat().st_size)
        resource.prlimit(number, resource.RLIMIT_FSIZE, (most, unlimited[1]))

    check(scene, service, fill, lambda: resource.prlimit(number, resource.RLIMIT_FSIZE, unlimited) and None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "mapveil-test", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not made:
        pytest.skip(
            "no file system of its own can be mounted here; the test beside it limits the file instead"
        )
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_with_no_room_left(scene_on: Callable[[str], Scene], small_disk: Path) -> None:
    scene = scene_on(str(small_disk / "store.sqlite"))
    service = scene.service()
    ballast = small_disk / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(512))
            except OSError:
                return

    def empty() -> None:
        ballast.unlink()

    check(scene, service, fill, empty)


def test_a_service_says_that_it_cannot_write_and_comes_back_by_itself(
    scene_on: Callable[[str], Scene], small_disk: Path
) -> None:
    scene = scene_on(str(small_disk / "store.sqlite"))
    service = scene.service()
    collection = scene.open(service, devices=12, join_seconds=1, minimum=6)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass
    told: dict[str, Any] = {"closes_in_s": None}

    def over() -> bool:
        """The time to join is over, and nothing can be written about it."""
        told.update(httpx.get(f"{service.url}/v1/collections/{collection}/progress", timeout=300).json())
        return told["state"] != "open" or told["closes_in_s"] == 0

    until(over, "the time to join is over")
    assert told["state"] == "open"
    assert service.alive
    ballast.unlink()
    until(
        lambda: scene.progress(service, collection)["state"] == "aborted",
        "the collection that nobody joined ends",
    )
    found = outcome_of(scene, service, collection)
    assert (found.state, found.spent) == ("aborted", 0)
