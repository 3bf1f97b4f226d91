"""What was overheard and is sent again: the same request changes nothing, in another's name it is nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import httpx
import numpy as np
import pytest

from mapveil_client.connection import Connection
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, authorization
from tests.authority import NAMED, certified

from .addresses import shaped, snapshot
from .between import Between, Heard

DEVICES: Final = 20
SPEC: Final = {
    "trust": "distributed",
    "method": "uniform",
    "epsilon": "2",
    "tiling": "quadtree:3",
    "devices": DEVICES,
    "minimum": 20,
}


class Eavesdropper:
    """Hears every request of devices on their way, and sends them again."""

    def __init__(self, api: Any, between: Between) -> None:
        self.api, self.between = api, between
        self.clients: list[DeviceClient] = []
        self.client = httpx.Client(base_url=api.address, timeout=300)

    async def open(self) -> None:
        token = self.api.enrolment()
        for index in range(DEVICES):
            memory = DeviceMemory.open(rng=Randomness(300 + index))
            certified(memory)
            place = Whereabouts(np.array([-73.98 + index / 400]), np.array([40.72 + index / 300]))
            connection = Connection(self.between.addresses[index % len(self.between.addresses)])
            client = DeviceClient(
                connection, memory, DevicePolicy(authority=NAMED), place, rng=Randomness(index)
            )
            await client.enrol(token)
            self.clients.append(client)

    async def close(self) -> None:
        for client in self.clients:
            await client._connection.__aexit__(None, None, None)

    @property
    def heard(self) -> list[Heard]:
        return [each for one in self.between.heard for each in one]

    def again(self, each: Heard, header: str | None = None) -> httpx.Response:
        """The very request, or one in another's name."""
        headers = {"Authorization": header or each.header} if header or each.header else {}
        if each.body:
            kind = "json" if each.path == "/v1/devices" else "cbor"
            headers["Content-Type"] = f"application/{kind}"
        return self.client.request(each.method, each.path, content=each.body or None, headers=headers)


async def played(ears: Eavesdropper, id: str, between_phases: Any) -> None:
    """A whole collection; ``between_phases`` runs after every phase's messages."""
    await ears.open()
    for look in range(80):
        for client in ears.clients:
            await client.poll()
        await asyncio.to_thread(between_phases)
        await asyncio.to_thread(ears.api.engine.tick)
        if ears.api.engine.collection(id)["state"] in ("done", "aborted"):
            break
        await asyncio.sleep(0.11)
        assert look < 79
    await ears.close()


@pytest.fixture
def ears(api: Any) -> Iterator[Eavesdropper]:
    with Between(api.address, [(), ()]).listening() as between:
        made = Eavesdropper(api, between)
        yield made
        made.client.close()


