"""A backup of a store in an SQLite file and of the keys beside it, while a service runs on it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from mapveil.collector.store.database import Store
from mapveil_client.errors import InputError, one_line
from mapveil_client.private_file import create_private

KEYS: Final = (".key", ".authority", ".operator")
"""Endings of the files beside a store: keys that sign heads, certificates and sums by two operators."""

_LONGEST: Final = 200  # characters of what SQLite says
_PAGES: Final = 1024  # copied at a time: a service that runs may write in between


def back_up(store: Store, folder: Path) -> list[Path]:
    """Copy a store and its keys into a new folder that its owner alone can read; the files that were written.

    Raises
    ------
    InputError
        The store is on PostgreSQL or not there or damaged, the folder exists, or it cannot be written. Nothing is left
        of a backup that failed.
    """
    if store.path is None:
        raise InputError(
            "--backup copies a store in an SQLite file; back up PostgreSQL with pg_dump --format=custom, and the "
            "files of --head-key, --authority-key and --operator-key with it"
        )
    if not store.path.exists() or not store.path.stat().st_size:
        raise InputError(f"there is no store at {store.path}; give the one that the service serves from")
    with contextlib.ExitStack() as failed:
        try:
            folder.mkdir(mode=0o700)
            failed.callback(shutil.rmtree, folder, ignore_errors=True)
            copies = _copy_all(store.path, folder)
            failed.pop_all()
        except FileExistsError:
            raise InputError(f"{folder}: exists already; --backup makes a new folder") from None
        except FileNotFoundError:
            raise InputError(
                f"{folder}: there is no folder {folder.absolute().parent}; --backup makes a new one in a folder that "
                "is there"
            ) from None
        except (OSError, sqlite3.OperationalError) as error:
            raise InputError(f"{folder}: no backup can be written here ({error})") from None
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{store.path}: the store is damaged ({error}), so nothing is backed up; keep the backups that you have"
            ) from None
    return copies


def _copy_all(path: Path, folder: Path) -> list[Path]:
    found = [path, *(key for ending in KEYS if (key := path.with_name(path.name + ending)).exists())]
    copies = [folder / each.name for each in found]
    for copy in copies:
        create_private(copy)
    for source, copy in zip(found[1:], copies[1:], strict=True):
        copy.write_bytes(source.read_bytes())
    _copy(path, copies[0])
    return copies


def _copy(source: Path, copy: Path) -> None:
    opened = sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)
    with contextlib.closing(opened), contextlib.closing(sqlite3.connect(copy)) as target:
        opened.isolation_level = None
        opened.execute("BEGIN")  # else every commit beside it begins the copy anew
        opened.execute("SELECT count(*) FROM sqlite_master")
        opened.backup(target, pages=_PAGES)
        (found,) = target.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(one_line(found, _LONGEST))
        # At home nowhere, so that it is recognised wherever it is restored.
        with target:
            target.execute("CREATE TABLE IF NOT EXISTS home (place VARCHAR(100) NOT NULL PRIMARY KEY)")
            target.execute("DELETE FROM home")
            target.execute("INSERT INTO home VALUES ('a backup')")
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without others beside it
