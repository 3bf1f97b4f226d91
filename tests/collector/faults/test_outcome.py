"""The checks of a collection that has ended fail where they must: another sum, a missing account, a charge too many."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sqlalchemy import delete, insert, select, update

from mapveil.collector.clock import SystemClock
from mapveil.collector.rounds.plan_replay import TOTAL
from mapveil.collector.store import schema
from mapveil.collector.store.database import Store
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.memory import DeviceMemory
from mapveil_client.vault import Vault

from .outcome import outcome_of
from .scene import KEY, Scene


def another_sum(connection, scene: Scene) -> None:
    row = connection.execute(select(schema.rounds)).one()
    total = np.frombuffer(row.total, dtype=TOTAL).copy()
    total[np.argmax(total)] += RoundAnnouncement.decode(row.announcement).scale  # one person more
    connection.execute(update(schema.rounds).values(total=total.tobytes()))


def a_charge_too_many(connection, scene: Scene) -> None:
    row = dict(connection.execute(select(schema.charges)).mappings().one())
    connection.execute(insert(schema.charges).values({**row, "number": 2}))


def somebody_who_was_not_in_it(connection, scene: Scene) -> None:
    device = connection.execute(select(schema.assignments.c.device)).scalars().first()
    connection.execute(delete(schema.assignments).where(schema.assignments.c.device == device))


def an_account_without_the_charge(connection, scene: Scene) -> None:
    memory = DeviceMemory.open(Vault(scene.folder / "fleet" / "device-000003.vault", KEY))
    for entry in memory.account.entries.values():
        entry.charges.clear()
    memory.save()


@pytest.mark.parametrize(
    "change",
    [another_sum, a_charge_too_many, somebody_who_was_not_in_it, an_account_without_the_charge],
    ids=lambda change: change.__name__,
)
def test_what_does_not_add_up_is_found(scene: Scene, change: Callable[..., None]) -> None:
    service = scene.service()
    collection = scene.open(service, devices=6, minimum=6)
    scene.fleet(service.url, collection, range(6)).wait()
    assert outcome_of(scene, service, collection).included == (6,)
    store = Store(scene.store, clock=SystemClock())
    with store.write() as connection:
        change(connection, scene)
    store.close()
    with pytest.raises((AssertionError, KeyError)):
        outcome_of(scene, service, collection)
