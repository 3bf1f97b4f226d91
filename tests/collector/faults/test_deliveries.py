"""A wire that repeats, delays, reorders and loses what devices send, and the answers too."""

from __future__ import annotations

import asyncio
import random

import pytest

from .outcome import outcome_of
from .scene import SEEDS, Scene
from .wire import Request, Send, Wire

ADAPTIVE = {
    "method": "adaptive-grid",
    "devices": 24,
    "minimum": 12,
    "options": {"shard_size": 12, "tolerated_dropout": 0.25, "corrupt": 0},
}


class Disorder:
    """The fault that a seed gives each request of a device."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._old: list[Request] = []
        self._later: set[asyncio.Task[object]] = set()
        self.done: dict[str, int] = {}
        self.statuses: dict[int, int] = {}

    async def carry(self, request: Request, send: Send) -> bytes | None:
        if not request.signed:
            return await self._sent(request, send)
        what = self._random.choices(
            ("plain", "twice", "at once", "late", "lost", "unheard", "old"), (6, 2, 2, 2, 1, 1, 2)
        )[0]
        self.done[what] = self.done.get(what, 0) + 1
        self._old.append(request)
        if what == "lost":  # on its way there
            return None
        if what == "unheard":  # on its way back
            await self._sent(request, send)
            return None
        if what == "late":  # others overtake it
            await asyncio.sleep(self._random.uniform(0, 0.3))
        elif what == "twice":  # once more, after whatever comes meanwhile
            self._again(request, send, self._random.uniform(0.1, 2))
        elif what == "at once":
            first, second = await asyncio.gather(self._sent(request, send), self._sent(request, send))
            assert _status(first) == _status(second) or request.method == "GET"
            return self._random.choice((first, second))
        elif what == "old":  # somebody's, from any time before
            self._again(self._random.choice(self._old), send, 0)
        return await self._sent(request, send)

    def _again(self, request: Request, send: Send, seconds: float) -> None:
        async def repeat() -> None:
            await asyncio.sleep(seconds)
            await self._sent(request, send)

        task = asyncio.ensure_future(repeat())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _sent(self, request: Request, send: Send) -> bytes | None:
        answer = await send(request)
        if answer is not None:
            status = _status(answer)
            self.statuses[status] = self.statuses.get(status, 0) + 1
        return answer


def _status(answer: bytes | None) -> int:
    return 0 if answer is None else int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_comes_twice_late_or_in_another_order_counts_once(scene: Scene, seed: int) -> None:
    service = scene.service()
    collection = scene.open(service, **ADAPTIVE)
    disorder = Disorder(seed)
    with Wire([service.port], disorder.carry) as wire:
        scene.fleet(wire.url, collection, range(24)).wait()
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included, found.spent) == ("done", (24, 24), 4000)
    assert min(disorder.done.get(what, 0) for what in ("twice", "at once", "late", "lost", "old")) > 10
    assert set(disorder.statuses) <= {200, 201, 204, 409, 410}, disorder.statuses
    assert disorder.statuses[204] > 24 * 11  # each of the devices' messages, and many again


class Behind:
    """A process of the service that does not know yet that a phase is open, the first time that it is asked."""

    def __init__(self) -> None:
        self._asked: dict[bytes, int] = {}
        self.answers = 0

    async def carry(self, request: Request, send: Send) -> bytes | None:
        if not request.path.endswith("/server-message"):
            return await send(request)
        device = next(
            line for line in request.head.split(b"\r\n") if line.lower().startswith(b"authorization")
        )
        self._asked[device] = self._asked.get(device, 0) + 1  # a signature is of one address
        if self._asked[device] % 3 == 1:
            self.answers += 1
            return b"HTTP/1.1 200 OK\r\nMapveil-Phase: keys\r\nContent-Length: 0\r\n\r\n"
        if self._asked[device] % 3 == 2:
            self.answers += 1
            return _GONE
        return await send(request)


_GONE = b"HTTP/1.1 410 Gone\r\nContent-Length: %d\r\n\r\n" % len(
    _BODY := b'{"error":{"code":"too-late","message":"it is"}}'
)
_GONE += _BODY


def test_a_device_that_is_told_of_the_phase_before_asks_again(scene: Scene) -> None:
    service = scene.service()
    collection = scene.open(service, devices=8, minimum=8)
    behind = Behind()
    with Wire([service.port], behind.carry) as wire:
        scene.fleet(wire.url, collection, range(8)).wait()
    assert behind.answers >= 8 * 2
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included) == ("done", (8,))
