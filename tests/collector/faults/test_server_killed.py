"""``kill -9`` of the service, or of a process of any role, at random moments of one collection, each time started
again at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest

from .outcome import outcome_of
from .scene import SEEDS, Scene, Service, cell_of
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
    """Kills a service at moments of the collection that a seed chooses, counted in what devices ask and say."""

    def __init__(self, services: Sequence[Service], kills: int, requests: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._moments = set(self._random.sample(range(1, requests), kills))
        self._services = services
        self._asked = 0
        self._down = False
        self._one_at_a_time = asyncio.Lock()
        self.kills: list[str] = []

    async def carry(self, request: Request, send: Send) -> bytes | None:
        if self._down or not request.signed:
            return await send(request)
        self._asked += 1
        if self._asked not in self._moments:
            return await send(request)
        return await self._kill(self._random.choice(("before", "during", "after", "later")), request, send)

    async def _kill(self, when: str, request: Request, send: Send) -> bytes | None:
        service = self._services[len(self.kills) % len(self._services)]
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
        async with self._one_at_a_time:
            self._down = True
            await asyncio.to_thread(service.kill)
            await asyncio.to_thread(service.start)
            self._down = False
        if when == "during":
            answer = await sent
        return None if when == "after" else answer  # "after": it was done, and nobody was told


@pytest.mark.parametrize("seed", SEEDS)
def test_a_service_that_is_killed_at_random_moments_makes_the_same_sums(scene: Scene, seed: int) -> None:
    service = scene.service()
    collection = scene.open(service, **ADAPTIVE)
    killer = Killer([service], KILLS, REQUESTS - 24, seed)
    with Wire([service.port], killer.carry) as wire:
        scene.fleet(wire.url, collection, range(24)).wait()
    assert len(killer.kills) == KILLS
    assert service.lives == 1 + KILLS
    assert len(set(killer.kills)) == 4
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included, found.spent) == ("done", (24, 24), 4000)


@pytest.mark.parametrize("seed", SEEDS)
def test_processes_of_any_role_are_killed_and_the_sums_are_the_same(
    postgresql_scene: Scene, seed: int
) -> None:
    scene = postgresql_scene
    roles = ("intake", "conductor", "worker", "worker")
    options = ("--lease-seconds", "1", "--exports", str(scene.folder / "exports"))
    services = [scene.service("--role", role, *options) for role in roles]
    collection = scene.open(services[0], **ADAPTIVE)
    kills = KILLS if len(SEEDS) > 1 else 8
    killer = Killer(services, kills, REQUESTS // 2, seed)
    with Wire([services[0].port], killer.carry) as wire:
        scene.fleet(wire.url, collection, range(24)).wait(600)
    assert [service.lives - 1 for service in services] == [kills // len(services)] * len(services)
    found = outcome_of(scene, services[0], collection)
    assert (found.state, found.included, found.spent) == ("done", (24, 24), 4000)


@pytest.mark.parametrize("seed", SEEDS)
def test_reports_survive_a_service_that_is_killed(scene: Scene, seed: int) -> None:
    service = scene.service()
    local = {
        "trust": "local",
        "method": "grr",
        "epsilon": "50",
        "accept_large_epsilon": True,
        "options": {"estimator": "simplex"},
        "devices": 40,
    }
    collection = scene.open(service, **local)
    killer = Killer([service], 6, 40, seed)
    with Wire([service.port], killer.carry) as wire:
        scene.fleet(wire.url, collection, range(40)).wait()
    assert len(killer.kills) == 6
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included, found.spent) == ("done", (40,), 50)
    # One in e^50 of the reports is of another cell: the map is the count.
    features = scene.ask(service, f"/collections/{collection}/map/exports/geojson")["features"]
    told = [each["properties"]["users"] for each in features]
    assert np.allclose(told, np.bincount([cell_of(index) for index in range(40)], minlength=len(told)))
