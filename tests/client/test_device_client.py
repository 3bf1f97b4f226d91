"""A device's loop where one collection, or one process of the service, says something that must not end others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from fractions import Fraction

import pytest

from mapveil_client.connection import Connection, FinalRefusal, Progress, ServerRefusal
from mapveil_client.device_client import DeviceClient
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import DeviceRefusal
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms
from tests.authority import NAMED, certified

from .conftest import Shard, make_announcement, somewhere


class Scripted(Connection):
    """A connection to no server: fixed progress and terms, and a list of what was asked and sent."""

    def __init__(self, terms: list[CollectionTerms], progress: Callable[[str], Progress]) -> None:
        super().__init__("http://127.0.0.1:1")
        self._told, self._stands = {each.identifier: each for each in terms}, progress
        self.asked: list[str] = []
        self.sent: list[str] = []

    async def record(self, path: str) -> list[dict[str, str]]:
        return [{"id": each} for each in self._told]

    async def progress(self, collection: str) -> Progress:
        self.asked.append(collection)
        return self._stands(collection)

    async def document(self, path: str) -> bytes:
        return self._told[path.split("/")[3]].encode()

    async def request(self, method: str, path: str, *given: object, **named: object) -> bytes:
        self.sent.append(path)
        return b""


def test_progress_of_an_earlier_round_changes_nothing(new_terms, new_shard, new_announcement) -> None:
    terms = new_terms()
    shard: Shard = new_shard(terms, epsilon=Fraction(1, 2)).until("answers")
    shard.deliver()
    device = shard.devices[0]
    device.begin(new_announcement(terms, epsilon=Fraction(1, 2), number=2, run="5b" * 16), 0, 0)
    device.acknowledged()
    device.memory.device = 1
    stale = Progress("running", 1, "answers", True, None, 24, 24)
    connection = Scripted([terms], lambda collection: stale)
    client = DeviceClient(connection, device.memory, device.policy, somewhere(0))
    assert asyncio.run(client.poll())
    assert connection.asked == [terms.identifier]
    assert (device.part.state, device.part.round, connection.sent) == ("joined", 2, [])


def test_a_refusal_of_one_collection_does_not_stop_the_others(new_terms) -> None:
    names = ["a" * 32, "b" * 32, "c" * 32]
    over = Progress("aborted", 0, None, False, None, 24, 24)

    def progress(collection: str) -> Progress:
        if collection == names[0]:
            raise FinalRefusal(404, "not-found", "there is no such collection")
        if collection == names[1]:
            raise ServerRefusal(503, "busy", "try again")
        return over

    memory = DeviceMemory.open(rng=Randomness(1))
    certified(memory).device = 1
    connection = Scripted([new_terms(identifier=each) for each in names], progress)
    policy = DevicePolicy(authority=NAMED, most_per_collection=Fraction(1))
    client = DeviceClient(connection, memory, policy, somewhere(1))
    assert asyncio.run(client.poll())
    assert connection.asked == names
    assert [memory.parts[each].state for each in names] == ["joined", "joined", "ended"]
    said = [(line.collection, line.text) for line in memory.log.lines if line.event == "waiting"]
    assert [each for each, _ in said] == names[:2]
    assert "404 not-found" in said[0][1]


def gone(collection: str) -> Progress:
    raise FinalRefusal(404, "not-found", "there is no such collection")


def looking(terms: CollectionTerms, memory: DeviceMemory, progress, gone_s: float) -> DeviceClient:
    memory.device = 1
    policy = DevicePolicy(authority=NAMED)
    return DeviceClient(Scripted([terms], progress), memory, policy, somewhere(0), gone_s=gone_s)


def test_a_collection_that_is_gone_holds_no_budget_and_is_answered_no_more(new_terms, new_device) -> None:
    """A server could drain every budget by forgetting collections: nothing was charged, so nothing was sent."""
    device = new_device(new_terms())
    client = looking(device.terms, device.memory, gone, 0.0)
    assert device.memory.account.left(device.policy.budget) == 3
    assert not asyncio.run(client.poll())
    assert device.memory.account.left(device.policy.budget) == 4
    assert "has not known it" in device.part.reason
    back = Progress("running", 1, "keys", True, None, 24, 24)
    client = looking(device.terms, device.memory, lambda collection: back, 0.0)
    assert not asyncio.run(client.poll())
    assert client._connection.sent == []
    with pytest.raises(DeviceRefusal, match="has not known it"):
        device.begin(make_announcement(device.terms), 0, 0)


def test_what_was_charged_stays_charged_when_the_collection_is_gone(new_terms, new_shard) -> None:
    shard = new_shard(new_terms(), epsilon=Fraction(1, 2)).until("consents")
    device = shard.devices[0]
    asyncio.run(looking(device.terms, device.memory, gone, 0.0).poll())
    assert not device.running
    assert device.memory.account.left(device.policy.budget) == Fraction(7, 2)


def test_a_collection_that_is_gone_for_a_moment_is_not_left(new_terms, new_device) -> None:
    device = new_device(new_terms())
    asyncio.run(looking(device.terms, device.memory, gone, 3600.0).poll())
    assert device.running
    assert device.memory.account.left(device.policy.budget) == 3


def test_a_running_device_comes_again_when_the_server_says(new_terms, new_device, monkeypatch) -> None:
    device = new_device(new_terms())
    client = looking(
        device.terms, device.memory, lambda collection: Progress("open", 0, None, True, 9, 24, 1), 3600.0
    )
    told, slept = iter([7.5, 0.0, 30.0]), []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    async def poll() -> bool:
        client._connection.pauses.note(next(told))
        return True

    monkeypatch.setattr(client, "poll", poll)
    monkeypatch.setattr("mapveil_client.device_client.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(client.run())
    assert slept == [7.5, 1.0, 30.0]
