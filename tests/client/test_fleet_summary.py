"""The summary counts what the devices' memories say, and tells reasons apart from numbers."""

from __future__ import annotations

import json
from fractions import Fraction
from types import SimpleNamespace

from mapveil.collector.fleet.fleet_summary import FleetSummary
from mapveil_client.connection import Traffic
from mapveil_client.device_account import Budget
from mapveil_client.memory import DeviceMemory, Part
from mapveil_client.randomness.random import Randomness

HERE, ELSEWHERE = "a" * 32, "b" * 32
REVOKED = "the server refuses (401 unauthorized): no such device, or one that was revoked or is in quarantine"


def device(index: int, state: str | None, reason: str = "", epsilon: int = 0) -> SimpleNamespace:
    memory = DeviceMemory.open(rng=Randomness(index))
    if state is None:
        memory.refused[HERE] = reason
    else:
        memory.parts[HERE] = Part("c" * 64, state=state, reason=reason, round=int(reason != REVOKED))
    memory.refused[ELSEWHERE] = "not asked about"
    if epsilon:
        memory.account.grant(HERE, Fraction(epsilon), budget=Budget(Fraction(9)))
        memory.account.charge(HERE, 1, Fraction(epsilon), budget=Budget(Fraction(9)))
    policy = SimpleNamespace(budget=Budget(Fraction(9)))
    return SimpleNamespace(memory=memory, policy=policy, traffic=Traffic(up=10 * index, down=index))


def test_devices_are_counted_by_what_became_of_them() -> None:
    devices = [
        device(1, "ended", "over", 2),
        device(2, "left", "3 neighbours of client 17 are in the sum; 5 are needed", 1),
        device(3, "left", "3 neighbours of client 4 are in the sum; 5 are needed"),
        device(4, None, "too dear"),
        device(5, "left", REVOKED),
    ]
    made = FleetSummary.of(devices, {HERE: "done"}, sent=9, dropped=1, unreachable=2, seconds=1.234)
    assert (made.devices, made.joined, made.epsilon, made.least_left) == (5, 3, 2, 7)
    assert made.refused == {"too dear": 1}
    assert made.left == {"3 neighbours of a client are in the sum; 5 are needed": 2, REVOKED: 1}
    assert (made.bytes_up, made.bytes_down) == ((30.0, 50), (3.0, 5))
    assert made.good
    record = json.loads(json.dumps(made.to_record()))
    assert (record["epsilon"], record["seconds"], record["bytes_up"]) == (
        "2",
        1.23,
        {"mean": 30.0, "most": 50},
    )
    text = "\n".join(made.lines())
    for part in (
        f"{HERE}: done",
        "5 devices, 3 took part, 9 messages",
        "the least that a device has left now: epsilon 7 of 9 for this device's lifetime",
        "1 refused: too dear",
        "1 made to drop out",
    ):
        assert part in text


def test_an_aborted_collection_or_nobody_is_no_success() -> None:
    counts = {"sent": 0, "dropped": 0, "unreachable": 0, "seconds": 0.0}
    ended = FleetSummary.of([device(1, "ended")], {HERE: "aborted"}, reasons={HERE: "too few"}, **counts)
    assert not ended.good
    assert ended.lines()[0] == f"{HERE}: aborted: too few"
    assert not FleetSummary.of([device(1, None, "no")], {HERE: "done"}, **counts).good
    assert FleetSummary.of([device(1, "ended")], {HERE: "done"}, **counts).good
