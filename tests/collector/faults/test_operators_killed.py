"""``kill -9`` of the leader and of the helper at random moments of one collection by both of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select

from mapveil.collector.clock import SystemClock
from mapveil.collector.operators.plan_answers import TOTAL
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.store import schema
from mapveil.collector.store.database import Store

from .scene import Scene, Service, cell_of, until
from .test_server_killed import Killer
from .wire import Request, Send, Wire

KILLS = 20 if "MAPVEIL_FAULT_SEEDS" in os.environ else 2
"""Of each operator; half of the leader's while devices report."""

KEY = re.compile("its key: ([0-9a-f]{64})")
DEVICES = 24
EPSILON = 9
MOMENTS = ("jobs/1", "jobs/1/closing", "answers/1", "end")


class Between:
    """Kills an operator at requests from the leader to the helper that a seed chooses; each is made again."""

    def __init__(self, leader: Service, helper: Service, seed: int) -> None:
        draw = self._random = random.Random(seed)
        victims = [leader] * (KILLS // 2) + [helper] * KILLS
        draw.shuffle(victims)
        self._left: dict[str, list[Service]] = {moment: [] for moment in MOMENTS}
        for victim in victims:
            self._left[draw.choice(MOMENTS)].append(victim)
        self._one_at_a_time = asyncio.Lock()
        self.kills: Counter[int] = Counter()  # by the port of the victim

    async def carry(self, request: Request, send: Send) -> bytes | None:
        moment = request.path.split("/", 4)[-1]
        async with self._one_at_a_time:
            if not self._left.get(moment):
                return await send(request)
            victim = self._left[moment].pop()
            self.kills[victim.port] += 1
            when = self._random.choice(("before", "during", "after"))
            sent = None if when == "before" else asyncio.ensure_future(send(request))
            if sent is not None:
                await asyncio.wait(
                    [sent], timeout=self._random.uniform(0, 0.02) if when == "during" else None
                )
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
            if sent is not None:
                await sent
            return None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[Any]:
    store = Store(str(path), clock=SystemClock())
    try:
        with store.read() as connection:
            yield connection
    finally:
        store.close()


def test_operators_that_are_killed_at_random_moments_make_the_same_sums(
    scene_on: Callable[[str], Scene], tmp_path: Path
) -> None:
    """Every report is in the sums once, and both operators charged the one answer once."""
    key = tmp_path / "peer.key"
    key.touch(0o600)
    key.write_text("5a" * 32)
    stores = [tmp_path / f"{name}.sqlite" for name in ("leader", "helper")]
    leading, helping = (scene_on(str(store)) for store in stores)
    helper = helping.service("--operator", "helper", "--peer-key", str(key))
    with Wire([helper.port]) as peer:
        leader = leading.service("--operator", "leader", "--peer", peer.url, "--peer-key", str(key))
        # A service that can be connected to may not have told its key yet.
        until(lambda: KEY.search(helper.log), "the helper tells its key")
        found = KEY.search(helper.log)
        assert found
        collection = leading.open(
            leader, trust="operators", epsilon=str(EPSILON), devices=DEVICES, minimum=DEVICES, options={}
        )
        between = Between(leader, helper, seed=1)
        peer.carry = between.carry
        killer = Killer([leader], KILLS // 2, DEVICES, seed=1)
        with Wire([leader.port], killer.carry) as wire:
            leading.fleet(wire.url, collection, range(DEVICES), helper=found[1]).wait()
        assert len(killer.kills) == KILLS // 2

        def over() -> bool:
            # The helper may know of the end before the leader knows that it does.
            if sum(between.kills.values()) < KILLS // 2 + KILLS:
                return False
            with reading(stores[1]) as connection:
                return connection.execute(select(schema.collections.c.state)).scalar() == "done"

        until(over, "every kill is done and the helper knows of the end")
        assert leading.progress(leader, collection)["state"] == "done"
        assert between.kills == {leader.port: KILLS // 2, helper.port: KILLS}
    plain = np.bincount([cell_of(index) for index in range(DEVICES)], minlength=16)
    given: list[Any] = []
    for store in stores:
        with reading(store) as connection:
            assert reconcile(connection).problems == []
            charges = connection.execute(select(schema.charges.c.number, schema.charges.c.epsilon)).all()
            assert [(each.number, Fraction(each.epsilon)) for each in charges] == [(1, EPSILON)]
            task = connection.execute(select(schema.tasks)).one()
            assert (task.accepted, task.refused, bytes(task.sums)) == (DEVICES, "{}", b"")
            known = connection.execute(select(func.count()).select_from(schema.report_ids)).scalar()
            assert known == DEVICES
            (answer,) = connection.execute(select(schema.answers)).all()
            given.append(answer)
    assert given[0].query == given[1].query
    total = np.frombuffer(bytes(given[0].total), dtype=TOTAL)
    assert np.abs(total - plain).max() <= 3, "noise of 4 or more has odds of 10^-13 at this epsilon"
    for memory in leading.memories().values():
        assert memory.account.entries[collection].charges == {0: Fraction(EPSILON)}
    assert "Traceback" not in leader.log + helper.log
