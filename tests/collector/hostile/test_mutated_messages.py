"""Altered messages in the midst of a collection: each refused, and the sum is that of the honest.

Twenty thousand here, a hundred thousand where ``make faults`` asks for ten seeds.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any, Final

import numpy as np
import pytest
from sqlalchemy import select

from mapveil.collector.refusals import Conflict, Invalid, NotFound, TooLate
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.audit_log import verify
from mapveil.collector.store.schema import charges, messages
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import authorization
from tests.authority import AUTHORITY

from .addresses import shaped
from .mutants import KINDS, Mutants, Spoken

DEVICES: Final = 24
PHASES: Final = ("keys", "shares", "inputs", "consents", "answers")
MUTANTS: Final = 10_000 * int(os.environ.get("MAPVEIL_FAULT_SEEDS", "2"))
STRANGER: Final = DEVICES + 1
AT_ONCE: Final = 500
OVER_HTTP: Final = 500


def spoken(crowd: Any) -> list[Spoken]:
    """Everything a crowd has said so far."""
    return [Spoken(*key, body) for key, body in crowd.answers.items()]


def stored(store: Any) -> dict[tuple[int, ...], bytes]:
    with store.read() as connection:
        return {tuple(row)[:-1]: row.body for row in connection.execute(select(messages))}


def charged(store: Any) -> list[Any]:
    with store.read() as connection:
        return list(connection.execute(select(charges.c.number, charges.c.epsilon)))


class Attack:
    """Sends altered messages into one phase of one round, and counts what becomes of them."""

    def __init__(self, engine: Engine, id: str, mutants: Mutants, honest: list[Spoken]) -> None:
        self.engine, self.id, self.mutants = engine, id, mutants
        self.honest = {(each.device, each.round, each.phase): each.body for each in honest}
        self.outcomes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.said: set[str] = set()

    async def send(self, count: int, number: int, phase: str, among: list[Spoken]) -> None:
        for _ in range(count // AT_ONCE):
            await asyncio.gather(*(self._one(number, phase, among) for _ in range(AT_ONCE)))

    async def _one(self, number: int, phase: str, among: list[Spoken]) -> None:
        base = self.mutants.pick(among)
        kind, body = self.mutants.alter(base.body)
        device = base.device if self.mutants.below(4) else 1 + self.mutants.below(STRANGER)
        where = (number, phase)
        if not self.mutants.below(8):
            where = (1 + self.mutants.below(3), PHASES[self.mutants.below(len(PHASES))])
        self.kinds[kind] += 1
        try:
            await self.engine.devices.message(self.id, *where, device, body)
        except (Invalid, Conflict, NotFound, TooLate) as refusal:
            self.outcomes[type(refusal).__name__] += 1
            self.said.add(str(refusal))
        else:
            # Taken only where it is what this device said there, byte for byte.
            assert self.honest[(device, *where)] == body
            self.outcomes["again"] += 1


@pytest.mark.parametrize("phase", PHASES)
def test_altered_messages_change_nothing_whatever_phase_they_come_in(
    sqlite_store: Any, clock: Any, crowd_of: Any, opened: Any, make_spec: Any, totals_of: Any, phase: str
) -> None:
    engine = Engine(sqlite_store, clock, Randomness(7), authority=AUTHORITY)
    crowd = crowd_of(sqlite_store, STRANGER)
    elsewhere, _ = opened(engine, make_spec("distributed", title="another", devices=DEVICES))
    id, _ = opened(engine, make_spec("distributed", devices=DEVICES))
    # The same devices in another collection: their messages there are right in every way but for where they belong.
    corpus: list[Spoken] = []
    for each in (elsewhere, id):
        crowd.joined, crowd.answers, crowd.acknowledged, crowd.clients = set(), {}, set(), {}
        asyncio.run(crowd.turn(engine, each))
        engine.tick()
        crowd.play_until(engine, each, phase)
        asyncio.run(crowd.turn(engine, each))
        corpus += spoken(crowd)
    here = [each for each in spoken(crowd) if each.phase == phase]
    before, fingerprints, spent = stored(sqlite_store), machines(engine, id), charged(sqlite_store)
    attack = Attack(engine, id, Mutants(PHASES.index(phase), corpus), spoken(crowd))
    asyncio.run(attack.send(MUTANTS // len(PHASES), 1, phase, here))
    assert stored(sqlite_store) == before
    assert machines(engine, id) == fingerprints
    assert charged(sqlite_store) == spent
    assert set(attack.kinds) == set(KINDS)
    assert all(text.isprintable() and len(text) < 300 for text in attack.said)
    assert attack.outcomes["Invalid"] > MUTANTS // len(PHASES) // 2
    assert all(attack.outcomes[name] for name in ("NotFound", "again")), attack.outcomes
    crowd.play(engine, id, clock)
    record = engine.collection(id)
    assert (record["state"], record["spent"]) == ("done", "2"), record["reason"]
    total, included = totals_of(sqlite_store, id)[1]
    assert included == DEVICES
    assert np.array_equal(total, sum(crowd.vectors[d, 1] for d in range(1, DEVICES + 1)))
    with sqlite_store.read() as connection:
        verify(connection)


def test_altered_messages_over_http_are_refused_in_words(api: Any, crowd_of: Any, totals_of: Any) -> None:
    """A sample of them, signed rightly: by whom they are from, by others, and by devices that were not asked."""
    api.enrolment()
    crowd = crowd_of(api.store, STRANGER)
    id = api.opened(
        trust="distributed", options={"shard_size": 12, "corrupt": 0}, devices=DEVICES, minimum=20
    )
    statuses: Counter[int] = Counter()
    mutants = Mutants(17, [])
    for phase in PHASES:
        while api.engine.devices.progress(id).phase != phase:
            asyncio.run(crowd.turn(api.engine, id))
            api.engine.tick()
        asyncio.run(crowd.turn(api.engine, id))
        mutants.corpus = spoken(crowd)
        here = [each for each in mutants.corpus if each.phase == phase]
        before = stored(api.store), machines(api.engine, id), charged(api.store)
        for _ in range(OVER_HTTP // len(PHASES)):
            base = mutants.pick(here)
            _, body = mutants.alter(base.body)
            if not body or body == base.body:
                continue
            device = base.device if mutants.below(4) else 1 + mutants.below(STRANGER)
            path = f"/v1/collections/{id}/rounds/1/messages/{phase}"
            signed = authorization(crowd.identities[device - 1], device, "PUT", path, body)
            headers = {"Authorization": signed, "Content-Type": "application/cbor"}
            answer = api.client.put(path, content=body, headers=headers)
            if answer.status_code != 204:
                assert shaped(answer) in ("invalid", "conflict", "not-found"), answer.text
                assert answer.json()["error"]["message"].isprintable()
            else:
                assert crowd.answers[device, 1, phase] == body
            statuses[answer.status_code] += 1
        assert (stored(api.store), machines(api.engine, id), charged(api.store)) == before
    assert statuses[422] > OVER_HTTP // 2
    assert crowd.play(api.engine, id, api.clock) == "done"
    total, included = totals_of(api.store, id)[1]
    assert included == DEVICES
    assert np.array_equal(total, sum(crowd.vectors[d, 1] for d in range(1, DEVICES + 1)))


def machines(engine: Engine, id: str) -> list[bytes]:
    held = engine._machines.held(id, 1)
    assert held is not None
    return [machine.server.fingerprint() for machine in held.machines]
