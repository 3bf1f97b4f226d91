"""The wall clock is set to another day in the middle of a phase; nothing but a deadline may notice."""

from __future__ import annotations

import pytest

from .outcome import outcome_of
from .scene import Scene, until
from .wire import Request, Send, Wire

DAY = 86_400
FEW = {"devices": 12, "minimum": 6, "phase_seconds": 60}


class Setter:
    """Sets the clock when the service has taken some messages of a phase; restarts it then, perhaps."""

    def __init__(self, scene: Scene, service, jumps: dict[str, int], *, restart: bool = False) -> None:
        self._scene, self._service, self._jumps, self._restart = scene, service, dict(jumps), restart
        self._seen = dict.fromkeys(jumps, 0)
        self.jumped = 0

    async def carry(self, request: Request, send: Send) -> bytes | None:
        phase = request.path.rsplit("/", 1)[1]
        if request.method == "PUT" and phase in self._jumps:
            self._seen[phase] += 1
            if self._seen[phase] == 5:
                self._scene.skew.write_text(str(self._jumps.pop(phase)))
                self.jumped += 1
                if self._restart:
                    self._service.kill()
                    self._service.start()
        return await send(request)


@pytest.mark.parametrize(
    "jumps",
    [
        {"me": DAY, "keys": -DAY, "inputs": DAY, "answers": -DAY},
        {"me": -DAY, "shares": 0, "consents": -DAY},
    ],
    ids=["a day ahead first", "a day back first"],
)
def test_a_clock_that_jumps_ends_no_phase_of_a_service_that_runs(scene: Scene, jumps: dict[str, int]) -> None:
    service = scene.service(skewed=True)
    collection = scene.open(service, **FEW)
    setter = Setter(scene, service, jumps)
    with Wire([service.port], setter.carry) as wire:
        scene.fleet(wire.url, collection, range(12), hosted=True).wait()
    assert setter.jumped == len(jumps)
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included) == ("done", (12,))


def test_a_clock_that_went_back_while_the_service_was_away_holds_no_phase_open(scene: Scene) -> None:
    service = scene.service(skewed=True)
    collection = scene.open(service, **FEW)
    setter = Setter(scene, service, {"keys": -DAY, "consents": -2 * DAY}, restart=True)
    with Wire([service.port], setter.carry) as wire:
        scene.fleet(wire.url, collection, range(12), hosted=True).wait()
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included) == ("done", (12,))


def test_a_silent_device_holds_a_phase_no_longer_than_its_time_though_the_clock_went_back(
    scene: Scene,
) -> None:
    service = scene.service(skewed=True)
    options = {"tolerated_dropout": 0.4, "corrupt": 0}
    collection = scene.open(service, **{**FEW, "phase_seconds": 3, "options": options})
    silent = scene.fleet(service.url, collection, range(9, 12), slow_s=0.6, name="silent", hosted=True)
    others = scene.fleet(service.url, collection, range(9), name="others", hosted=True)
    until(lambda: scene.progress(service, collection)["phase"] == "shares", "the shares are collected")
    silent.kill()
    scene.skew.write_text(str(-DAY))
    service.kill()
    service.start()  # it sees a phase that begins tomorrow
    left = scene.progress(service, collection)["closes_in_s"]
    assert left is None or left <= 3
    others.wait(40)
    found = outcome_of(scene, service, collection)
    assert (found.state, found.included) == ("done", (9,))


def test_a_clock_that_went_ahead_while_the_service_was_away_ends_a_phase_early(scene: Scene) -> None:
    """At worst: too few have answered, and the collection ends without a charge."""
    service = scene.service(skewed=True)
    collection = scene.open(service, **FEW)
    setter = Setter(scene, service, {"shares": DAY}, restart=True)
    with Wire([service.port], setter.carry) as wire:
        scene.fleet(wire.url, collection, range(12), hosted=True).wait()
    found = outcome_of(scene, service, collection)
    assert found.state == "aborted"
    assert (found.spent, found.rounds) == (0, 0)
