"""Draws of a live series in the ledger: of each of its windows one map, whatever becomes of the series' own file.

A series' file can be copied, or an older one put back. Each copy would draw fresh noise for a window, and let its users
count anew. So the ledger keeps the SHA-256 of each window's map, before anybody sees the map. The series' spend is
marked as written just before the first draw, when no file is there: names and hashes of the files have rows of their
own.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from mapveil.privacy.file_hash import hashes_of
from mapveil.privacy.ledger_accounts import FILES, find_account, now
from mapveil.privacy.ledger_file import transaction
from mapveil_client.epsilon import readable
from mapveil_client.errors import BudgetExceeded, InputError, PromiseError

# Made with the first draw: a ledger without live series has the schema that every Mapveil of its version reads.
_SCHEMA: Final = """CREATE TABLE IF NOT EXISTS draws (
    id TEXT NOT NULL REFERENCES spends (id),
    part INTEGER NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (id, part)
)"""


def record_draws(ledger: Path, spend: str, maps: Mapping[int, bytes]) -> None:
    """Record the maps that were drawn for a spend, or refuse. Durable on return: call it before a map is seen.

    From the first call on the spend cannot be annulled: call it before noise is drawn, with the maps before, and not
    before the request can no longer be refused.

    Run by: the curator.

    Parameters
    ----------
    ledger : Path
        The ledger's file.
    spend : str
        Id of the spend of all windows.
    maps : mapping of int to bytes
        Every map that was drawn so far, by the number of its window; those recorded before among them.

    Raises
    ------
    InputError
        The ledger lacks the spend, or knows other maps, so that these are of a copy.
    PromiseError
        The spend was annulled.
    BudgetExceeded
        More than its budget is spent of the account, such as after two accounts were joined.
    """
    draws = _digests(maps)
    with transaction(ledger, write=True) as connection:
        known = _checked(connection, ledger, spend, draws)
        if connection.execute("SELECT 1 FROM events WHERE id = ?", (spend,)).fetchone() is None:
            connection.execute("INSERT INTO events VALUES (?, 'written', ?, '', '{}')", (spend, now()))
        new = [(spend, part, digest) for part, digest in draws.items() if part not in known]
        if new:
            connection.execute(_SCHEMA)
            connection.executemany("INSERT INTO draws VALUES (?, ?, ?)", new)


def check_draws(ledger: Path, spend: str, maps: Mapping[int, bytes]) -> None:
    """Refuse what :func:`record_draws` refuses, and write nothing: the spend can still be annulled."""
    with transaction(ledger) as connection:
        _checked(connection, ledger, spend, _digests(maps))


def _digests(maps: Mapping[int, bytes]) -> dict[int, str]:
    return {number: hashlib.sha256(stored).hexdigest() for number, stored in maps.items()}


def _checked(
    connection: sqlite3.Connection, ledger: Path, spend: str, draws: Mapping[int, str]
) -> dict[int, str]:
    """The draws that the ledger knows of a spend, all of which are among these; or a refusal."""
    found = connection.execute("SELECT dataset FROM spends WHERE id = ?", (spend,)).fetchone()
    if found is None:
        raise InputError(
            f"{ledger}: the series was not charged to this ledger (it has no spend {spend}), so nothing is "
            "released; name the ledger (--ledger) that it was started with"
        )
    event = connection.execute("SELECT kind FROM events WHERE id = ?", (spend,)).fetchone()
    if event == ("annulled",):
        raise PromiseError(
            f"{ledger}: the series' charge (spend {spend}) was annulled, so nothing is released; start another"
        )
    account = find_account(connection, found[0])
    if account.spent > account.budget:
        raise BudgetExceeded(
            f"{ledger}: account {account.name}: {readable(account.spent)} of {readable(account.budget)} spent, "
            "more than its budget, so nothing is released; the owner of the budget decides (mapveil ledger budget)"
        )
    known = _known(connection, spend)
    if not known.items() <= draws.items():
        raise InputError(
            f"{ledger}: the series' file is a copy, or was put back: the ledger knows {len(known)} windows of it, "
            "and not the same, so nothing is released; go on with the newest file"
        )
    return known


def _known(connection: sqlite3.Connection, spend: str) -> dict[int, str]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'draws'").fetchone():
        return {}
    return dict(connection.execute("SELECT part, digest FROM draws WHERE id = ?", (spend,)).fetchall())


def record_files(ledger: Path, spend: str, outputs: Sequence[str | PathLike[str]]) -> None:
    """Record names and hashes of the files that maps of a series were written to; what is no file is left out.

    Run by: the curator.

    Raises
    ------
    InputError
        The ledger lacks the spend.
    """
    rows = [(spend, name, digest) for name, held in hashes_of(outputs).items() for digest in held]
    if not rows:
        return
    with transaction(ledger, write=True) as connection:
        if connection.execute("SELECT 1 FROM spends WHERE id = ?", (spend,)).fetchone() is None:
            raise InputError(f"{ledger}: no spend has the id {spend!r}")
        connection.execute(FILES)
        connection.executemany("INSERT OR IGNORE INTO files VALUES (?, ?, ?)", rows)
