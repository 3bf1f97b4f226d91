"""Devices that are killed: too many, not too many, and those that come back."""

from __future__ import annotations

from fractions import Fraction

import pytest

from .outcome import outcome_of
from .scene import Scene, until

STAYING, KILLED = range(14), range(14, 20)  # 30 % of them
COLLECTION = {"devices": 20, "minimum": 10, "phase_seconds": 3}


def play(scene: Scene, dropout: float, phase: str, *, back: bool = False):
    """Kill 30 % of the devices in a phase, before they answer it; start them again, perhaps."""
    service = scene.service()
    options = {"tolerated_dropout": dropout, "corrupt": 0}
    changed = {"phase_seconds": 60} if back else {}
    collection = scene.open(service, **{**COLLECTION, **changed, "options": options})
    staying = scene.fleet(service.url, collection, STAYING, name="staying")
    # Slow, so that they are certain to have a message yet to send.
    killed = scene.fleet(service.url, collection, KILLED, slow_s=0.6, name="killed")
    until(lambda: scene.progress(service, collection)["phase"] == phase, f"the {phase} are collected")
    killed.kill()
    if back:
        until(
            lambda: scene.progress(service, collection)["present"] == len(STAYING), "the others have answered"
        )
        scene.fleet(service.url, collection, KILLED, name="killed").wait()
    staying.wait()
    found = outcome_of(scene, service, collection)
    return found, scene.memories(), collection


def test_more_than_were_promised_end_a_collection_whose_vectors_were_sent(scene: Scene) -> None:
    found, memories, collection = play(scene, 0.1, "inputs")
    assert (found.state, found.rounds, found.spent) == ("aborted", 0, 0)
    assert found.reason is not None
    # The others know that it is over; those that were killed would hear it when they ask.
    assert sum(memory.parts[collection].running for memory in memories.values()) == len(KILLED)


def test_more_than_were_promised_in_shares_let_the_round_run_again_with_the_others(scene: Scene) -> None:
    found, memories, collection = play(scene, 0.1, "shares")
    assert (found.state, found.included, found.spent) == ("done", (14,), 4000)
    assert found.actions["round.restart"] == 1
    spent = [memory.account.spent_on(collection) for memory in memories.values()]
    assert sorted(spent) == [Fraction(0)] * 6 + [Fraction(4000)] * 14


@pytest.mark.parametrize("phase", ["shares", "inputs"])
def test_as_many_as_were_tolerated_are_missing_from_the_right_sum(scene: Scene, phase: str) -> None:
    found, memories, collection = play(scene, 0.4, phase)
    assert (found.state, found.included, found.spent) == ("done", (14,), 4000)
    spent = [memory.account.spent_on(collection) for memory in memories.values()]
    assert sorted(spent) == [Fraction(0)] * 6 + [Fraction(4000)] * 14


@pytest.mark.parametrize("phase", ["shares", "inputs", "consents"])
def test_devices_that_are_started_again_in_the_middle_of_a_round_are_in_the_sum(
    scene: Scene, phase: str
) -> None:
    found, memories, collection = play(scene, 0.1, phase, back=True)
    assert (found.state, found.included, found.spent) == ("done", (20,), 4000)
    assert {memory.account.spent_on(collection) for memory in memories.values()} == {4000}
