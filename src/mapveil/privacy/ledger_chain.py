r"""The ledger's hash chain: a line for every spend, event and statement, and one for each change of anything else.

.. math:: c_i = \operatorname{SHA256}(\text{"mapveil ledger 1"} \,\|\, 0 \,\|\, c_{i-1} \,\|\, \ell_i),
          \quad c_0 = 0^{32}

where: :math:`\ell_i` is line i as canonical JSON: its number, the table and the row it seals, and the SHA-256 of the
row; a line of the *rest* seals the schema and every other table (budgets, datasets, names, the key) as they stand. A
row that another program changed, added or removed no longer fits its line. Whoever makes the whole chain anew, or
takes lines off its end, is seen by a head that was published before (:mod:`mapveil.privacy.chain_head`).

Each write ends with a checkpoint, the SHA-256 of the whole file but for the checkpoint itself and the counters that a
commit sets. Before the next write one hash of the file shows that every byte is as it was left; only where it is not,
such as after a VACUUM, is the chain recomputed. Whoever forges the checkpoint too is found by :func:`verify`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from mapveil.privacy.chain_head import START
from mapveil_client.terms import canonical_json

SEALED_TABLES: Final = ("spends", "events", "other_people")
"""Tables whose rows have a line each; they are never changed or deleted."""

_REST: Final = "rest"
_PURPOSE: Final = b"mapveil ledger 1\0"

_canonical: Final = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    default=lambda value: {"sha256": hashlib.sha256(value).hexdigest()},
).encode
"""As :func:`mapveil_client.terms.canonical_json`, where bytes stand as their SHA-256; made once, for speed.

It writes numbers that are not finite too: only another program's row has any."""

SCHEMA: Final = """
CREATE TABLE chain (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    row INTEGER NOT NULL,
    digest BLOB NOT NULL,
    value BLOB NOT NULL
);
CREATE TRIGGER chain_stays BEFORE DELETE ON chain
BEGIN SELECT RAISE(ABORT, 'a line of the chain is never deleted'); END;
CREATE TRIGGER chain_is_final BEFORE UPDATE ON chain
BEGIN SELECT RAISE(ABORT, 'a line of the chain is never changed'); END;
CREATE TABLE checkpoint (digest BLOB NOT NULL);
INSERT INTO checkpoint VALUES (randomblob(32));
"""


class LedgerReport(NamedTuple):
    """Findings of :func:`verify`."""

    lines: int
    head: bytes
    problems: list[str]


def seal(connection: sqlite3.Connection, changes: int) -> None:
    """Add the lines of a transaction at its end; ``changes`` is the connection's count at its beginning.

    Run by: the curator.
    """
    last = connection.execute("SELECT number, value FROM chain ORDER BY number DESC LIMIT 1").fetchone()
    number, value = last or (0, START)
    new: list[tuple[str, int, bytes]] = []
    for table in SEALED_TABLES:
        last = connection.execute(
            "SELECT row FROM chain WHERE source = ? ORDER BY number DESC LIMIT 1", (table,)
        ).fetchone()
        known = last[0] if last else 0
        new += [(table, row, digest) for row, digest in enumerate(_rows(connection, table, known), known + 1)]
    if connection.total_changes - changes > len(new):  # more than rows that have lines of their own
        new.append((_REST, 0, _rest(connection)))
    for source, row, digest in new:
        number += 1
        value = _value(value, number, source, row, digest)
        connection.execute("INSERT INTO chain VALUES (?, ?, ?, ?, ?)", (number, source, row, digest, value))
    if connection.total_changes > changes:
        connection.execute("UPDATE checkpoint SET digest = ?", (_file_digest(connection),))


def problems_before(connection: sqlite3.Connection) -> list[str]:
    """The problems before a write; none, without recomputing the chain, where the file is as :func:`seal` left it."""
    return [] if _file_digest(connection) == _checkpoint(connection) else verify(connection).problems


