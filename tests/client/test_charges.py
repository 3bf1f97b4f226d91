"""The table of charges (docs/explanation/collector.md), the devices' side: one row each."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mapveil_client.device_account import Budget
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import DeviceRefusal, Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from tests.authority import NAMED, certified

from .conduct import spent
from .conftest import Shard, make_announcement, somewhere


def held(device) -> Fraction:
    """The epsilon set aside for the collection."""
    return device.memory.account.entries[device.collection].held


@pytest.mark.parametrize("phase", ["shares", "inputs"])
def test_left_out_before_its_vector_was_sent_costs_nothing(new_terms, new_shard, phase) -> None:
    shard = new_shard(new_terms()).until(phase)
    device = shard.devices[0]
    with pytest.raises(DeviceRefusal, match="went on without"):
        device.answer(shard.announcement, phase, b"")
    assert (spent(device), held(device)) == (0, 0)


def test_a_round_that_is_run_again_costs_once(new_terms, new_shard, new_announcement) -> None:
    terms = new_terms()
    first = new_shard(terms)
    first.deliver()
    first.close()
    first.deliver()  # keys and shares were sent, and the round was given up
    again = new_shard(terms, special=dict(enumerate(first.devices)), number=2, run="6b" * 16)
    assert {spent(device) for device in first.devices} == {0}
    again.until("consents")
    for device in first.devices:
        assert device.memory.account.entries[terms.identifier].charges == {2: Fraction(1)}


def test_a_vector_that_was_sent_is_charged_whatever_becomes_of_it(new_terms, new_shard) -> None:
    shard = new_shard(new_terms()).until("inputs")
    taken, late, left_out = shard.devices[:3]
    for client in range(3):
        assert shard.message(client)
    late.refused("the phase is over")
    # A device cannot see why it is told no survivors: its vector may be in a sum.
    assert left_out.answer(shard.announcement, "consents", b"") is None
    for device in (taken, late, left_out):
        device.end("the server says that it is aborted")
        assert (spent(device), held(device)) == (1, 1)


def test_joining_alone_costs_nothing(new_terms, new_device) -> None:
    device = new_device(new_terms())
    assert (spent(device), held(device)) == (0, 1)
    device.end("the server says that it is aborted")
    assert (spent(device), held(device)) == (0, 0)


@pytest.mark.parametrize(("phase", "lasts"), [("shares", 6), ("consents", 4)])
def test_a_server_that_aborts_drains_the_budget_from_inputs_on_and_not_before(
    new_terms, phase, lasts
) -> None:
    """It learns no sum. Four collections use up the life of a device, or the period of one whose budget renews."""
    clock = [1.79e9]
    for budget, renews in ((Budget(Fraction(4)), False), (Budget(Fraction(4), 30), True)):
        policy = DevicePolicy(authority=NAMED, budget=budget)
        memories = [
            certified(DeviceMemory.open(rng=Randomness(index), clock=lambda: clock[0])) for index in range(24)
        ]

        def collection(number: int, memories=memories, policy=policy) -> list[Participation]:
            terms = new_terms(identifier=f"{number:032x}")
            return [
                Participation(memory, policy, terms, somewhere(index), Randomness(index), lambda: clock[0])
                for index, memory in enumerate(memories)
            ]

        for number in range(lasts):
            devices = collection(number)
            for device in devices:
                device.join()
            Shard(devices[0].terms, devices, make_announcement(devices[0].terms)).until(phase)
            for device in devices:
                device.end("the server says that it is aborted")
        victim = memories[0].account
        assert victim.left(budget) == (4 if phase == "shares" else 0)
        last = collection(lasts)[0]
        if phase == "consents":
            with pytest.raises(DeviceRefusal, match="at most 0"):
                last.join()
            clock[0] += 31 * 86_400.0
            assert victim.left(budget) == (4 if renews else 0)
        else:
            last.join()