def test_whatever_is_sent_again_at_any_moment_changes_nothing(ears: Eavesdropper) -> None:
    """Every request so far, after every phase, by an eavesdropper; and once more when all is over."""
    api, tried = ears.api, 0
    id = api.opened(**SPEC)

    def replay() -> None:
        nonlocal tried
        before = snapshot(api.store)
        sent = [each for each in ears.heard if each.method != "GET"]
        # All of the newest, and some of each kind of the older ones.
        for each in (*sent[-DEVICES:], *sent[: -DEVICES : 1 + len(sent) // 10]):
            answer = ears.again(each)
            assert answer.status_code in (201, 204, 404, 409, 410), (each.path, answer.text)
            tried += 1
        assert snapshot(api.store) == before

    asyncio.run(played(ears, id, replay))
    assert tried > 120
    record = api.engine.collection(id)
    assert (record["state"], record["members"]) == ("done", DEVICES), record["reason"]
    assert [each["included"] for each in record["rounds"]] == [DEVICES] * len(record["rounds"])
    assert {client.memory.account.spent for client in ears.clients} == {sum_of(record)}
    replay()
    assert api.store.check().ok


def sum_of(record: dict[str, Any]) -> Any:
    from fractions import Fraction

    return Fraction(record["spent"])


def test_a_message_in_another_s_name_is_nothing(ears: Eavesdropper) -> None:
    """Bodies under one's own signature, headers with other bodies, and devices that were never asked."""
    api, refused = ears.api, 0
    id = api.opened(**SPEC)
    thief = Identity.draw(Randomness(5))
    (stranger,) = api.phones(1, seed=9)

    def steal() -> None:
        nonlocal refused
        before = snapshot(api.store)
        sent = [each for each in ears.heard if "/messages/" in each.path]
        mine = ears.clients[0].memory
        for each in sent[-DEVICES::2]:
            whose = int(each.header.split(" ")[1])
            names = [(thief, whose), (stranger.identity, stranger.number), (mine.identity, whose)]
            if whose != mine.device:
                names.append((mine.identity, mine.device or 0))
            for identity, device in names:
                if identity is mine.identity and device == whose == mine.device:
                    continue
                answer = ears.again(each, authorization(identity, device, each.method, each.path, each.body))
                assert shaped(answer) in ("unauthorized", "not-found", "conflict", "invalid", "too-late")
                refused += 1
            for changed in (
                each._replace(body=each.body + b"\0"),
                each._replace(path=each.path.replace("rounds/1", "rounds/2")),
                each._replace(method="POST"),
            ):
                if changed[:3] != each[:3]:
                    assert shaped(ears.again(changed)) in ("unauthorized", "not-allowed", "not-found")
                    refused += 1
        assert snapshot(api.store) == before

    asyncio.run(played(ears, id, steal))
    assert refused > 250
    record = api.engine.collection(id)
    assert record["state"] == "done", record["reason"]
    assert {each["included"] for each in record["rounds"]} == {DEVICES}


def test_messages_of_an_old_round_are_nothing_in_a_new_one(ears: Eavesdropper) -> None:
    """By the very devices that said them, rightly signed for where they are sent now."""
    api, outcomes = ears.api, set()
    # Two rounds each; and twice epsilon 2 is just what a lifetime of 4 allows.
    several = {**SPEC, "method": "adaptive-grid", "options": {"first": 3}}
    first, second = api.opened(**several), api.opened(**several, title="the same again")

    def again_elsewhere() -> None:
        sent = [each for each in ears.heard if "/messages/" in each.path][-2 * DEVICES :: 5]
        by_number = {client.memory.device: client.memory.identity for client in ears.clients}
        before = snapshot(api.store)
        for each in sent:
            device = int(each.header.split(" ")[1])
            other = each.path.replace(first, "?").replace(second, first).replace("?", second)
            for path in (
                other,
                each.path.replace("rounds/1", "rounds/2"),
                each.path.replace("rounds/2", "rounds/1"),
            ):
                if path == each.path:
                    continue
                moved = each._replace(path=path)
                header = authorization(by_number[device], device, moved.method, path, moved.body)
                answer = ears.again(moved, header)
                outcomes.add(shaped(answer))
        assert snapshot(api.store) == before

    asyncio.run(played(ears, second, again_elsewhere))
    assert outcomes <= {"not-found", "conflict", "invalid", "too-late"}
    assert "invalid" in outcomes
    for id in (first, second):
        api.tick(2)
        record = api.engine.collection(id)
        assert record["state"] == "done", record["reason"]
        assert {each["included"] for each in record["rounds"]} == {DEVICES}
        assert len(record["rounds"]) == 2


def test_a_report_counts_once_for_whoever_sends_it_and_for_nobody_else(api: Any) -> None:
    """A copied report is the copier's own word: the one report it has; the other's stands as it was."""
    from mapveil_client.local.message import write_reports
    from mapveil_client.terms import CollectionTerms

    id = api.opened(devices=10, minimum=3)
    path = f"/v1/collections/{id}/report"
    terms = CollectionTerms.decode(api.engine.devices.terms(id))
    randomizer, cells = terms.randomizer, np.array([0, 63])
    honest, other = (
        bytes(each) for each in write_reports(randomizer.randomize(cells, Randomness(1)), randomizer)
    )
    victim, copier = api.phones(2)
    assert victim.ask("PUT", path, honest).status_code == 204
    assert copier.ask("PUT", path, honest).status_code == 204
    assert copier.ask("PUT", path, other).status_code == 409
    assert victim.ask("PUT", path, honest).status_code == 204
    assert api.engine.collection(id)["reports"] == 2
    elsewhere = api.opened(devices=10, minimum=3)
    stolen = {"path": path, "body": honest}
    moved = f"/v1/collections/{elsewhere}/report"
    assert victim.ask("PUT", moved, honest, stolen).status_code == 401
    assert api.engine.collection(elsewhere)["reports"] == 0
