"""The state of a device for its owner shows the budget as it stands now, renewed or not."""

from __future__ import annotations

import json
from fractions import Fraction

from mapveil_client.device_account import Budget
from mapveil_client.device_status import DeviceStatus
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from tests.authority import NAMED, certified, revocations_of

DAY = 86_400.0


def test_a_renewed_budget_shows_without_any_collection_being_considered() -> None:
    clock = [1.79e9]
    memory = DeviceMemory.open(rng=Randomness(1), clock=lambda: clock[0])
    policy = DevicePolicy(budget=Budget(Fraction(4), 30), authority=NAMED)
    memory.account.grant("a" * 32, Fraction(2), budget=policy.budget)
    memory.account.charge("a" * 32, 1, Fraction(3, 2), budget=policy.budget)
    now = DeviceStatus.of(memory, policy)
    assert (now.spent, now.set_aside, now.left) == (Fraction(3, 2), Fraction(1, 2), 2)
    memory.account.end("a" * 32)
    clock[0] += 29 * DAY
    assert DeviceStatus.of(memory, policy).left == Fraction(5, 2)
    clock[0] += 2 * DAY
    renewed = DeviceStatus.of(memory, policy)
    assert (renewed.spent_ever, renewed.spent, renewed.set_aside, renewed.left) == (Fraction(3, 2), 0, 0, 4)
    assert str(renewed).startswith("0 spent of 4 per 30 days, 0 set aside, 4 left; 1.5 spent in its life")


def test_a_status_names_certificate_and_list() -> None:
    memory = certified(DeviceMemory.open(rng=Randomness(1)))
    policy = DevicePolicy(authority=NAMED)
    record = json.loads(json.dumps(DeviceStatus.of(memory, policy).to_record()))
    assert (record["device"], record["certificate_expires"], record["revoked"]) == (None, 1 << 40, False)
    assert (record["budget"], record["left"]) == ("4 for this device's lifetime", "4")
    memory.revoked = revocations_of(memory.identity.public)
    assert DeviceStatus.of(memory, policy).revoked
