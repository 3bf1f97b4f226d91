"""Retention: messages are deleted after their round, and who took part in a collection some days after its end.

Documents, charges, results and the audit log stay. The log keeps the number of devices of each charge and the digest of
their numbers, so from then on it is the only witness of who was charged.

The log still reveals some of it: lines ``device.fault`` and ``shard.fail`` name a device and the collection. The digest
has a salt, which is deleted with the rows; without one, as of an earlier Mapveil, it can be searched for the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, delete, exists, insert, select, tuple_

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
)
from mapveil.collector.store.work_queue import Task, Work, order
from mapveil_client.secure_sum.states import ServerState


class RowRange(NamedTuple):
    """Rows of a table."""

    key: tuple[Column[Any], ...]  # of a row, under the conditions
    conditions: tuple[ColumnElement[bool], ...]


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


def delete_rows(store: Store, ranges: Iterable[RowRange], rows: int, over: Callable[[], bool]) -> bool:
    """Delete rows, so many in a transaction, so that others' writes wait for no million.

    Returns
    -------
    bool
        Whether all are deleted; else ``over`` said to stop, and another call goes on.
    """
    for key, conditions in ranges:
        for page in store.pages(select(*key).where(*conditions), rows, *key):
            of_page = tuple_(*key) >= tuple(page[0]), tuple_(*key) <= tuple(page[-1])
            with store.write() as connection:
                connection.execute(delete(key[0].table).where(*conditions, *of_page))
            if over():
                return False
    return True


def participants_of(store: Store, identifier: str) -> Iterator[RowRange]:
    """The rows of who took part in a collection."""
    for key in (members.c.device, reports.c.device, report_ids.c.report, salts.c.number):
        yield RowRange((key,), (key.table.c.collection == identifier,))
    of_rounds = select(rounds.c.number).where(rounds.c.collection == identifier)
    with store.read() as connection:
        numbers = connection.execute(of_rounds).scalars().all()
    for number in numbers:
        yield RowRange((assignments.c.device,), of_round(assignments, identifier, number))


def messages_of(identifier: str, number: int) -> Iterator[RowRange]:
    """The messages of a round by phases; at first the masked inputs, which are made of locations."""
    here = of_round(messages, identifier, number)
    for phase in sorted(ServerState, key=lambda each: each is not ServerState.INPUTS):
        of_phase = (*here, messages.c.phase == phase.value)
        yield RowRange((messages.c.shard, messages.c.client), of_phase)
