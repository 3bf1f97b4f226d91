"""Devices behind a malicious server: each refuses, spends nothing more, and says why in its own log.

The collector is real, over HTTP, and so are the devices; a proxy between one device and the collector tampers with one
answer. The other devices hear the collector itself: their sum comes out right.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from mapveil_client import participation
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.connection import Connection, Unreachable
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.messages import read_set, write_set
from mapveil_client.terms import canonical_json
from tests.authority import NAMED, certified

from .between import Answer, Between, Tampering, in_json

DEVICES: Final = 24
SPEC: Final = {
    "trust": "distributed",
    "method": "laplace",
    "epsilon": "1",
    "tiling": "quadtree:3",
    "devices": DEVICES,
    "minimum": 20,
    "options": {"tolerated_dropout": 0.2},
}
LON, LAT = -73.98765, 40.75432
TERMS, ROUND, ASSIGNMENT, PROGRESS, OPEN, SERVER_MESSAGE = (
    *("/terms$", r"/rounds/\d+$", "/assignment$", "/progress$", "/v1/open$", "/server-message$"),
)
PHASES: Final = ("", "keys", "shares", "inputs", "consents", "answers")


class Told(NamedTuple):
    """What one device is told, and what it must make of it."""

    tamperings: tuple[Tampering, ...]
    says: str  # in its own log, a regular expression
    last: str  # the last phase of which it sends anything; "" where it sends none
    spent: int = 0  # epsilon; 1 where its vector is in the sum, as it agreed to


def told(where: str, change: Callable[[Any], Any], says: str, last: str = "", spent: int = 0) -> Told:
    return Told((Tampering(where, in_json(change)),), says, last, spent)


def put(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.update(values)


def everywhere(**values: Any) -> tuple[Tampering, ...]:
    """Other terms, and announcements that go with them."""
    import hashlib

    digests: list[str] = []

    def terms(answer: Answer) -> None:
        in_json(put(**values))(answer)
        digests.append(hashlib.sha256(answer.body).hexdigest())

    def announcement(record: dict[str, Any]) -> None:
        record["terms"] = digests[-1]
        if "epsilon" in values:
            record["epsilon"] = values["epsilon"]

    return Tampering(TERMS, terms), Tampering(ROUND, in_json(announcement))


def other_client(record: dict[str, Any]) -> None:
    record["client"] = (record["client"] + 1) % DEVICES


def altered(phase: str, change: Callable[[list[Any]], Any], says: str, last: str, spent: int = 0) -> Told:
    """A tampering in the parts of a message."""

    def tell(answer: Answer) -> None:
        parts = decode(answer.body)
        changed = change(parts)
        answer.body = encode(parts if changed is None else changed)

    return Told((Tampering(SERVER_MESSAGE, tell, phase),), says, last, spent)


def bytes_of(phase: str, change: Callable[[bytes], bytes], says: str, last: str, spent: int = 0) -> Told:
    def tell(answer: Answer) -> None:
        answer.body = change(answer.body)

    return Told((Tampering(SERVER_MESSAGE, tell, phase),), says, last, spent)


def flipped(part: int, at: int = 0) -> Callable[[list[Any]], None]:
    def change(parts: list[Any]) -> None:
        made = bytearray(parts[part])
        made[at] ^= 1
        parts[part] = bytes(made)

    return change


def members(keep: Callable[[np.ndarray, int], np.ndarray]) -> Callable[[list[Any]], None]:
    """Another set of survivors; ``keep`` is given those there are, and the device's own number."""

    def change(parts: list[Any]) -> None:
        parts[4] = write_set(keep(read_set(parts[4], DEVICES), parts[3]))

    return change


def without_another(here: np.ndarray, client: int) -> np.ndarray:
    made = here.copy()
    made[next(other for other in np.flatnonzero(here) if other != client)] = False
    return made


def without_itself(here: np.ndarray, client: int) -> np.ndarray:
    return here & (np.arange(here.size) != client)


def below_the_promise(here: np.ndarray, client: int) -> np.ndarray:
    return here & (np.arange(here.size) % 2 == client % 2)


def one_member(parts: list[Any]) -> list[Any]:
    """Of the neighbours in a roster, the first."""
    return [*parts[:5], b"\1" + bytes(len(parts[5]) - 1), parts[6][:248], *parts[7:]]


def fewer_signers(parts: list[Any]) -> None:
    parts[4], parts[5] = bytes([parts[4][0] & -parts[4][0], *bytes(len(parts[4]) - 1)]), parts[5][:64]


