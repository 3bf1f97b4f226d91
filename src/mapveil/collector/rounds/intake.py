"""Writers of what devices send: members, reports and messages, a batch of each in one transaction.

Within a transaction the collection's row is locked shared, and exclusively where joins are counted, so that closing a
phase waits for it, and no message is accepted after its phase was closed. PostgreSQL locks in the statement that
inserts: that statement waits for whoever closes the phase, and then decides by both rows as they are, for which both
must be locked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, Table, bindparam, literal_column, select, tuple_, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import IntegrityError

from mapveil.collector.rounds.collection import now_text
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.database import lock_collection
from mapveil.collector.store.group_commit import Exclusive
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
class KeepMembers(Exclusive):
    """Let devices join a collection that is open, until ``expected`` have joined."""

    collection: str
    expected: int

    def __call__(self, connection: Connection, batch: Sequence[int]) -> list[Kept]:
        """Outcome of each device, by its number."""
        state = select(collections.c.state).where(collections.c.id == self.collection)
        is_open = connection.execute(state).scalar() == State.OPEN
        if is_open:  # else it never is again, and a late device does not wait for whoever closes a phase
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
    return _keep(connection, _REPORTS, {"collection": collection}, batch)


@dataclass(frozen=True)
class KeepMessages:
    """Keep messages of a phase that is open."""

    collection: str
    number: int
    phase: ServerState

    def __call__(self, connection: Connection, batch: Sequence[Message]) -> list[Kept]:
        """Outcome of each message."""
        scope = {"collection": self.collection, "round": self.number, "phase": self.phase.value}
        return _keep(connection, _MESSAGES, scope, batch)


class _Kind(NamedTuple):
    """A kind of items, each in a scope such as a round's phase."""

    table: Table
    scope: tuple[str, ...]  # columns
    names: tuple[str, ...]  # columns of an item's key within its scope
    accepts: Select[Any]  # a row where items of the scope are accepted, locked as long as that is to hold


def _stands(state: State) -> Select[Any]:
    """The collection, if it is in a state."""
    here = collections.c.id == bindparam("collection"), collections.c.state == literal_column(f"'{state}'")
    return select(collections.c.id).where(*here).with_for_update(read=True, of=collections)


_REPORTS: Final = _Kind(reports, ("collection",), ("device",), _stands(State.OPEN))
_MESSAGES: Final = _Kind(
    messages,
    ("collection", "round", "phase"),
    ("shard", "client"),
    _stands(State.RUNNING)
    .join_from(collections, rounds, rounds.c.collection == collections.c.id)
    .where(rounds.c.number == bindparam("round"), rounds.c.phase == bindparam("phase"), rounds.c.open)
    # In the order in which a phase is closed: else the two could wait for each other.
    .with_for_update(read=True, of=[collections, rounds]),
)


def _keep(connection: Connection, kind: _Kind, scope: dict[str, Any], batch: Sequence[Any]) -> list[Kept]:
    """Insert the items whose key is free, if they are accepted; return the outcome of each."""
    if not batch:
        return []
    table, names = kind.table, kind.names
    columns = [table.c[name] for name in names]
    keys = [tuple(item)[:-1] for item in batch]
    first: dict[Key, bytes] = {}
    for key, item in zip(keys, batch, strict=True):
        first.setdefault(key, item.body)
    # In one order in every process: each waits for keys that another has inserted and not committed.
    first = dict(sorted(first.items()))

    def accepts() -> bool:
        return connection.execute(kind.accepts, scope).first() is not None

    if connection.dialect.name == "postgresql":
        new = _insert_accepted(connection, kind, scope, first)
        accepted = len(new) == len(first) or accepts()
    else:
        accepted = accepts()
        new = _insert(connection, kind, scope, first) if accepted else set()
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
            outcomes.append(Kept.LATE if held is None or not accepted else Kept.CONFLICT)
    return outcomes


@lru_cache(maxsize=8)
def _accepting_insert(kind: _Kind, dialect: Dialect) -> str:
    """PostgreSQL's insertion of those bodies that are accepted and whose key is free, which returns their keys."""
    accepted = kind.accepts.compile(dialect=dialect)
    scope = "".join(f"%({name})s, " for name in kind.scope)
    sent = ", ".join([*(f"%({name})b::integer[]" for name in kind.names), "%(body)b::bytea[]"])
    keys = ", ".join(kind.names)
    return (
        f"WITH accepted AS ({accepted}) INSERT INTO {kind.table.name} ({', '.join(kind.scope)}, {keys}, body) "
        f"SELECT {scope}sent.* FROM accepted, unnest({sent}) AS sent ON CONFLICT DO NOTHING RETURNING {keys}"
    )


def _insert_accepted(
    connection: Connection, kind: _Kind, scope: dict[str, Any], bodies: dict[Key, bytes]
) -> set[Key]:
    """On PostgreSQL, insert the bodies if they are accepted; return the keys of those that were new."""
    arrays = {name: list(column) for name, column in zip(kind.names, zip(*bodies, strict=True), strict=True)}
    given = {**scope, **arrays, "body": list(bodies.values())}
    return {
        tuple(row) for row in connection.exec_driver_sql(_accepting_insert(kind, connection.dialect), given)
    }


def _insert(connection: Connection, kind: _Kind, scope: dict[str, Any], bodies: dict[Key, bytes]) -> set[Key]:
    """On SQLite, insert the bodies by one statement of the driver; return the keys of those that were new."""
    table, names = kind.table, kind.names
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
