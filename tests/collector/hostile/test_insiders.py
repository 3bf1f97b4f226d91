"""Devices that took part rightly and then say something else: never a wrong sum, at worst none."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import numpy as np
import pytest
from sqlalchemy import select

from mapveil.collector.refusals import Refusal
from mapveil.collector.rounds.charged_devices import in_counted_shards
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.schema import assignments
from mapveil_client.randomness.random import Randomness
from tests.authority import AUTHORITY

from .mutants import Mutants, Spoken

DEVICES: Final = 24
INSIDERS: Final = (1, 2, 3)  # of two shards of 12; each bears the loss of three
TRIES: Final = 200


async def misbehave(engine: Engine, id: str, crowd: Any, mutants: Mutants, phases: set[str]) -> int:
    """Every insider sends altered messages of the phase until one is taken; returns how many were."""
    from mapveil_client.announcement import RoundAnnouncement
    from mapveil_client.terms import CollectionTerms

    progress = engine.devices.progress(id)
    if progress.state != "running" or progress.phase not in phases or not crowd.answers:
        return 0
    number, phase, taken = progress.round, progress.phase, 0
    terms = CollectionTerms.decode(engine.devices.terms(id))
    announced = RoundAnnouncement.decode(engine.devices.announcement(id, number))
    mutants.corpus = [Spoken(*key, body) for key, body in crowd.answers.items()]
    for device in INSIDERS:
        right = crowd._answer(engine, id, terms, announced, number, phase, device)
        if right is None or (device, number, phase) in crowd.acknowledged:
            continue
        for _ in range(TRIES):
            _, body = mutants.alter(right)
            if body == right:
                continue
            try:
                await engine.devices.message(id, number, phase, device, body)
            except Refusal:
                continue
            crowd.acknowledged.add((device, number, phase))
            taken += 1
            break
    return taken


def play(engine: Engine, id: str, clock: Any, crowd: Any, mutants: Mutants, phases: set[str]) -> int:
    """A collection with insiders, to its end; how many of their messages were taken."""
    taken = 0
    for _ in range(200):
        engine.tick()
        if engine.collection(id)["state"] in ("done", "aborted"):
            return taken
        taken += asyncio.run(misbehave(engine, id, crowd, mutants, phases))
        if not asyncio.run(crowd.turn(engine, id)):
            clock.advance(61)
    raise AssertionError("the collection does not end")


@pytest.mark.parametrize("phases", ["shares", "inputs", "answers", "shares answers"])
@pytest.mark.parametrize("seed", range(3))
def test_altered_words_of_insiders_never_make_a_wrong_sum(
    sqlite_store: Any,
    clock: Any,
    crowd_of: Any,
    opened: Any,
    make_spec: Any,
    totals_of: Any,
    phases: str,
    seed: int,
) -> None:
    engine = Engine(sqlite_store, clock, Randomness(seed), authority=AUTHORITY)
    crowd = crowd_of(sqlite_store, DEVICES, seed=seed)
    options = {"shard_size": 12, "tolerated_dropout": 0.25, "corrupt": 0, "rounds": 1}
    id, _ = opened(engine, make_spec("distributed", devices=DEVICES, options=options))
    taken = play(engine, id, clock, crowd, Mutants(seed, []), set(phases.split()))
    assert (taken > 0) == (phases != "answers")  # of an answer nothing can be altered
    record = engine.collection(id)
    total, included = totals_of(sqlite_store, id)[1]
    if record["state"] == "done":
        with sqlite_store.read() as connection:
            kept = connection.execute(select(assignments.c.device).where(*in_counted_shards(id, 1)))
            counted = set(kept.scalars())
        # An insider whose boxes are wrong is left out, and a shard whose sum or secrets cannot be right. An insider's
        # own vector is its own to choose.
        assert included == len(counted)
        assert included >= 12 - len(INSIDERS)
        difference = total - sum(crowd.vectors[d, 1] for d in counted)
        assert phases == "inputs" or not np.any(difference)
    else:
        assert (record["state"], total, record["result"]) == ("aborted", None, False)
        assert record["reason"]
    assert sqlite_store.check().ok
    # Whoever takes over finds the same.
    again = Engine(sqlite_store, clock, authority=AUTHORITY)
    again.tick()
    assert again.collection(id) == engine.collection(id)


def test_insiders_that_fall_silent_are_a_dropout_like_any(
    engine: Engine, store: Any, clock: Any, crowd_of: Any, opened: Any, make_spec: Any, totals_of: Any
) -> None:
    """Wrong keys and consents are refused, so whoever has no others to send is out; the rest is summed."""
    crowd = crowd_of(store, DEVICES)
    id, _ = opened(engine, make_spec("distributed", devices=DEVICES))
    while (phase := engine.devices.progress(id).phase) != "consents":
        asyncio.run(crowd.turn(engine, id))
        engine.tick()
        assert phase != "answers"
    mutants, sent = Mutants(5, []), 0
    right = [Spoken(*key, body) for key, body in crowd.answers.items()]
    mutants.corpus = right
    for device in INSIDERS:
        for _ in range(TRIES):
            with pytest.raises(Refusal):
                asyncio.run(
                    engine.devices.message(id, 1, "consents", device, mutants.alter(right[0].body)[1])
                )
            sent += 1
        crowd.gone.add(device)
    assert crowd.play(engine, id, clock) == "done", engine.collection(id)["reason"]
    total, included = totals_of(store, id)[1]
    assert included == DEVICES
    assert np.array_equal(total, sum(crowd.vectors[d, 1] for d in range(1, DEVICES + 1)))
    assert sent == TRIES * len(INSIDERS)
