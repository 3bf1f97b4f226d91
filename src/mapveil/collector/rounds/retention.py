"""Retention: the rows of who took part in a collection are deleted some days after its end.

Documents, charges, results and the audit log stay. The log keeps the number of devices of each charge and the digest of
their numbers, so from then on it is the only witness of who was charged.

The log still reveals some of it: lines ``device.fault`` and ``shard.fail`` name a device and the collection. The digest
has a salt, which is deleted with the rows; without one, as of an earlier Mapveil, it can be searched for the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import Column, ColumnElement, delete, exists, insert, select
from sqlalchemy.engine import Connection

from mapveil.collector.clock import time_text
from mapveil.collector.rounds.collection import find, now_text, present
from mapveil.collector.rounds.reconciliation import FORGET, reconcile
from mapveil.collector.store import audit_log as audit
from mapveil.collector.store.database import Store, lock_collection
from mapveil.collector.store.schema import (
    assignments,
    collections,
    members,
    report_ids,
    reports,
    retired,
    rounds,
    salts,
)
from mapveil.collector.store.work_queue import Task, Work, order


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


def delete_participants(store: Store, identifier: str, rows: int, stopping: Callable[[], bool]) -> bool:
    """Delete who took part, so many rows in a transaction, so that others' writes wait for no million.

    Returns
    -------
    bool
        Whether all are deleted; else ``stopping`` said to stop, and another call goes on.
    """
    for key, of_part in _parts(store, identifier):
        last: Any = None
        while True:
            if stopping():
                return False
            with store.write() as connection:
                last = _delete_some(
                    connection, key, [*of_part, *([] if last is None else [key > last])], rows
                )
            if last is None:
                break
    return True


def _parts(store: Store, identifier: str) -> Iterator[tuple[Column[Any], list[ColumnElement[bool]]]]:
    """The tables of who took part, and of assignments each round: the key of their rows, and which rows these are."""
    for key in (members.c.device, reports.c.device, report_ids.c.report, salts.c.number):
        yield key, [key.table.c.collection == identifier]
    of_rounds = select(rounds.c.number).where(rounds.c.collection == identifier)
    with store.read() as connection:
        numbers = connection.execute(of_rounds).scalars().all()
    for number in numbers:
        yield assignments.c.device, [assignments.c.collection == identifier, assignments.c.round == number]


def _delete_some(
    connection: Connection, key: Column[Any], here: list[ColumnElement[bool]], rows: int
) -> Any | None:
    """Delete the first rows; the key of the last one, None where there are no more."""
    last = connection.execute(select(key).where(*here).order_by(key).offset(rows - 1).limit(1)).scalar()
    here = here if last is None else [*here, key <= last]
    connection.execute(delete(key.table).where(*here))
    return last
