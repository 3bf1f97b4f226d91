"""Retention: messages are deleted after their round, and who took part in a collection some days after its end.

Documents, charges, results and the audit log stay. The log keeps the number of devices of each charge and the digest of
their numbers, so from then on it is the only witness of who was charged.

The log still reveals some of it: lines ``device.fault`` and ``shard.fail`` name a device and the collection. The digest
has a salt, which is deleted with the rows; without one, as of an earlier Mapveil, it can be searched for the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import Column, ColumnElement, delete, exists, insert, select

from mapveil.collector.clock import time_text
from mapveil.collector.rounds.charged_devices import of_round
from mapveil.collector.rounds.collection import find, now_text, present
from mapveil.collector.rounds.reconciliation import FORGET, reconcile
from mapveil.collector.store import audit_log as audit
from mapveil.collector.store.database import Store, lock_collection
from mapveil.collector.store.schema import (
    assignments,
    collections,
    members,
    messages,
    report_ids,
    reports,
    retired,
    rounds,
    salts,
    shards,
)
from mapveil.collector.store.work_queue import Task, Work, order
from mapveil_client.secure_sum.states import ServerState

Part = tuple[Column[Any], list[ColumnElement[bool]]]
"""The key of a table's rows, and conditions on those that are meant."""


def due(store: Store, days: int) -> list[str]:
    """Collections that ended so many days ago and are not retired; the oldest first."""
    until = time_text(store.clock.now() - timedelta(days=days))
    over = collections.c.ended_at < until, ~exists().where(retired.c.collection == collections.c.id)
    with store.read() as connection:
        found = select(collections.c.id).where(*over).order_by(collections.c.ended_at, collections.c.id)
        return list(connection.execute(found).scalars())


def begin(store: Store, identifier: str) -> list[str]:
    """Keep the number of devices that took part in a collection that has ended, and order that the rest is deleted.

    Returns
    -------
    list of str
        Problems of the collection's charges. Where there are any, nothing is ordered: the rows are their evidence.
    """
    with store.read() as connection:  # apart from the write, which others wait for: these rows change no more
        problems = reconcile(connection, identifier).problems
        devices = present(connection, find(connection, identifier))
    if problems:
        return problems
    with store.write() as connection:
        lock_collection(connection, identifier)
        known = select(retired.c.collection).where(retired.c.collection == identifier)
        if connection.execute(known).first() is None:  # else another process was faster
            row = {"collection": identifier, "devices": devices, "at": now_text(connection)}
            connection.execute(insert(retired).values(**row))
            order(connection, [Work(Task.FORGET, identifier)])
            audit.record(connection, "service", FORGET, identifier, devices=devices)
    return []


def delete_parts(store: Store, parts: Iterable[Part], rows: int, stopping: Callable[[], bool]) -> bool:
    """Delete rows, so many in a transaction, so that others' writes wait for no million.

    Returns
    -------
    bool
        Whether all are deleted; else ``stopping`` said to stop, and another call goes on.
    """
    for key, of_part in parts:
        for page in store.pages(select(key).where(*of_part), key, rows):
            if stopping():
                return False
            of_page = key.between(page[0][0], page[-1][0])
            with store.write() as connection:
                connection.execute(delete(key.table).where(*of_part, of_page))
    return True


def parts_of_participants(store: Store, identifier: str) -> Iterator[Part]:
    """Who took part in a collection: whole tables, and of assignments each round."""
    for key in (members.c.device, reports.c.device, report_ids.c.report, salts.c.number):
        yield key, [key.table.c.collection == identifier]
    of_rounds = select(rounds.c.number).where(rounds.c.collection == identifier)
    with store.read() as connection:
        numbers = connection.execute(of_rounds).scalars().all()
    for number in numbers:
        yield assignments.c.device, [*of_round(assignments, identifier, number)]


def parts_of_messages(store: Store, identifier: str, number: int) -> Iterator[Part]:
    """The messages of a round, each phase of a shard; at first the masked inputs, which are made of locations."""
    of_shards = select(shards.c.shard).where(*of_round(shards, identifier, number)).order_by(shards.c.shard)
    with store.read() as connection:
        numbers = connection.execute(of_shards).scalars().all()
    here = of_round(messages, identifier, number)
    phases = (each for each in ServerState if each.value < ServerState.DONE.value)
    for phase in sorted(phases, key=lambda each: each is not ServerState.INPUTS):
        for shard in numbers:
            yield messages.c.client, [*here, messages.c.phase == phase.value, messages.c.shard == shard]
