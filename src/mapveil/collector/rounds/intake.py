"""Writers of what devices send: members, reports and messages, a batch of each in one transaction.

Within a transaction the collection's row is locked shared, so that closing a phase waits for it, and no
message is accepted after its phase was closed. PostgreSQL does it in the statement that inserts: it waits for
whoever closes the phase, and then looks at both rows as they are, for which both must be locked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from sqlalchemy import Table, select, tuple_, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from mapveil.collector.rounds.collection import now_text
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.database import lock_collection
from mapveil.collector.store.schema import collections, members, messages, reports, rounds
from mapveil_client.secure_sum.states import ServerState

Key = tuple[int, ...]
_ROWS: Final = 200  # of one statement: SQLite accepts 32,766 parameters


class Kept(Enum):
    """Outcome of an item that a device sent."""

    NEW = "new"
    AGAIN = "again"  # the same was stored before
    CONFLICT = "conflict"  # something else was stored before
    LATE = "late"
    REPLAYED = "replayed"  # another device sent it before
    FULL = "full"  # as many devices as are expected have joined


class Message(NamedTuple):
    """A message of a phase, checked."""

    shard: int
    client: int
    body: bytes


class Report(NamedTuple):
    """A report, checked."""

    device: int
    body: bytes


@dataclass(frozen=True)
class KeepMembers:
    """Let devices join a collection that is open, until ``expected`` have joined."""

    collection: str
    expected: int

    def __call__(self, connection: Connection, batch: Sequence[int]) -> list[Kept]:
        """Outcome of each device, by its number."""
        is_open = lock_collection(connection, self.collection) == State.OPEN
        of_collection = members.c.collection == self.collection
        there = select(members.c.device).where(of_collection, members.c.device.in_(batch))
        known = set(connection.execute(there).scalars())
        if not is_open:
            return [Kept.AGAIN if device in known else Kept.LATE for device in batch]
        here = collections.c.id == self.collection
        joined = connection.execute(select(collections.c.joined).where(here)).scalar_one()
        left = max(0, self.expected - joined)
        new = set([device for device in dict.fromkeys(batch) if device not in known][:left])
        if new:
            at = now_text(connection)
            row = {"collection": self.collection, "joined_at": at}
            connection.execute(members.insert(), [{**row, "device": device} for device in sorted(new)])
            connection.execute(update(collections).where(here).values(joined=collections.c.joined + len(new)))
        return [Kept.AGAIN if each in known else Kept.NEW if each in new else Kept.FULL for each in batch]


@dataclass(frozen=True)
class KeepReports:
    """Keep reports of a collection that is open."""

    collection: str

    def __call__(self, connection: Connection, batch: Sequence[Report]) -> list[Kept]:
        """Outcome of each report."""
        return keep_reports(connection, self.collection, batch)


def keep_reports(connection: Connection, collection: str, batch: Sequence[Report]) -> list[Kept]:
    """Insert each device's first report, if the collection is open; return the outcome of each."""

    def is_open() -> bool:
        return lock_collection(connection, collection, shared=True) == State.OPEN

    return _keep(connection, _REPORTS, {"collection": collection}, batch, is_open)


@dataclass(frozen=True)
class KeepMessages:
    """Keep messages of a phase that is open."""

    collection: str
    number: int
    phase: ServerState

    def __call__(self, connection: Connection, batch: Sequence[Message]) -> list[Kept]:
        """Outcome of each message."""
        scope = {"collection": self.collection, "round": self.number, "phase": self.phase.value}
        here = rounds.c.collection == self.collection, rounds.c.number == self.number
        open_phase = select(rounds.c.phase).where(*here, rounds.c.open)

        def is_open() -> bool:
            lock_collection(connection, self.collection, shared=True)
            return connection.execute(open_phase).scalar() == self.phase.value

        return _keep(connection, _MESSAGES, scope, batch, is_open)


class _Kind(NamedTuple):
    """What is kept of a kind of items."""

    table: Table
    names: tuple[str, ...]  # columns of an item's key, within its scope
    accepted: str  # PostgreSQL's query of a row where items of a scope are accepted, which locks what that follows from