TAMPERED: Final = {
    # Of the terms: most are refused for what they say, the others as soon as a round does not go with them.
    "terms: epsilon past the policy": told(TERMS, put(epsilon="3"), "epsilon must be at most 2"),
    "terms: epsilon doubled": told(TERMS, put(epsilon="2", own_epsilon="9999"), "other terms"),
    "terms: epsilon doubled, but not alone": told(TERMS, put(epsilon="2"), "own_epsilon must be 29"),
    "terms: epsilon doubled, everywhere": Told(everywhere(epsilon="2", own_epsilon="9999"), r"refuses \(422", "keys"),
    "terms: a minimum of three": told(TERMS, put(minimum=3), "minimum must be at least"),
    "terms: a lower minimum, everywhere": Told(everywhere(minimum=21), r"refuses \(422", "keys"),
    "terms: sums that trust the server": told(TERMS, put(active=False, authority=None), "a malicious server"),
    "terms: nobody is corrupt": told(TERMS, put(options={"corrupt": 0}), "corrupt must be at least"),
    "terms: half may drop out": told(TERMS, put(options={"tolerated_dropout": 0.5}), "dropout must be at most"),
    "terms: of another collection": told(TERMS, put(identifier="ab" * 16), "of another collection"),
    "terms: another title": told(TERMS, put(title="where you are"), "other terms"),
    "terms: no JSON": Told((Tampering(TERMS, lambda answer: setattr(answer, "body", b"{")),), "is no JSON", ""),
    "terms: a list": told(TERMS, lambda record: [record], "is no JSON object"),
    # Of the round.
    "round: half the noise": told(ROUND, lambda r: r.update(alpha=str(Fraction(r["alpha"]) / 2)), "noise share"),
    "round: epsilon raised": told(ROUND, put(epsilon="3/2"), "epsilon must be at most 1, as the terms promised"),
    "round: fewer members": told(ROUND, put(sizes=[12, 12]), "shard must be at least"),
    "round: invented members": told(ROUND, put(sizes=[DEVICES, DEVICES]), "devices must be at most 24"),
    "round: more may drop out": told(ROUND, put(dropout="1/2"), "tolerated_dropout must be"),
    "round: nobody is corrupt": told(ROUND, put(corrupt="0"), "corrupt must be"),
    "round: sums that trust the server": told(ROUND, put(active=False), "active must be True"),
    "round: another scale": told(ROUND, put(scale=4096), "scale must be"),
    "round: another run": told(ROUND, put(run="5a" * 16), r"refuses \(422", "keys"),
    "round: another raster": told(ROUND, put(encoding={"kind": "margins", "depth": 4}, length=32), "raster must be 3"),
    "round: another number": told(ROUND, put(number=2), "another round"),
    "round: no JSON": Told((Tampering(ROUND, lambda answer: setattr(answer, "body", b"[]")),), "no JSON object", ""),
    # Of assignments and of progress.
    "assignment: another's": told(ASSIGNMENT, other_client, r"refuses \(422", "keys"),
    "assignment: past the last": told(ASSIGNMENT, put(client=DEVICES), "client must be 0 to 23"),
    "assignment: none": told(ASSIGNMENT, put(client=-1), "assignment of a device cannot be read"),
    "assignment: another shard": told(ASSIGNMENT, put(shard=1), "shard must be 0 to 0"),
    "progress: done": told(PROGRESS, put(state="done"), "says that it is done"),
    "progress: a later round": told(PROGRESS, put(round=2, state="running", phase="keys", open=True), r"refuses \(404"),
    "progress: no record": told(PROGRESS, lambda record: [], "cannot be read"),
    "open: no list": told(OPEN, lambda record: {"a": 1}, "cannot be read"),
    # Of the messages of others.
    "roster: a member's key": altered("shares", flipped(6), "lists other keys of client|graph of", "keys"),
    "roster: another graph": altered("shares", flipped(4), "lists other keys of client|graph of", "keys"),
    "roster: one member": altered("shares", one_member, "needed", "keys"),
    "roster: of another device": altered("shares", lambda p: p.__setitem__(3, (p[3] + 1) % DEVICES), "client", "keys"),
    "roster: cut": bytes_of("shares", lambda body: body[:-1], "message", "keys"),
    "roster: left out": bytes_of("shares", lambda body: b"", "without this device", "keys"),
    "inbox: of another round": altered("inputs", flipped(2), "round", "shares"),
    "inbox: nobody's shares": altered("inputs", lambda p: [*p[:4], bytes(len(p[4])), b""], "needed", "shares"),
    "inbox: the roster again": altered("inputs", lambda p: p.__setitem__(1, 2), "message", "shares"),
    "survivors: one is kept back": altered("consents", members(without_another), r"refuses \(422", "consents", 1),
    "survivors: too few": altered("consents", members(below_the_promise), "promised", "inputs", 1),
    "survivors: not this device": altered("consents", members(without_itself), "not in", "inputs", 1),
    "survivors: past the last": altered("consents", lambda p: p.__setitem__(4, b"\xff" * 4), "message of", "inputs", 1),
    "confirmations: too few": altered("answers", fewer_signers, "needed", "consents", 1),
    "confirmations: another signature": altered("answers", flipped(5), "has not signed", "consents", 1),
    "confirmations: none": altered("answers", lambda p: [*p[:4], bytes(len(p[4])), b""], "needed", "consents", 1),
}  # fmt: skip
AT_ONCE: Final = 4  # so many of 24 may be lost
GROUPS: Final = [list(TAMPERED)[first : first + AT_ONCE] for first in range(0, len(TAMPERED), AT_ONCE)]


