"""The table of charges (docs/explanation/collector.md), the devices' side: one row each."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mapveil_client.participation import DeviceRefusal

from .conduct import spent


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
