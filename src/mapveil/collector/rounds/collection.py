"""Collections in the store: made, moved from state to state, and read back.

Every change of state goes through :func:`move`, which looks the step up in :mod:`mapveil.collector.rounds.life_cycle`
and writes the audit line in the same transaction.
"""

import functools
import logging
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import Table, delete, func, insert, select, update
from sqlalchemy.engine import Connection

from mapveil.collector.clock import Clock, read_time, time_text
from mapveil.collector.refusals import Conflict, Invalid, NotFound
from mapveil.collector.rounds.charged_devices import (
    came,
    charged_devices,
    draw_salt,
    in_counted_shards,
    of_round,
)
from mapveil.collector.rounds.life_cycle import Happening, State, step_of
from mapveil.collector.rounds.specification import PendingCollection
from mapveil.collector.store import audit_log as audit
from mapveil.collector.store.backends import CLOCK
from mapveil.collector.store.database import join_in_bulk, lock_collection
from mapveil.collector.store.schema import (
    ADMITTED,
    assignments,
    charges,
    collections,
    devices,
    jobs,
    members,
    messages,
    report_ids,
    reports,
    retired,
    rounds,
    shards,
    tasks,
)
from mapveil.collector.store.work_queue import Task, Work, forget_work, order
from mapveil_client.arrays import IntArray
from mapveil_client.secure_sum.states import ServerState
from mapveil_client.terms import CollectionTerms

_LOG: Final = logging.getLogger(__name__)
_CLIENT: Final = re.compile(r"\bclient \d+")
_OPERATOR: Final = re.compile(r"operator (\d{1,18})")
MOST_REASON: Final = 500
CHARGE: Final = "collection.charge"
"""Action of the audit line of a charge; its detail is the row of the charge, and the digest of its devices."""

REPORTS_PURPOSE: Final = "one report of each user"


class Collection(NamedTuple):
    """A row of the store, with its terms read."""

    id: str
    state: State
    terms: CollectionTerms
    join_seconds: int
    phase_seconds: int
    created_at: datetime
    opened_at: datetime | None
    ended_at: datetime | None
    reason: str | None


class Round(NamedTuple):
    """State of a round."""

    number: int
    phase: ServerState
    open: bool
    phase_at: datetime
    included: int | None

    @property
    def over(self) -> bool:
        """Whether no phase of it follows."""
        return self.phase in (ServerState.DONE, ServerState.ABORTED)


@functools.lru_cache(maxsize=256)
def terms_of(data: bytes) -> CollectionTerms:
    """Terms as the store holds them, read once."""
    return CollectionTerms.decode(data)


def now_text(connection: Connection) -> str:
    """Current time by the clock of the connection's store."""
    clock: Clock = connection.get_execution_options()[CLOCK]
    return time_text(clock.now())


def create(connection: Connection, pending: PendingCollection, actor: str) -> None:
    """Store a pending collection."""
    operator = _OPERATOR.fullmatch(actor)
    if operator is None:
        raise Invalid("only an operator creates a collection")
    terms = pending.terms
    connection.execute(
        insert(collections).values(
            id=terms.identifier,
            state=State.PENDING.value,
            terms=terms.encode(),
            join_seconds=pending.join_seconds,
            phase_seconds=pending.phase_seconds,
            created_by=int(operator[1]),
            created_at=now_text(connection),
        )
    )
    _record_created(connection, terms, actor)


def create_helped(connection: Connection, terms: CollectionTerms) -> None:
    """Store a collection that another service leads: it runs from the first moment on."""
    values = {"state": State.RUNNING.value, "terms": terms.encode(), "created_at": now_text(connection)}
    connection.execute(
        insert(collections).values(id=terms.identifier, join_seconds=1, phase_seconds=1, **values)
    )
    _record_created(connection, terms, "leader")
    audit.record(connection, "leader", f"collection.{State.RUNNING.value}", terms.identifier)


def _record_created(connection: Connection, terms: CollectionTerms, actor: str) -> None:
    epsilon = None if terms.epsilon is None else str(terms.epsilon)
    detail = {"trust": terms.trust, "method": terms.method, "epsilon": epsilon, "terms": terms.digest.hex()}
    audit.record(connection, actor, "collection.create", terms.identifier, **detail)


def find(connection: Connection, identifier: str) -> Collection:
    """Read a collection."""
    row = connection.execute(select(collections).where(collections.c.id == identifier)).first()
    if row is None:
        raise NotFound("there is no such collection")
    return _collection(row)


