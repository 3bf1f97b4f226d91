"""Taking what devices send: many at once in one transaction, each acknowledged only after the commit.

While one batch is being committed the next one gathers. Within a batch the collection's row is locked shared, so that
whoever closes a phase waits for it, and no message is accepted after what it belongs to was closed.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Hashable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from sqlalchemy import Table, func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from mapveil.collector.rounds.collection import now_text
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.database import Store, lock_collection
from mapveil.collector.store.schema import collections, members, messages, reports, rounds
from mapveil_client.secure_sum.states import ServerState

Item = TypeVar("Item", contravariant=True)


_MOST: Final = 512
_ROWS: Final = 200  # of one statement: SQLite accepts 32,766 parameters


class Kept(Enum):
    """What became of something that was sent."""

    NEW = "new"
    AGAIN = "again"  # it was there already, the same
    CONFLICT = "conflict"  # something else was there
    LATE = "late"
    FULL = "full"  # there are as many as are wanted


class Message(NamedTuple):
    """A message of a phase, checked."""

    shard: int
    client: int
    body: bytes


class Report(NamedTuple):
    """A report, checked."""

    device: int
    body: bytes


class Take(Protocol[Item]):
    """Keeps a batch, in a transaction; may be run more than once."""

    def __call__(self, connection: Connection, batch: Sequence[Item]) -> list[Kept]:
        """What became of each."""
        ...


class _Queue(Generic[Item]):
    def __init__(self) -> None:
        self.waiting: list[tuple[Item, asyncio.Future[Kept]]] = []
        self.task: asyncio.Task[None] | None = None


class Intake:
    """Gathers what is sent into batches.

    Parameters
    ----------
    store : Store
        Where it goes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Futures belong to their loop, and so do queues.
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Queue[Any]]] = (
            weakref.WeakKeyDictionary()
        )

    async def put(self, key: Hashable, item: Item, take: Take[Item]) -> Kept:
        """Have ``take`` keep an item, together with others of the same key; returns once it is durable.

        Raises
        ------
        StoreUnavailable
            The store cannot be written now; sending it again is safe.
        """
        loop = asyncio.get_running_loop()
        queues = self._queues.setdefault(loop, {})
        queue = queues.setdefault(key, _Queue())
        future: asyncio.Future[Kept] = loop.create_future()
        queue.waiting.append((item, future))
        if queue.task is None:
            queue.task = loop.create_task(self._drain(queues, key, take))
        return await future

    async def _drain(self, queues: dict[Hashable, _Queue[Any]], key: Hashable, take: Take[Any]) -> None:
        queue = queues[key]
        try:
            while queue.waiting:
                batch, queue.waiting = queue.waiting[:_MOST], queue.waiting[_MOST:]
                items = [item for item, _ in batch]
                outcomes: Sequence[Kept | BaseException]
                try:
                    outcomes = await self._store.commit(partial(take, batch=items))
                except BaseException as error:  # whatever it is, it belongs to those who wait
                    outcomes = [error] * len(batch)
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if future.done():
                        continue
                    if isinstance(outcome, Kept):
                        future.set_result(outcome)
                    else:
                        future.set_exception(outcome)
        finally:
            del queues[key]


def take_members(connection: Connection, batch: Sequence[int], identifier: str, wanted: int) -> list[Kept]:
    """Let devices join a collection that is open, until there are as many as are wanted."""
    lock_collection(connection, identifier)
    known = set(
        connection.execute(
            select(members.c.device).where(members.c.collection == identifier, members.c.device.in_(batch))
        ).scalars()
    )
    if not _is_open(connection, identifier):
        return [Kept.AGAIN if device in known else Kept.LATE for device in batch]
    count = select(func.count()).select_from(members).where(members.c.collection == identifier)
    left = wanted - int(connection.execute(count).scalar_one())
    fresh = [device for device in dict.fromkeys(batch) if device not in known]
    new = set(fresh[: max(0, left)])
    at = now_text(connection)
    if new:
        rows = [{"collection": identifier, "device": device, "joined_at": at} for device in sorted(new)]
        connection.execute(members.insert(), rows)
    return [Kept.AGAIN if device in known else Kept.NEW if device in new else Kept.FULL for device in batch]


def take_reports(connection: Connection, batch: Sequence[Report], identifier: str) -> list[Kept]:
    """Keep reports of a collection that is open."""
    lock_collection(connection, identifier, shared=True)
    keys = [(report.device,) for report in batch]
    rows = [{"collection": identifier, "device": report.device, "body": report.body} for report in batch]
    scope = {"collection": identifier}
    is_open = _is_open(connection, identifier)
    return _keep(connection, reports, scope, ("device",), keys, rows, is_open)


def take_messages(
    connection: Connection, batch: Sequence[Message], identifier: str, number: int, phase: ServerState
) -> list[Kept]:
    """Keep messages of a phase that is open."""
    lock_collection(connection, identifier, shared=True)
    guard = select(rounds.c.phase, rounds.c.open).where(
        rounds.c.collection == identifier, rounds.c.number == number
    )
    row = connection.execute(guard).first()
    is_open = row is not None and row.open and row.phase == phase.value
    scope = {"collection": identifier, "round": number, "phase": phase.value}
    keys = [(message.shard, message.client) for message in batch]
    rows = [
        {**scope, "shard": message.shard, "client": message.client, "body": message.body} for message in batch
    ]
    return _keep(connection, messages, scope, ("shard", "client"), keys, rows, is_open)


def _is_open(connection: Connection, identifier: str) -> bool:
    state = connection.execute(select(collections.c.state).where(collections.c.id == identifier)).scalar()
    return state == State.OPEN.value


def _keep(
    connection: Connection,
    table: Table,
    scope: dict[str, Any],
    names: tuple[str, ...],
    keys: Sequence[tuple[int, ...]],
    rows: Sequence[dict[str, Any]],
    is_open: bool,
) -> list[Kept]:
    """Insert the rows whose place is free, if anything is accepted; say of each what became of it."""
    columns = [table.c[name] for name in names]
    first: dict[tuple[int, ...], dict[str, Any]] = {}
    for key, row in zip(keys, rows, strict=True):
        first.setdefault(key, row)
    new: set[tuple[int, ...]] = set()
    if is_open:
        dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
        statement = dialect.insert(table).on_conflict_do_nothing().returning(*columns)
        new = {tuple(row) for row in connection.execute(statement, list(first.values()))}
    # What was not new was sent before, or comes twice in one batch.
    doubtful = sorted({key for key in first if key not in new})
    there: dict[tuple[int, ...], bytes] = {key: first[key]["body"] for key in new}
    for start in range(0, len(doubtful), _ROWS):
        part = doubtful[start : start + _ROWS]
        query = select(*columns, table.c.body).where(
            *(table.c[name] == value for name, value in scope.items()), tuple_(*columns).in_(part)
        )
        there.update({tuple(row)[:-1]: row.body for row in connection.execute(query)})
    outcomes: list[Kept] = []
    for key, row in zip(keys, rows, strict=True):
        held = there.get(key)
        if held == row["body"] and held is not None:
            outcomes.append(Kept.NEW if key in new else Kept.AGAIN)
        else:
            outcomes.append(Kept.LATE if held is None or not is_open else Kept.CONFLICT)
    return outcomes
