"""The ledger's file: one SQLite database, its schema, and how it is opened safely.

The rollback journal is used rather than a write-ahead log, so that the ledger is one file at rest
and a copy of it is whole. ``synchronous=EXTRA`` makes a commit durable in that mode: the journal's
removal reaches the disk too before a transaction returns. Spends and statements are append-only, which
triggers enforce even against somebody who opens the file with another program.
"""

import contextlib
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mapveil.privacy import ledger_chain
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.private_file import new_private_file

SCHEMA_VERSION: Final = 6
_APPLICATION_ID: Final = 0x4D56_4C47  # "MVLG"
_WAIT_SECONDS: Final = 60.0

_SCHEMA: Final = f"""{ledger_chain.SCHEMA}
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE ledger (key BLOB NOT NULL, default_budget TEXT NOT NULL, owner TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE accounts (
    account INTEGER PRIMARY KEY AUTOINCREMENT,
    unit TEXT NOT NULL,
    owner TEXT NOT NULL,
    budget TEXT,
    reason TEXT NOT NULL,
    sketch BLOB NOT NULL
);
CREATE TABLE datasets (
    dataset TEXT PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts,
    digest TEXT
);
CREATE TABLE other_people (
    dataset TEXT NOT NULL REFERENCES datasets,
    other TEXT NOT NULL REFERENCES datasets (dataset),
    time TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE names (name TEXT PRIMARY KEY, account INTEGER NOT NULL REFERENCES accounts);
CREATE TABLE spends (
    spend INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    time TEXT NOT NULL,
    dataset TEXT NOT NULL REFERENCES datasets,
    epsilon TEXT NOT NULL,
    method TEXT NOT NULL,
    parameters TEXT NOT NULL,
    tiling TEXT NOT NULL,
    region TEXT NOT NULL,
    outputs TEXT NOT NULL,
    answers INTEGER NOT NULL
);
CREATE TABLE events (
    id TEXT NOT NULL REFERENCES spends (id),
    kind TEXT NOT NULL CHECK (kind IN ('written', 'annulled')),
    time TEXT NOT NULL,
    reason TEXT NOT NULL,
    outputs TEXT,
    UNIQUE (id)
);
CREATE INDEX datasets_of_people ON datasets (digest);
CREATE INDEX datasets_of_an_account ON datasets (account);
CREATE INDEX names_of_an_account ON names (account);
CREATE INDEX spends_of_a_dataset ON spends (dataset, epsilon, id);
CREATE TRIGGER spends_stay BEFORE DELETE ON spends
BEGIN SELECT RAISE(ABORT, 'a spend is never deleted'); END;
CREATE TRIGGER spends_are_final BEFORE UPDATE ON spends
BEGIN SELECT RAISE(ABORT, 'a spend is never changed'); END;
CREATE TRIGGER statements_stay BEFORE DELETE ON other_people
BEGIN SELECT RAISE(ABORT, 'a statement is never deleted'); END;
CREATE TRIGGER statements_are_final BEFORE UPDATE ON other_people
BEGIN SELECT RAISE(ABORT, 'a statement is never changed'); END;
CREATE TRIGGER events_stay BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never deleted'); END;
CREATE TRIGGER events_are_final BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
"""


def create_ledger(path: Path, default_budget: str) -> None:
    """Make an empty ledger, readable by its owner only, and missing folders, unless there is a file already.

    The file appears whole or not at all, so that of several processes exactly one creates it and
    an empty file is never mistaken for a new ledger. Run by: the curator.

    Raises
    ------
    InputError
        No file can be made there.
    """
    if path.exists():
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (
            new_private_file(path) as draft,
            contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection,
        ):
            connection.executescript(f"PRAGMA synchronous = EXTRA; BEGIN; {_SCHEMA}")
            row = (secrets.token_bytes(32), default_budget)
            connection.execute("INSERT INTO ledger VALUES (?, ?, '', '')", row)
            ledger_chain.seal(connection, 0)
            connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        raise InputError(
            f"{path}: no ledger can be made here ({error}); expected a path in a folder that can be "
            "written, see MAPVEIL_LEDGER"
        ) from error


@contextlib.contextmanager
def transaction(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """One transaction on the ledger, durable on return; rolled back if the block raises.

    A connection lives for one transaction only, so a ledger may be used from any process or
    thread, before or after a fork. One that writes takes the write lock first, so that what is read stays true, and
    refuses a changed file. Run by: the curator.

    Raises
    ------
    InputError
        The file is not a ledger, is damaged, or has another schema.
    PromiseError
        The file cannot be locked or written, or another program changed it, so nothing may be released.
    """
    try:
        with contextlib.closing(_connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                problems = ledger_chain.problems_before(connection) if write else []
                if problems:
                    raise PromiseError(
                        f"{path}: another program changed the ledger ({problems[0]}), so nothing is released; run "
                        "mapveil ledger check, and restore the file from a copy"
                    )
                changes = connection.total_changes
                yield connection
                if write:
                    ledger_chain.seal(connection, changes)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
    except sqlite3.OperationalError as error:
        if not path.exists():
            raise _not_a_ledger(path, "no such file") from error
        raise PromiseError(
            f"{path}: the ledger cannot be read or written ({error}), so nothing is released"
        ) from error
    except sqlite3.DatabaseError as error:
        raise _not_a_ledger(path, str(error)) from error


def _connect(path: Path) -> sqlite3.Connection:
    # mode=rw: opening must never bring an empty file into being.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_WAIT_SECONDS
    )
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION_ID:
            raise _not_a_ledger(path, "another program's file" if path.stat().st_size else "an empty file")
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{path}: a ledger of schema {version}; this Mapveil reads and writes schema {SCHEMA_VERSION} only, so "
                "nothing is released; use the Mapveil that wrote it: a new ledger would forget what is spent"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _not_a_ledger(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path}: not a usable Mapveil ledger ({reason}); "
        "restore it from a copy, or name another file in MAPVEIL_LEDGER"
    )
