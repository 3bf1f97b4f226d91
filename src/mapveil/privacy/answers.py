"""The answers file of a release: its noisy replies, kept from the charge until the outputs are written.

A charge must buy an answer, whatever happens to the process or the disk. So each reply is stored durably right after
it is drawn and before anybody uses it: a release that was cut short is run again from the stored replies, and only
replies that nobody has seen are drawn anew. Stored are noisy replies and the public request, never exact sums or
random bits. The file lies beside the ledger, readable by its owner only; it is deleted when the outputs are written.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import numpy as np

from mapveil_client.errors import InputError, PromiseError
from mapveil_client.private_file import create_private

T = TypeVar("T")

_SUFFIX: Final = ".answers"


class Answers:
    """One answers file, held by one process at a time.

    Parameters
    ----------
    path : Path
        A file made by :meth:`create`.
    request : str, optional
        The public request, of a new file.

    Raises
    ------
    InputError
        Another process holds it, or it is no answers file.
    """

    def __init__(self, path: Path, request: str | None = None) -> None:
        self.path = path
        self._number = 0
        try:  # mode=rw: opening must never bring an empty file into being
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None
            )
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be opened ({error})") from error
        try:
            # The lock is held until the file is closed; a commit appends to the write-ahead log and syncs once.
            for setting in (
                "locking_mode = EXCLUSIVE",
                "journal_mode = WAL",
                "synchronous = FULL",
                "fullfsync = ON",
            ):
                self._connection.execute(f"PRAGMA {setting}")
            self._connection.execute("BEGIN EXCLUSIVE")
            if request is not None:
                self._connection.execute("CREATE TABLE request (request TEXT)")
                self._connection.execute("INSERT INTO request VALUES (?)", (request,))
                self._connection.execute(
                    "CREATE TABLE replies (number INTEGER PRIMARY KEY, purpose TEXT, reply BLOB)"
                )
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            raise InputError(f"{path}: cannot be used ({error}); does another process write it?") from error

    @classmethod
    def create(cls, ledger: Path, spend: str, request: str) -> Answers:
        """Make the file of a release that is about to be charged.

        Raises
        ------
        PromiseError
            It cannot be made, so nothing may be charged.
        """
        path = answers_path(ledger, spend)
        made = False
        try:
            create_private(path)
            made = True
            return cls(path, request)
        except (OSError, InputError) as error:
            if made:
                delete_answers(ledger, spend)
            raise PromiseError(
                f"{path}: answers cannot be kept here ({error}), so nothing is charged or released"
            ) from error

    @classmethod
    def of(cls, ledger: Path, spend: str) -> Answers:
        """The file of a release that was charged."""
        return cls(answers_path(ledger, spend))

    @property
    def spend(self) -> str:
        """Id of the release's first spend."""
        return self.path.name.removesuffix(_SUFFIX).rpartition(".")[2]

    @property
    def request(self) -> str:
        """The public request; empty where the process died before it was stored."""
        if self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
            return ""
        return str(self._connection.execute("SELECT request FROM request").fetchone()[0])

    def keep(self, purpose: str, kind: type[T], draw: Callable[[], T]) -> T:
        """The stored reply to the next query; without one, draw a reply and store it durably.

        Raises
        ------
        PromiseError
            The stored reply is to another query, or the reply cannot be stored. It is not used then.
        """
        self._number += 1
        found = self._connection.execute(
            "SELECT purpose, reply FROM replies WHERE number = ?", (self._number,)
        ).fetchone()
        if found is None:
            reply = draw()
            try:
                self._connection.execute(
                    "INSERT INTO replies VALUES (?, ?, ?)", (self._number, purpose, encode(reply))
                )
            except sqlite3.Error as error:
                raise PromiseError(
                    f"{self.path}: the answer cannot be kept ({error}); make room there"
                ) from error
            return reply
        if found[0] != purpose:
            raise PromiseError(f"{self.path}: keeps an answer to {found[0]!r}, but {purpose!r} was asked")
        return decode(kind, found[1])

    def close(self) -> None:
        """Let other processes have the file."""
        self._connection.close()


def answers_files(ledger: Path) -> Iterator[Path]:
    """The answers files beside a ledger, oldest first."""
    found = ledger.parent.glob(f"{ledger.name}.*{_SUFFIX}")
    return iter(sorted(found, key=lambda path: (path.stat().st_mtime, path.name)))


def delete_answers(ledger: Path, spend: str) -> None:
    """Delete the answers file of a release, if there is one."""
    path = answers_path(ledger, spend)
    for suffix in ("-wal", "-journal", ""):  # SQLite leaves the logs of a killed process
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()


def answers_path(ledger: Path, spend: str) -> Path:
    """Path of the answers file of a release, by its first spend."""
    return ledger.with_name(f"{ledger.name}.{spend}{_SUFFIX}")


def encode(reply: Any) -> bytes:
    """A named tuple or dataclass of numbers, fractions, texts, arrays and such records, as bytes without pickles.

    Examples
    --------
    >>> from mapveil.privacy.claim import Share
    >>> decode(Share, encode(Share("the tree", Fraction(1, 3))))
    Share(purpose='the tree', epsilon=Fraction(1, 3))
    """
    arrays: dict[str, Any] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays[f"a{len(arrays)}"] = value
            return {"array": f"a{len(arrays) - 1}"}
        if isinstance(value, Fraction):
            return {"fraction": str(value)}
        names = _fields(type(value))
        if names:
            return {"record": {name: plain(getattr(value, name)) for name in names}}
        return {"value": value}

    buffer = io.BytesIO()
    text = json.dumps(plain(reply))
    np.savez(buffer, text=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    return buffer.getvalue()


def decode(kind: type[T], data: bytes) -> T:
    """The reply that :func:`encode` wrote; ``kind`` is its class."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:

        def restore(kind: Any, given: dict[str, Any]) -> Any:
            match given:
                case {"array": name}:
                    return arrays[name]
                case {"fraction": text}:
                    return Fraction(text)
                case {"record": fields}:
                    kinds = get_type_hints(kind)
                    return kind(**{name: restore(kinds[name], value) for name, value in fields.items()})
            return given["value"]

        made: T = restore(kind, json.loads(arrays["text"].tobytes()))
        return made


def _fields(kind: type) -> tuple[str, ...]:
    """Names of the fields of a record; none where it is not one."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(getattr(kind, "_fields", ()))
