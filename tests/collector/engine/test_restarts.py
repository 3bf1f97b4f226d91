"""Killed at every commit, before or after it: the same sums, the same charges, the same log as without."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.schema import charges, messages
from mapveil.privacy.claim import AccountReference
from mapveil_client.randomness.random import Randomness
from tests.authority import AUTHORITY

SIX = {
    "devices": 6,
    "tiling": "quadtree:2",
    "method": "adaptive-grid",
    "epsilon": "50",
    "accept_large_epsilon": True,
    "options": {"shard_size": 6, "tolerated_dropout": 0.34, "corrupt": 0},
}
LEAVES = {2: (1, "inputs"), 5: (2, "consents")}


def outcome(store, engine, id, totals_of):
    with store.read() as connection:
        charged = connection.execute(
            select(charges.c.number, charges.c.epsilon, charges.c.devices).order_by(charges.c.number)
        ).all()
        left = connection.execute(select(messages.c.client)).all()
    said = [(line.actor, line.action) for line in engine.audit(0, 1000, id)]
    sums = {number: (total.tolist(), count) for number, (total, count) in totals_of(store, id).items()}
    return sums, [tuple(row) for row in charged], said, left, engine.collection(id)["spent"]


# What was committed but not acknowledged is sent again, so every other process lives one commit longer.
@pytest.mark.parametrize(
    ("dies_at", "after"), [((1, 2), True), ((2, 2), False)], ids=["after a commit", "before a commit"]
)
def test_a_process_that_dies_at_every_commit_changes_nothing(
    tmp_path, clock, crowd_of, opened, make_spec, mortal_store, totals_of, dies_at, after
):
    mortal, killed = mortal_store

    def played(name, dies):
        store = mortal(str(tmp_path / name), clock=clock)
        store.create_tables()
        crowd = crowd_of(store, 6)
        crowd.leaves = dict(LEAVES)
        engine = Engine(store, clock, Randomness(7), authority=AUTHORITY)
        id, _ = opened(engine, make_spec("distributed", **SIX))
        lives = 1
        while True:
            store.dies_at, store.after, store.commits = (dies_at[lives % 2] if dies else None), after, 0
            assert lives < 400
            try:
                assert crowd.play(engine, id, clock) == "done"
                break
            except killed:
                lives += 1
                store.close()
                store = mortal(str(tmp_path / name), clock=clock)
                engine = Engine(store, clock, Randomness(lives), authority=AUTHORITY)
        found = outcome(store, engine, id, totals_of)
        heat = engine.map(id)
        assert heat.guarantee.account == AccountReference((id,))
        store.close()
        return found, heat, lives

    plain, heat, once = played("plain", False)
    again, heat_again, lives = played("mortal", True)
    assert once == 1
    assert lives > 40
    assert again == plain
    assert np.array_equal(heat.values, heat_again.values)
    # The two collections have identifiers of their own, and so entries of their own in the account.
    assert heat.guarantee == replace(heat_again.guarantee, account=heat.guarantee.account)
    sums, charged, said, left, _ = plain
    assert len(sums) == len(charged) == 2
    assert [count for _, count in sums.values()] == [5, 5]
    assert said.count(("service", "collection.charge")) == 2
    assert left == []


@pytest.mark.parametrize("after", [False, True])
def test_reports_survive_a_process_that_dies_at_every_commit(
    tmp_path, clock, crowd_of, opened, make_spec, mortal_store, after
):
    mortal, killed = mortal_store
    store = mortal(str(tmp_path / "store"), clock=clock)
    store.create_tables()
    crowd = crowd_of(store, 5)
    engine = Engine(store, clock, authority=AUTHORITY)
    id, terms = opened(engine, make_spec("local", devices=5))
    bodies = crowd.local_reports(terms)
    lives, acknowledged = 0, set()
    while engine.collection(id)["state"] != "done":
        lives += 1
        assert lives < 50
        store.close()
        dies_at = 1 + lives % 2 if after else 2
        store = mortal(str(tmp_path / "store"), clock=clock, dies_at=dies_at, after=after)
        engine = Engine(store, clock, authority=AUTHORITY)
        try:
            for device, body in enumerate(bodies, 1):
                if device not in acknowledged:
                    asyncio.run(engine.devices.report(id, device, body))
                    acknowledged.add(device)
            engine.tick()
        except killed:
            continue
    record = engine.collection(id)
    assert lives >= 5
    assert record["reports"] == 5
    assert record["spent"] == "2"
    with store.read() as connection:
        assert connection.execute(select(charges.c.devices)).scalars().all() == [5]
    store.close()
