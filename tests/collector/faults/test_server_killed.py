"""``kill -9`` of the service at random moments of one collection, each time started again at once."""

from __future__ import annotations

import asyncio
import random

import pytest

from .outcome import outcome_of
from .scene import SEEDS, Scene, Service
from .wire import Request, Send, Wire

ADAPTIVE = {
    "method": "adaptive-grid",
    "devices": 24,
    "minimum": 12,
    "options": {"shard_size": 12, "tolerated_dropout": 0.25, "corrupt": 0},
}
# 24 devices: to join, and for each of two rounds a seat, four times mail, and five messages.
KILLS = 20
REQUESTS = 24 * (1 + 2 * 10)


class Killer:
    """Kills the service at moments of the collection that a seed chooses, counted in what devices ask and say."""

    def __init__(self, service: Service, kills: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._moments = set(self._random.sample(range(1, REQUESTS - 24), kills))
        self._service = service
        self._asked = 0
        self._down = False
        self.kills: list[str] = []

    async def carry(self, request: Request, send: Send) -> bytes | None:
        if self._down or not request.signed:
            return await send(request)
        self._asked += 1
        if self._asked not in self._moments:
            return await send(request)
        return await self._kill(self._random.choice(("before", "during", "after", "later")), request, send)

    async def _kill(self, when: str, request: Request, send: Send) -> bytes | None:
        self.kills.append(when)
        answer = None
        if when != "before":
            sent = asyncio.ensure_future(send(request))
            if when == "during":
                await asyncio.sleep(self._random.uniform(0, 0.01))
            else:
                answer = await sent
            if when == "later":  # while the conductor does what this was the last message for, perhaps
                await asyncio.sleep(self._random.uniform(0, 0.3))
        self._down = True
        await asyncio.to_thread(self._service.kill)
        await asyncio.to_thread(self._service.start)
        self._down = False
        if when == "during":
            answer = await sent
        return None if when == "after" else answer  # "after": it was done, and nobody was told


@pytest.mark.parametrize("seed", SEEDS)
def test_a_service_that_is_killed_at_random_moments_makes_the_same_sums(scene: Scene, seed: int) -> None:
    service = scene.service()
    collection = scene.open(service, **ADAPTIVE)
    killer = Killer(service, KILLS, seed)
    with Wire([service.port], killer.carry) as wire:
        scene.fleet(wire.url, collection, range(24)).wait()
    assert len(killer.kills) == KILLS
    assert service.lives == 1 + KILLS
    assert len(set(killer.kills)) == 4
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included, found.spent) == ("done", (24, 24), 4000)
