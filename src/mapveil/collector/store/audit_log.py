r"""The audit log: who did what, in lines that the database refuses to change and that hold each other fast.

.. math:: c_i = \operatorname{SHA256}(\text{"mapveil audit 1"} \,\|\, 0 \,\|\, c_{i-1} \,\|\, \ell_i),
          \quad c_0 = 0^{32}

where: :math:`\ell_i` is line i as canonical JSON, with its number, and :math:`c_i` its chain value. Whoever changes or
takes out a line has to redo every later one; a head that was published before
(:class:`~mapveil.privacy.chain_head.ChainHead`, ``mapveil serve --head``) shows even that, and lines taken off the end.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from mapveil.collector.clock import Clock, time_text
from mapveil.collector.store.backends import CLOCK
from mapveil.collector.store.schema import MOST_NUMBER, audit
from mapveil.privacy.chain_head import START
from mapveil_client.terms import canonical_json

_PURPOSE: Final = b"mapveil audit 1\0"
_LOCK_KEY: Final = 0x6D76_6175_6469_7431  # of PostgreSQL's advisory lock: one process numbers lines at a time
_WAITING: Final = "mapveil_audit"
_ROWS_AT_ONCE: Final = 2000


@dataclass(frozen=True)
class AuditLine:
    """One line of the audit log."""

    number: int
    at: str
    actor: str
    action: str
    collection: str | None
    detail: dict[str, Any]


class Waiting(NamedTuple):
    """A line that has no number yet."""

    at: str
    actor: str
    action: str
    collection: str | None
    detail: str  # JSON


class ChainReport(NamedTuple):
    """Findings of :func:`verify`."""

    lines: int
    head: str  # the last chain value, 64 hexadecimal digits
    broken: int | None  # the number of the first line that does not follow from the one before

    @property
    def intact(self) -> bool:
        """Whether every line follows from the one before."""
        return self.broken is None


def record(
    connection: Connection, actor: str, action: str, collection: str | None = None, **detail: Any
) -> None:
    """Add a line, in the transaction of what it tells of. Run by: the server.

    The line is numbered and written when the transaction ends, after everything else: a transaction that numbers lines
    makes other processes wait, and must not wait for them in turn.

    Parameters
    ----------
    connection : Connection
        Of :meth:`mapveil.collector.store.database.Store.write` or ``put``, whose clock gives the time.
    actor, action : str
        Such as ``operator 3``, ``device 12``, ``service`` or ``command line``, and ``collection.open``.
    collection : str, optional
        Identifier of the collection concerned.
    **detail
        JSON-ready values; never a secret, a key or a location.
    """
    clock: Clock = connection.get_execution_options()[CLOCK]
    waiting: list[Waiting] | None = connection.info.get(_WAITING)
    if waiting is None:
        raise RuntimeError("an audit line is recorded in a transaction of Store.write or Store.put only")
    written = canonical_json(detail).decode()
    waiting.append(Waiting(time_text(clock.now()), actor, action, collection, written))


@contextlib.contextmanager
def recording(connection: Connection) -> Iterator[None]:
    """Hold the lines that are recorded in the block, and write them at its end. Run by: the store."""
    of_connection = connection.info  # which cannot be asked for once the database is lost
    waiting: list[Waiting] = []
    of_connection[_WAITING] = waiting
    try:
        yield
        _write(connection, waiting)
    finally:
        of_connection.pop(_WAITING, None)


@contextlib.contextmanager
def part(connection: Connection) -> Iterator[None]:
    """A part of a transaction that fails alone: its rows and its lines are taken back. Run by: the store."""
    waiting: list[Waiting] = connection.info[_WAITING]
    known = len(waiting)
    try:
        with connection.begin_nested():
            yield
    except BaseException:
        del waiting[known:]
        raise


def _write(connection: Connection, waiting: list[Waiting]) -> None:
    if not waiting:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    last = connection.execute(_LAST).first()
    number, chain = (0, START) if last is None else (last.number, last.chain)
    rows = []
    for following, line in enumerate(waiting, number + 1):
        chain = _chain(chain, following, line)
        rows.append({"number": following, **line._asdict(), "chain": chain})
    connection.execute(audit.insert(), rows)


def lines(
    connection: Connection, *, after: int = 0, limit: int = 100, collection: str | None = None
) -> list[AuditLine]:
    """Read lines in order.

    Parameters
    ----------
    connection : Connection
        Of a store.
    after, limit : int
        Lines with numbers above ``after``, at most ``limit`` of them.
    collection : str, optional
        Identifier; lines of this collection only.
    """
    after, limit = (min(max(number, 0), MOST_NUMBER) for number in (after, limit))
    statement = select(audit).where(audit.c.number > after).order_by(audit.c.number).limit(limit)
    if collection is not None:
        statement = statement.where(audit.c.collection == collection)
    return [
        AuditLine(row.number, row.at, row.actor, row.action, row.collection, json.loads(row.detail))
        for row in connection.execute(statement)
    ]


def verify(connection: Connection) -> ChainReport:
    """Recompute the whole chain."""
    chain, number = START, 0
    in_parts = {"yield_per": _ROWS_AT_ONCE}
    rows = connection.execute(select(audit).order_by(audit.c.number), execution_options=in_parts)
    for row in rows:
        number += 1
        chain = _chain(chain, number, Waiting(row.at, row.actor, row.action, row.collection, row.detail))
        if row.number != number or row.chain != chain:
            rows.close()
            return ChainReport(number, "", number)
    return ChainReport(number, chain.hex(), None)


def value_at(connection: Connection, number: int) -> bytes:
    """The chain value of a line that is there, 32 bytes."""
    return bytes(connection.execute(select(audit.c.chain).where(audit.c.number == number)).scalar_one())


_LAST: Final = select(audit.c.number, audit.c.chain).order_by(audit.c.number.desc()).limit(1)


def _chain(before: bytes, number: int, line: Waiting) -> bytes:
    return hashlib.sha256(_PURPOSE + before + canonical_json({"number": number, **line._asdict()})).digest()