def verify(connection: sqlite3.Connection) -> LedgerReport:
    """Recompute the whole chain, and compare every row with its line."""
    problems = [  # such as an index that does not fit its table
        f"the file is damaged: {text}"
        for (text,) in connection.execute("PRAGMA integrity_check")
        if text != "ok"
    ]
    value, digests = START, dict[str, list[bytes]]((table, []) for table in (*SEALED_TABLES, _REST))
    number = 0
    lines = connection.execute("SELECT number, source, row, digest, value FROM chain ORDER BY number")
    for number, (found, source, row, digest, kept) in enumerate(lines, 1):
        of_source = digests.get(source)
        if isinstance(digest, bytes):
            value = _value(value, number, source, row, digest)
        if found != number or kept != value or of_source is None or not isinstance(digest, bytes):
            problems.append(f"line {number} of the chain does not follow from the one before")
            return LedgerReport(number, START, problems)
        of_source.append(digest)
    for table in SEALED_TABLES:
        rows, told = list(_rows(connection, table, 0)), digests[table]
        problems += [
            f"row {at} of {table} is not as it was recorded"
            for at, (one, other) in enumerate(zip(rows, told, strict=False), 1)
            if one != other
        ]
        if len(rows) != len(told):
            problems.append(f"{table} has {len(rows)} rows, and {len(told)} lines in the chain")
    if digests[_REST][-1:] != [_rest(connection)]:
        problems.append("a budget, a dataset, a name or the schema was changed by another program")
    return LedgerReport(number, value, problems)


def value_at(connection: sqlite3.Connection, number: int) -> bytes:
    """The chain value of a line that is there, 32 bytes."""
    return bytes(connection.execute("SELECT value FROM chain WHERE number = ?", (number,)).fetchone()[0])


def _checkpoint(connection: sqlite3.Connection) -> Any:
    return connection.execute("SELECT digest FROM checkpoint").fetchone()[0]


def _file_digest(connection: sqlite3.Connection) -> bytes:
    """SHA-256 of the file as it stands in this transaction; the whole file is held in memory."""
    image, kept = connection.serialize(), _checkpoint(connection)
    at = image.find(kept if isinstance(kept, bytes) else b"")
    digest, bytes_ = hashlib.sha256(), memoryview(image)
    for first, last in (
        (0, 24),
        (28, 92),
        (100, at),
        (at + 32, len(image)),
    ):  # 24 and 92: a commit's counters
        digest.update(bytes_[first:last])
    return digest.digest()


def _value(before: bytes, number: int, source: str, row: int, digest: bytes) -> bytes:
    line = f'{{"digest":"{digest.hex()}","number":{number},"row":{row},"source":"{source}"}}'
    return hashlib.sha256(_PURPOSE + before + line.encode()).digest()


def _rows(connection: sqlite3.Connection, table: str, after: int) -> Iterator[bytes]:
    """The digest of each row but the first ``after``, in the order in which they were written."""
    newest = f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT (SELECT count(*) FROM {table}) - ?"
    return _digests(
        connection.execute(f"SELECT * FROM {table} WHERE rowid IN ({newest}) ORDER BY rowid", (after,))
    )


def _digests(found: sqlite3.Cursor) -> Iterator[bytes]:
    names = [column[0] for column in found.description]
    for row in found:
        yield hashlib.sha256(_canonical(dict(zip(names, row, strict=True))).encode()).digest()


def _rest(connection: sqlite3.Connection) -> bytes:
    """The digest of the schema, and of every table without lines of its own."""
    made = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    digest = hashlib.sha256()
    for kind, name, sql in made:
        digest.update(canonical_json({"kind": kind, "name": name, "sql": sql}))
        if kind == "table" and name not in (*SEALED_TABLES, "chain", "checkpoint"):
            for row in sorted(_digests(connection.execute(f"SELECT * FROM {name}"))):
                digest.update(row)
    return digest.digest()
