"""Examination of a store, for ``mapveil serve --check``."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sqlalchemy import func, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store.audit_log import verify
from mapveil.collector.store.backends import FOREIGN, OWNED, fault_of_folder, is_foreign
from mapveil.collector.store.home import RESTORED, elsewhere
from mapveil.collector.store.schema import (
    METADATA,
    VERSION,
    check_version,
    collections,
    devices,
    enrolments,
    found_version,
    members,
    operators,
)
from mapveil.collector.store.triggers import APPEND_ONLY, missing_triggers
from mapveil_client.errors import InputError, one_line

_LACKING: Final = """
SELECT relname FROM pg_class
WHERE relname = ANY(:names) AND relkind = 'r' AND pg_table_is_visible(oid) AND NOT (
    has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
    AND (relname = ANY(:append_only) OR has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
)
UNION ALL
SELECT pg_get_serial_sequence(name, 'id') FROM unnest(CAST(:numbered AS text[])) name
WHERE NOT has_sequence_privilege(pg_get_serial_sequence(name, 'id'), 'USAGE')
ORDER BY relname
"""
"""The tables that the user of PostgreSQL may not read and write as a service does, and the sequences of their numbers
that it may not use."""

_NUMBERED: Final = (operators.name, enrolments.name, devices.name)
"""Tables whose rows PostgreSQL numbers by a sequence."""

_SCHEMA: Final = """
SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'), current_setting('search_path')
"""


@dataclass
class StoreReport:
    """Findings of an examination of a store."""

    reachable: bool = False
    version: int | None = None  # of the tables; None: there are none yet, a service makes them
    writable: bool = False
    audit_lines: int = 0
    audit_head: str = ""  # chain value of the last line; empty where the chain is broken
    problems: list[str] = field(default_factory=list)  # for which a service should not run on it
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether a service can run on it."""
        return not self.problems


def examine(
    read: Callable[[], AbstractContextManager[Connection]],
    write: Callable[[], AbstractContextManager[Connection]],
    path: Path | None,
) -> StoreReport:
    """Examine a store, given its transactions and its file; a fault is a line of the report and never raised."""
    report = StoreReport()
    try:
        with read() as connection:
            report.reachable = True
            report.version = found_version(connection)
            check_version(connection)
            report.problems += [] if path is None else _faults_of_file(connection, path, report.version)
            if report.version is None:
                report.problems += _unmakeable(connection)
                return report
            if lacking := _lacking(connection):
                report.problems.append(
                    f"PostgreSQL refuses the store's user rights on {', '.join(lacking)}; {OWNED}"
                )
                return report
            _examine_database(connection, report)
            report.problems += [RESTORED] if elsewhere(connection) else []
            report.problems += [
                f"the trigger {name}, which keeps lines from being changed, is gone or another"
                for name in missing_triggers(connection)
            ]
            report.problems += _miscounted(connection)
            chain = verify(connection)
        if chain.intact:
            report.audit_lines, report.audit_head = chain.lines, chain.head
        else:
            report.problems.append(
                f"the audit log was tampered with: line {chain.broken} does not follow from the one before"
            )
        with write() as connection:  # a real write, flushed to the disk, that changes nothing
            connection.execute(text("UPDATE schema_version SET version = version"))
        report.writable = True
    except (StoreUnavailable, InputError) as error:
        report.problems.append(cause_text(error))
    except SQLAlchemyError as error:
        report.problems.append(foreign(error))
    return report


def foreign(error: SQLAlchemyError) -> str:
    """An error of tables that lack something, or have too much of it, in the database's own words."""
    words = str(getattr(error, "orig", None) or error).partition("\n")[0]
    return f"the tables are not those of schema version {VERSION}: {words}"


def _miscounted(connection: Connection) -> list[str]:
    """Collections whose number of members is not that of their rows, which retention may delete after their end."""
    rows = select(func.count()).where(members.c.collection == collections.c.id).scalar_subquery()
    query = select(collections.c.id, collections.c.joined, rows).where(
        collections.c.ended_at.is_(None), collections.c.joined != rows
    )
    found = connection.execute(query)
    return [
        f"collection {id} says that it has {joined} members; {there} are there" for id, joined, there in found
    ]


def cause_text(error: StoreUnavailable | InputError) -> str:
    """An error of a store with the database's own words, for whoever runs the service."""
    cause = getattr(error.__cause__, "orig", None) or error.__cause__
    words = "" if cause is None else str(cause).partition("\n")[0]
    return str(error) if words in str(error) else f"{error} ({words})"


def _faults_of_file(connection: Connection, path: Path, version: int | None) -> list[str]:
    """Another program's file of SQLite; where it has no tables yet, also one that cannot be written."""
    application = connection.execute(text("PRAGMA application_id")).scalar_one()
    if is_foreign(application, tables=version is not None):
        return [FOREIGN]
    if version is not None:
        return []  # a real write follows
    fault = fault_of_folder(path) or (None if os.access(path, os.W_OK) else "the file cannot be written")
    return [] if fault is None else [fault]


def _unmakeable(connection: Connection) -> list[str]:
    """A right without which the user of PostgreSQL makes no tables, where it is lacking; nothing on SQLite."""
    if connection.dialect.name == "sqlite":
        return []
    schema, may_create, path = connection.execute(text(_SCHEMA)).one()
    if may_create:
        return []
    # Without USAGE of a schema the tables that are in it are not seen either.
    right = f"CREATE in schema {schema}" if schema else f"USAGE of any schema of its search_path ({path})"
    return [f"PostgreSQL refuses the store's user {right}; {OWNED}"]


def _lacking(connection: Connection) -> list[str]:
    """Tables and sequences on which the user of PostgreSQL lacks a right that serving needs; none on SQLite."""
    if connection.dialect.name == "sqlite":
        return []
    names = {
        "names": list(METADATA.tables),
        "append_only": list(APPEND_ONLY),
        "numbered": list(_NUMBERED),
    }
    return list(connection.execute(text(_LACKING), names).scalars())


def _examine_database(connection: Connection, report: StoreReport) -> None:
    """Damage that SQLite finds in its file; settings of PostgreSQL under which a commit is not durable."""
    if connection.dialect.name == "sqlite":
        found = connection.execute(text("PRAGMA quick_check(3)")).scalars().all()
        report.problems += [f"the file is damaged: {one_line(line, 200)}" for line in found if line != "ok"]
        return
    for name in ("fsync", "synchronous_commit"):
        if connection.execute(text(f"SHOW {name}")).scalar_one() == "off":
            report.warnings.append(
                f"PostgreSQL's {name} is off: what was acknowledged may be lost when the machine fails"
            )