def listed(connection: Connection, states: Iterable[State] | None = None) -> list[Collection]:
    """All collections, the newest first; of some states only."""
    query = select(collections).order_by(collections.c.created_at.desc(), collections.c.id)
    if states is not None:
        query = query.where(collections.c.state.in_([state.value for state in states]))
    return [_collection(row) for row in connection.execute(query)]


def _collection(row: Any) -> Collection:
    opened, ended = (None if at is None else read_time(at) for at in (row.opened_at, row.ended_at))
    created, limits = read_time(row.created_at), (row.join_seconds, row.phase_seconds)
    return Collection(
        row.id, State(row.state), terms_of(row.terms), *limits, created, opened, ended, row.reason
    )


def move(
    connection: Connection, identifier: str, happening: Happening, actor: str, **detail: Any
) -> Collection | None:
    """Take the step that ``happening`` makes; the collection as it was before, None where another process was faster.

    Run it in the transaction of whatever makes it happen, and first: it locks the collection.
    """
    lock_collection(connection, identifier)
    before = find(connection, identifier)
    after = step_of(before.state, happening)
    if after is None:
        return None
    values: dict[str, Any] = {"state": after.value}
    if after is State.OPEN:
        values["opened_at"] = now_text(connection)
    if after in (State.DONE, State.ABORTED):
        values["ended_at"] = now_text(connection)
        forget_work(connection, identifier, Task.SHARD, Task.MAP)
    if after is State.ABORTED:
        values["reason"] = detail.get("reason", "")
    connection.execute(update(collections).where(collections.c.id == identifier).values(**values))
    audit.record(connection, actor, f"collection.{after.value}", identifier, **detail)
    return before


def abort(
    connection: Connection, identifier: str, actor: str, reason: str, *, only_in: State | None = None
) -> bool:
    """End a collection without a map: its messages are to be deleted, its reports to be erased, charges stay.

    Reports that came in are known to the server, so a local collection that ends early is charged for them. The reason
    is for everybody to read. With ``only_in`` nothing is done in another state: the caller may be late.

    Returns
    -------
    bool
        Whether this call ended it.
    """
    check_reason(reason)
    state = lock_collection(connection, identifier)
    if only_in is not None and state != only_in:
        return False
    before = move(connection, identifier, Happening.FAILED, actor, reason=reason)
    if before is None:
        if state == State.ABORTED:
            return False
        raise Conflict(f"the collection is {state}", "one that has not ended")
    # The log quotes no text that was sent, so neither an operator's reason nor one that the other service gave.
    told = log_text(reason) if actor == "service" else f"by {actor}; the audit log holds the reason"
    _LOG.warning("collection %s is aborted: %s", identifier, told)
    if before.state is State.OPEN:
        charge_reports(connection, before)
    newest = newest_round(connection, identifier)
    if newest is not None and not newest.over:
        prune_round(connection, identifier, newest.number)
    order(connection, [Work(Task.ERASE, identifier)])
    forget_sums(connection, identifier)
    return True


def log_text(reason: str) -> str:
    """A reason for the service's log and for everybody: it names no device, so without clients' numbers in a shard.

    Examples
    --------
    >>> log_text("shard 1: 3 neighbours of client 17 sent shares; 5 are needed")
    'shard 1: 3 neighbours of a client sent shares; 5 are needed'
    """
    return _CLIENT.sub("a client", reason)


def check_reason(reason: str) -> None:
    """Refuse a reason for an abort that cannot be shown; raises Invalid."""
    if not 0 < len(reason) <= MOST_REASON or not reason.isprintable():
        raise Invalid(f"reason must be a text of 1 to {MOST_REASON} printable characters")


def charge_reports(connection: Connection, collection: Collection) -> None:
    """Charge the reports of a local collection to the devices that sent them."""
    if collection.terms.trust == "local" and counted(connection, collection.id, reports):
        charge(connection, collection.id, 0, REPORTS_PURPOSE, collection.terms.epsilon)


def charge(
    connection: Connection, identifier: str, number: int, purpose: str, epsilon: Fraction | None
) -> None:
    """Charge epsilon to each device in the sums of round ``number`` or, if that is 0, that sent a report."""
    draw_salt(connection, identifier, number)
    charged = charged_devices(connection, identifier, number)
    row = {
        "number": number,
        "purpose": purpose,
        "epsilon": str(epsilon),
        "devices": charged.devices,
        "at": now_text(connection),
    }
    connection.execute(insert(charges).values(collection=identifier, **row))
    audit.record(connection, "service", CHARGE, identifier, **row, devices_sha256=charged.digest)


