"""Examining a store: what ``mapveil serve --check`` says of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.engine import Connection

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store.audit_log import verify
from mapveil.collector.store.schema import check_version
from mapveil_client.errors import InputError


class StoreReport(NamedTuple):
    """Findings of an examination of a store."""

    where: str  # without a password
    dialect: str
    reachable: bool
    version: int | None  # of the tables; None: there are none yet
    writable: bool
    audit_lines: int
    audit_head: str  # chain value of the last line: write it down, and a shortened log shows
    problems: tuple[str, ...]  # for which a service should not run on it
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether a service can run on it."""
        return not self.problems


def examine(
    where: str,
    dialect: str,
    read: Callable[[], AbstractContextManager[Connection]],
    write: Callable[[], AbstractContextManager[Connection]],
) -> StoreReport:
    """Examine a store; a fault is a line of the report and never raised."""
    report = StoreReport(where, dialect, False, None, False, 0, "", (), ())
    try:
        with read() as connection:
            report = report._replace(reachable=True)
            report = report._replace(version=check_version(connection))
            if report.version is None:
                return report._replace(problems=("the store has no tables yet; mapveil serve creates them",))
            report = report._replace(warnings=_settings(connection))
            problems = _damage(connection)
            chain = verify(connection)
        if chain.intact:
            report = report._replace(audit_lines=chain.lines, audit_head=chain.head)
        else:
            problems.append(
                f"the audit log was tampered with: line {chain.broken} does not follow from the one before"
            )
        report = report._replace(problems=tuple(problems))
        with write() as connection:  # a real write, flushed to the disk, that changes nothing
            connection.execute(text("UPDATE schema_version SET version = version"))
        return report._replace(writable=True)
    except (StoreUnavailable, InputError) as error:
        cause = error.__cause__
        reason = f"{error} ({_first_line(cause)})" if cause else str(error)
        return report._replace(problems=(*report.problems, reason))


def _damage(connection: Connection) -> list[str]:
    """Damage that SQLite finds in its file; PostgreSQL checks its own."""
    if connection.dialect.name != "sqlite":
        return []
    found = connection.execute(text("PRAGMA quick_check(3)")).scalars().all()
    return [f"the file is damaged: {line}" for line in found if line != "ok"]


def _settings(connection: Connection) -> tuple[str, ...]:
    """Settings of a PostgreSQL server under which a commit is not durable."""
    if connection.dialect.name != "postgresql":
        return ()
    found = {
        name: connection.execute(text(f"SHOW {name}")).scalar_one()
        for name in ("fsync", "synchronous_commit")
    }
    return tuple(
        f"PostgreSQL's {name} is off: what was acknowledged may be lost when the machine fails"
        for name, value in found.items()
        if value == "off"
    )


def _first_line(error: BaseException) -> str:
    return (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]
