"""Retention: who took part in a collection is deleted some days after its end.

Documents, charges, results and the audit log stay. The log keeps the number of devices of each charge and the digest of
their numbers, so from then on it is the only witness of who was charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, delete, exists, insert, inspect, select
from sqlalchemy.engine import Connection

from mapveil.collector.clock import time_text
from mapveil.collector.rounds.collection import find, now_text, present
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
)
from mapveil.collector.store.work_queue import Task, Work, order

FORGET: Final = "collection.forget"
"""Action of the audit line of a deletion; its detail is the number of devices that took part."""


def due(store: Store, days: int) -> list[str]:
    """Collections that ended so many days ago, and of which it is still known who took part."""
    until = time_text(store.clock.now() - timedelta(days=days))
    over = collections.c.ended_at < until, ~exists().where(retired.c.collection == collections.c.id)
    with store.read() as connection:
        return list(connection.execute(select(collections.c.id).where(*over)).scalars())


def begin(connection: Connection, identifier: str) -> None:
    """Keep the number of devices that took part, and order that the rest is deleted."""
    lock_collection(connection, identifier)
    known = select(retired.c.collection).where(retired.c.collection == identifier)
    if connection.execute(known).first() is not None:  # another process was faster
        return
    devices = present(connection, find(connection, identifier))
    row = {"collection": identifier, "devices": devices, "at": now_text(connection)}
    connection.execute(insert(retired).values(**row))
    order(connection, [Work(Task.FORGET, identifier)])
    audit.record(connection, "service", FORGET, identifier, devices=devices)


def retired_collections(connection: Connection) -> dict[str, int]:
    """Collections whose participants are deleted, and how many devices took part in each."""
    if not inspect(connection).has_table(retired.name):  # of a Mapveil that deleted none
        return {}
    return {row.collection: row.devices for row in connection.execute(select(retired))}


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
    for key in (members.c.device, reports.c.device, report_ids.c.report):
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
