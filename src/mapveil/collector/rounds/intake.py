"""Writers of what devices send: members, reports and messages, a batch of each in one transaction.

Within a transaction the collection's row is locked shared, so that closing a phase waits for it, and no
message is accepted after its phase was closed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from sqlalchemy import Table, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from mapveil.collector.rounds.collection import counted, now_text
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.database import lock_collection
from mapveil.collector.store.schema import members, messages, reports, rounds
from mapveil_client.secure_sum.states import ServerState

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
        left = max(0, self.expected - counted(connection, self.collection, members))
        new = set([device for device in dict.fromkeys(batch) if device not in known][:left])
        if new:
            at = now_text(connection)
            row = {"collection": self.collection, "joined_at": at}
            connection.execute(members.insert(), [{**row, "device": device} for device in sorted(new)])
        return [Kept.AGAIN if each in known else Kept.NEW if each in new else Kept.FULL for each in batch]


@dataclass(frozen=True)
class KeepReports:
    """Keep reports of a collection that is open."""

    collection: str

    def __call__(self, connection: Connection, batch: Sequence[Report]) -> list[Kept]:
        """Outcome of each report."""
        is_open = lock_collection(connection, self.collection, shared=True) == State.OPEN
        return keep_reports(connection, self.collection, batch, is_open=is_open)


def keep_reports(
    connection: Connection, collection: str, batch: Sequence[Report], *, is_open: bool
) -> list[Kept]:
    """Insert each device's first report, if the collection is open; return the outcome of each."""
    return _keep(connection, reports, {"collection": collection}, ("device",), batch, is_open=is_open)


@dataclass(frozen=True)
class KeepMessages:
    """Keep messages of a phase that is open."""

    collection: str
    number: int
    phase: ServerState

    def __call__(self, connection: Connection, batch: Sequence[Message]) -> list[Kept]:
        """Outcome of each message."""
        lock_collection(connection, self.collection, shared=True)
        open_phase = select(rounds.c.phase).where(
            rounds.c.collection == self.collection, rounds.c.number == self.number, rounds.c.open
        )
        is_open = connection.execute(open_phase).scalar() == self.phase.value
        scope = {"collection": self.collection, "round": self.number, "phase": self.phase.value}
        return _keep(connection, messages, scope, ("shard", "client"), batch, is_open=is_open)


def _keep(
    connection: Connection,
    table: Table,
    scope: dict[str, Any],
    names: tuple[str, ...],
    batch: Sequence[Any],
    *,
    is_open: bool,
) -> list[Kept]:
    """Insert the items whose key ``names`` is free, if anything is accepted; return the outcome of each."""
    columns = [table.c[name] for name in names]
    keys = [tuple(item)[:-1] for item in batch]
    first: dict[tuple[Any, ...], bytes] = {}
    for key, item in zip(keys, batch, strict=True):
        first.setdefault(key, item.body)
    new: set[tuple[Any, ...]] = set()
    if is_open and first:
        dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
        statement = dialect.insert(table).on_conflict_do_nothing().returning(*columns)
        rows = [{**scope, **dict(zip(names, key, strict=True)), "body": body} for key, body in first.items()]
        new = {tuple(row) for row in connection.execute(statement, rows)}
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
            outcomes.append(Kept.LATE if held is None or not is_open else Kept.CONFLICT)
    return outcomes
