"""The collections of a store that was restored from a backup: each goes on or is aborted, and the audit log says so."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from mapveil.collector.rounds import collection as records
from mapveil.collector.rounds.life_cycle import ACTIVE, State
from mapveil.collector.store import audit_log
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_enrolment import skip_numbers
from mapveil.collector.store.home import elsewhere, renew_generation, settle
from mapveil.collector.store.schema import audit, check_version, create_missing, tasks
from mapveil_client.errors import InputError

_REASON: Final = "the store was restored from a backup that lacks what was answered since"
_ACTOR: Final = "command line"
_RESTORED: Final = "store.restored"
_SETTLED: Final = (f"collection.{State.OPEN}", "round.done", "round.restart")


class Restored(NamedTuple):
    """End or continuation of the collections that had not ended in a backup."""

    until: str  # the time of the newest line of its audit log; empty where there is none
    aborted: tuple[str, ...]
    continued: tuple[str, ...]
    operators: bool  # whether the store ever held sums by two operators


def restored_meanwhile(connection: Connection, identifier: str) -> bool:
    """Whether the store was restored after a collection was opened, and after its last round that is over."""
    known = audit.c.collection == identifier, audit.c.action.in_(_SETTLED)
    last = select(func.max(audit.c.number)).where(*known).scalar_subquery()
    found = select(audit.c.number).where(audit.c.number > last, audit.c.action == _RESTORED)
    return connection.execute(found.limit(1)).first() is not None


def accept_restored(store: Store, *, go_on: bool) -> Restored:
    """Let a restored store serve where it is.

    A collection by two operators is always aborted, also a pending one, whose terms are fixed: this operator may have
    answered a query since the backup, and would draw new noise for the same answer. Of terms that came after the
    backup a helper knows nothing, so it begins a generation that they do not name; a leader draws the identifiers of
    its terms itself, each once. Every other collection may go on: devices keep their own accounts and answer nothing
    twice. Devices that enrol from now on have numbers far above those of the backup.

    Parameters
    ----------
    store : Store
        The store; no service runs on it.
    go_on : bool
        Whether collections in progress go on, where they may.

    Raises
    ------
    InputError
        The store was not restored, or is of another version.
    """
    with store.alone() as connection:
        if check_version(connection) is None or not elsewhere(connection):
            raise InputError(
                "the store serves from the database where it last did; --restored is for a restored one"
            )
        create_missing(connection)
        until = connection.execute(select(func.max(audit.c.at))).scalar()
        shared = set(connection.execute(select(tasks.c.collection)).scalars())
        aborted, continued = [], []
        for each in records.listed(connection, (State.PENDING, *ACTIVE)):
            pending = each.state is State.PENDING
            if each.id in shared or not (go_on or pending):
                records.abort(connection, each.id, _ACTOR, _REASON)
                aborted.append(each.id)
            elif not pending:
                continued.append(each.id)
        settle(connection)
        above = skip_numbers(connection)
        renew_generation(connection)
        audit_log.record(
            *(connection, _ACTOR, _RESTORED),
            until=until,
            aborted=aborted,
            continued=continued,
            devices_above=above,
        )
    return Restored(until or "", tuple(aborted), tuple(continued), bool(shared))