def asked_devices(connection: Connection, identifier: str, number: int) -> IntArray:
    """Devices that round ``number`` asks: all members in round 1, later those of the round before whose shard
    was not left out."""
    table = members if number == 1 else assignments
    query = select(table.c.device).where(table.c.collection == identifier)
    if number > 1:
        query = query.where(*in_counted_shards(identifier, number - 1))
    here = devices.c.id == table.c.device
    kept = query.join(devices, here).where(ADMITTED).order_by(table.c.device)
    return np.array(connection.execute(kept).scalars().all(), dtype=np.int64)


def prune_round(
    connection: Connection, identifier: str, number: int, phase: ServerState = ServerState.INPUTS
) -> None:
    """Keep of a round's assignments those of devices that answered ``phase``, whom the next one asks; order that its
    messages are deleted.

    Once: without messages nobody answered.
    """
    left = *of_round(assignments, identifier, number), ~came(identifier, number, phase)
    join_in_bulk(connection)
    connection.execute(delete(assignments).where(*left))
    order(connection, [Work(Task.PRUNE, identifier, number)])


def forget_sums(connection: Connection, identifier: str) -> None:
    """Delete one of two operators' share of the exact sums, and the jobs that it could be made from again.

    Both shares together would be the sums without noise.
    """
    connection.execute(update(tasks).where(tasks.c.collection == identifier).values(sums=b""))
    messages_of = {"request": b"", "reply": b"", "closing": b""}
    connection.execute(update(jobs).where(jobs.c.collection == identifier).values(**messages_of))


def forget_inputs(
    connection: Connection, identifier: str, number: int, clients: Sequence[tuple[int, int]]
) -> None:
    """Delete the masked inputs of clients, each a shard and a number in it, that count in no sum."""
    inputs = *of_round(messages, identifier, number), messages.c.phase == ServerState.INPUTS.value
    for shard, client in clients:
        connection.execute(
            delete(messages).where(*inputs, messages.c.shard == shard, messages.c.client == client)
        )


def counted(connection: Connection, identifier: str, table: Table, **columns: int) -> int:
    """Number of rows of a collection, such as its members, where ``columns`` have these values."""
    where = (table.c[name] == value for name, value in columns.items())
    query = select(func.count()).select_from(table).where(table.c.collection == identifier, *where)
    return int(connection.execute(query).scalar_one())


def present(connection: Connection, collection: Collection) -> int:
    """Number of devices that have joined a distributed collection, or have reported to another one."""
    if collection.ended_at is not None:
        kept = select(retired.c.devices).where(retired.c.collection == collection.id)
        devices = connection.execute(kept).scalar()
        if devices is not None:
            return int(devices)
    if collection.terms.trust == "distributed":
        joined = select(collections.c.joined).where(collections.c.id == collection.id)
        return int(connection.execute(joined).scalar_one())
    table = reports
    helped = select(tasks.c.operator).where(tasks.c.collection == collection.id)
    if collection.terms.trust == "operators" and connection.execute(helped).scalar():
        table = report_ids  # the helper knows reports, and no devices
    return counted(connection, collection.id, table)


def rounds_of(connection: Connection, identifier: str) -> list[Any]:
    """The rows of a collection's rounds, in order, without their sums; ``left_out`` counts shards."""
    wanted = [column for column in rounds.c if column.name != "total"]
    failed = (
        shards.c.collection == identifier,
        shards.c.round == rounds.c.number,
        shards.c.failed.is_not(None),
    )
    left_out = select(func.count()).select_from(shards).where(*failed).scalar_subquery()
    query = (
        select(*wanted, left_out.label("left_out"))
        .where(rounds.c.collection == identifier)
        .order_by(rounds.c.number)
    )
    return list(connection.execute(query).all())


def newest_round(connection: Connection, identifier: str) -> Round | None:
    """State of the last round of a collection; None before the first."""
    columns = (rounds.c[name] for name in Round._fields)
    query = select(*columns).where(rounds.c.collection == identifier).order_by(rounds.c.number.desc())
    row = connection.execute(query.limit(1)).first()
    if row is None:
        return None
    return Round(row.number, ServerState(row.phase), row.open, read_time(row.phase_at), row.included)
