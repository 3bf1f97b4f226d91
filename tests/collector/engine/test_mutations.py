"""Mutated and foreign messages in every phase: refused one by one, and the sum is right in the end."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
import pytest

from mapveil.collector.refusals import Conflict, Invalid
from mapveil.collector.rounds.engine import Engine
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY

EACH = 40


def mutations(body, generator):
    """A message with one thing wrong: a bit, a length, a part of another."""
    for _ in range(EACH):
        kind = generator.integers(4)
        data = bytearray(body)
        at = int(generator.integers(len(data)))
        if kind == 0:
            data[at] ^= 1 << int(generator.integers(8))
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = generator.bytes(int(generator.integers(1, 9)))
        else:
            data[at : at + 16] = generator.bytes(16)
        if bytes(data) != body:
            yield bytes(data)


@pytest.mark.parametrize("trust", ["local", "random-features"])
def test_mutated_reports_are_refused_or_reports(sqlite_store, clock, crowd_of, opened, make_spec, trust):
    engine = Engine(sqlite_store, clock, authority=AUTHORITY)
    crowd = crowd_of(sqlite_store, 8)
    id, terms = opened(engine, make_spec(trust, devices=8))
    bodies = crowd.local_reports(terms) if trust == "local" else crowd.feature_reports(terms)
    generator = np.random.default_rng(1)
    taken = 0

    async def send():
        nonlocal taken
        for device, body in enumerate(bodies[:6], 1):
            for mutated in mutations(body, generator):
                with contextlib.suppress(Conflict, Invalid):
                    await engine.devices.report(id, device, mutated)
                    taken += 1

    asyncio.run(send())
    # A changed symbol may be a report too: whoever signed it may lie about themselves, once.
    assert engine.collection(id)["reports"] == taken <= 6


def test_mutated_messages_leave_the_round_as_it_was(
    sqlite_store, clock, crowd_of, opened, make_spec, totals_of
):
    engine = Engine(sqlite_store, clock, authority=AUTHORITY)
    crowd = crowd_of(sqlite_store, 6)
    options = {"shard_size": 6, "tolerated_dropout": 0, "corrupt": 0}
    spec = make_spec("distributed", devices=6, method="uniform", options=options, tiling="quadtree:2")
    id, _ = opened(engine, spec)
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    terms = CollectionTerms.decode(engine.devices.terms(id))
    announced = RoundAnnouncement.decode(engine.devices.announcement(id, 1))
    generator = np.random.default_rng(2)
    refused = 0

    async def attack(phase, own):
        nonlocal refused
        for device, body in own.items():
            others = [other for which, other in own.items() if which != device]
            for wrong in (*mutations(body, generator), *others, *crowd.answers.values()):
                if wrong == body:
                    continue
                refused += 1
                with contextlib.suppress(Conflict, Invalid):
                    await engine.devices.message(id, 1, phase, device, wrong)
                    refused -= 1
            await engine.devices.message(id, 1, phase, device, body)

    for phase in ("keys", "shares", "inputs", "consents", "answers"):
        own = {d: crowd._answer(engine, id, terms, announced, 1, phase, d) for d in range(1, 7)}
        # First everybody's own, so that a mutation that is a message too finds its place taken.
        for device, body in own.items():
            asyncio.run(engine.devices.message(id, 1, phase, device, body))
        asyncio.run(attack(phase, own))
        engine.tick()
    assert engine.collection(id)["state"] == "done"
    ((total, included),) = totals_of(sqlite_store, id).values()
    assert included == 6
    assert np.array_equal(total, sum(crowd.vectors[d, 1] for d in range(1, 7)))
    assert refused > 5 * 6 * 30