_REPORTS: Final = _Kind(
    reports,
    ("device",),
    f"SELECT FROM collections WHERE id = %(collection)s AND state = '{State.OPEN}' FOR SHARE",
)
_MESSAGES: Final = _Kind(
    messages,
    ("shard", "client"),
    "SELECT FROM collections JOIN rounds ON collection = id WHERE id = %(collection)s AND number = %(round)s "
    "AND phase = %(phase)s AND open FOR SHARE",
)


def _keep(
    connection: Connection,
    kind: _Kind,
    scope: dict[str, Any],
    batch: Sequence[Any],
    is_open: Callable[[], bool],
) -> list[Kept]:
    """Insert the items whose key is free, if anything is accepted; return the outcome of each."""
    if not batch:
        return []
    table, names, _ = kind
    columns = [table.c[name] for name in names]
    keys = [tuple(item)[:-1] for item in batch]
    first: dict[Key, bytes] = {}
    for key, item in zip(keys, batch, strict=True):
        first.setdefault(key, item.body)
    if connection.dialect.name == "postgresql":
        new = _insert_accepted(connection, kind, scope, first)
        accepts = len(new) == len(first) or is_open()
    else:
        accepts = is_open()
        new = _insert(connection, kind, scope, first) if accepts else set()
    # An item that is not new was sent before, or comes twice in one batch.
    doubtful = sorted(key for key in first if key not in new)
    there = {key: first[key] for key in new}
    for start in range(0, len(doubtful), _ROWS):
        query = select(*columns, table.c.body).where(
            *(table.c[name] == value for name, value in scope.items()),
            tuple_(*columns).in_(doubtful[start : start + _ROWS]),
        )
        there.update({tuple(row)[:-1]: row.body for row in connection.execute(query)})
    outcomes: list[Kept] = []
    for key, item in zip(keys, batch, strict=True):
        held = there.get(key)
        if held is not None and held == item.body:
            outcomes.append(Kept.NEW if key in new else Kept.AGAIN)
        else:
            outcomes.append(Kept.LATE if held is None or not accepts else Kept.CONFLICT)
    return outcomes


def _insert_accepted(
    connection: Connection, kind: _Kind, scope: dict[str, Any], bodies: dict[Key, bytes]
) -> set[Key]:
    """On PostgreSQL, insert the bodies that are accepted and whose key is free, by one statement; return those keys."""
    table, names, accepted = kind
    keys = ", ".join(names)
    arrays = {name: list(column) for name, column in zip(names, zip(*bodies, strict=True), strict=True)}
    casts = [*(f"%({name})b::integer[]" for name in names), "%(body)b::bytea[]"]
    statement = (
        f"WITH accepted AS MATERIALIZED ({accepted}) "
        f"INSERT INTO {table.name} ({', '.join(scope)}, {keys}, body) "
        f"SELECT {''.join(f'%({name})s, ' for name in scope)}sent.* FROM accepted, unnest({', '.join(casts)}) AS sent "
        f"ON CONFLICT DO NOTHING RETURNING {keys}"
    )
    given = {**scope, **arrays, "body": list(bodies.values())}
    return {tuple(row) for row in connection.exec_driver_sql(statement, given)}


def _insert(connection: Connection, kind: _Kind, scope: dict[str, Any], bodies: dict[Key, bytes]) -> set[Key]:
    """On SQLite, insert the bodies whose key is free, by one statement of the driver; return those keys."""
    table, names, _ = kind
    columns = (*scope, *names, "body")
    row = f"({', '.join('?' * len(columns))})"
    fixed = tuple(scope.values())
    flat = tuple(value for key, body in bodies.items() for value in (*fixed, *key, body))
    into = f"INSERT INTO {table.name} ({', '.join(columns)})"
    try:
        connection.exec_driver_sql(f"{into} VALUES {', '.join([row] * len(bodies))}", flat)
    except IntegrityError:  # which undid the statement: some are there
        some = sqlite.insert(table).on_conflict_do_nothing().returning(*(table.c[name] for name in names))
        rows = [{**scope, **dict(zip(names, key, strict=True)), "body": body} for key, body in bodies.items()]
        return {tuple(row) for row in connection.execute(some, rows)}
    return set(bodies)