class Victims:
    """Devices that are lied to."""

    def __init__(self, between: Between) -> None:
        self.between = between
        self.clients: list[DeviceClient] = []

    async def open(self, token: str) -> None:
        for index, address in enumerate(self.between.addresses):
            memory = DeviceMemory.open(rng=Randomness(900 + index))
            certified(memory)
            place = Whereabouts(np.array([LON]), np.array([LAT]))
            connection = Connection(address, patience_s=2.0)
            client = DeviceClient(
                connection, memory, DevicePolicy(authority=NAMED), place, rng=Randomness(index)
            )
            await client.enrol(token)
            self.clients.append(client)

    async def look(self) -> None:
        """One look of every device, as its own loop has it."""
        for client in self.clients:
            try:
                await client.poll()
            except Unreachable as error:
                client.memory.log.add("waiting", str(error))

    async def close(self) -> None:
        for client in self.clients:
            await client._connection.__aexit__(None, None, None)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0].replace(" ", "-"))
def test_tampering_is_refused_and_costs_nothing(
    api: Any, crowd_of: Any, totals_of: Any, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    vectors: list[np.ndarray] = []
    honest_report = participation.client_report

    def recorded(*arguments: Any) -> Any:
        made = honest_report(*arguments)
        vectors.append(made.dense(0))
        return made

    monkeypatch.setattr(participation, "client_report", recorded)
    given = [TAMPERED[name] for name in names]
    token = api.enrolment()
    crowd = crowd_of(api.store, DEVICES - len(names))
    id = api.opened(**SPEC)
    between = Between(api.address, [each.tamperings for each in given])

    async def play() -> None:
        victims = Victims(between)
        try:
            await victims.open(token)
            for look in range(60):
                await victims.look()
                acted = await crowd.turn(api.engine, id)
                await asyncio.to_thread(api.engine.tick)
                record = api.engine.collection(id)
                if record["state"] in ("done", "aborted"):
                    break
                if record["state"] == "open" and look:
                    api.engine.begin(id, "operator 3")
                elif not acted:
                    api.clock.advance(61)
                await asyncio.sleep(0.11)  # the board of where it stands is read ten times a second
            await victims.look()
        finally:
            clients.extend(victims.clients)
            await victims.close()

    clients: list[DeviceClient] = []
    with between.listening():
        asyncio.run(play())
    record = api.engine.collection(id)
    assert (record["state"], record["spent"]) == ("done", "1"), record["reason"]
    for index, (name, each, client) in enumerate(zip(names, given, clients, strict=True)):
        assert between.told[index], f"{name}: the tampering was never told"
        judge(name, each, client, between.heard[index])
    total, included = totals_of(api.store, id)[1]
    honest = sum(crowd.vectors[d, 1] for d in range(1, crowd.count + 1))
    counted = sum(each.spent for each in given)
    assert included == crowd.count + counted
    if not counted:
        assert np.array_equal(total, honest)
    else:
        parts = [np.zeros_like(honest), *vectors]
        assert any(np.array_equal(total, honest + sum(chosen)) for chosen in choices(parts[1:], counted))


def choices(vectors: list[np.ndarray], count: int) -> Any:
    import itertools

    return itertools.combinations(vectors, count)


def judge(name: str, each: Told, client: DeviceClient, heard: list[Any]) -> None:
    lines = [str(line) for line in client.memory.log.lines]
    assert any(re.search(each.says, line) for line in lines), f"{name}: {lines}"
    assert client.memory.account.spent == each.spent, f"{name}: {lines}"
    sent = [one.path.rsplit("/", 1)[1] for one in heard if one.method == "PUT" and "/messages/" in one.path]
    reached = max((PHASES.index(phase) for phase in sent), default=0)
    assert reached <= PHASES.index(each.last), f"{name}: {sent}"
    for one in (*heard, *lines):
        text = one if isinstance(one, str) else f"{one.path} {one.body!r}"
        for secret in (f"{LON:.3f}", f"{LAT:.3f}"):
            assert secret not in text, name


def test_the_liar_itself_passes_on_what_it_does_not_lie_about(api: Any) -> None:
    """Otherwise the devices above would refuse whatever they were told."""
    id = api.opened(**SPEC)
    told_here = Between(api.address, [()])
    with told_here.listening():
        import httpx

        terms = httpx.get(f"{told_here.addresses[0]}/v1/collections/{id}/terms").content
    assert terms == api.engine.devices.terms(id) == canonical_json(json.loads(terms))
