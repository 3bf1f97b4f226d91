"""A store that was copied, restored or moved serves only once somebody has said what becomes of its collections."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from mapveil.collector.rounds.restoration import accept_restored
from mapveil.collector.store import audit_log, home
from mapveil.collector.store.audit_log import lines
from mapveil.collector.store.backup import back_up
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_enrolment import Candidate, EnrolDevices
from mapveil.collector.store.home import RESTORED
from mapveil.collector.store.principals import Accounts, token_hash
from mapveil_client.errors import InputError

from ..conftest import PostgresqlServer

Opens = Callable[[str], Store]


def refused(store: Store) -> bool:
    with pytest.raises(InputError, match="was restored from a backup, copied or moved"):
        store.create_tables()
    return RESTORED in store.check().problems


def test_a_store_is_at_home_where_it_was_made(store: Store) -> None:
    store.create_tables()
    assert store.check().ok
    with pytest.raises(InputError, match="serves from the database where it last did"):
        accept_restored(store, go_on=True)


def test_a_store_of_before_stores_had_homes_goes_on(store: Store) -> None:
    with store.write() as connection:
        connection.execute(text("DROP TABLE home"))
    assert store.check().ok
    store.create_tables()
    store.create_tables()
    assert store.check().ok


def test_a_copied_file_is_refused_until_it_is_accepted(
    sqlite_store: Store, new_store: Opens, tmp_path: Path
) -> None:
    sqlite_store.close()  # nothing is left beside the file
    shutil.copy(sqlite_store.path, tmp_path / "copy.sqlite")
    copy = new_store(str(tmp_path / "copy.sqlite"))
    assert refused(copy)
    accept_restored(copy, go_on=True)
    copy.create_tables()
    assert copy.check().ok
    with copy.read() as connection:
        assert [line.action for line in lines(connection)] == ["store.restored"]


def test_a_backup_is_known_even_over_the_very_file(
    sqlite_store: Store, new_store: Opens, tmp_path: Path
) -> None:
    path, mark = Path(str(sqlite_store.path)), tmp_path / "store.sqlite.authority"
    mark.write_text("a key")
    copies = back_up(sqlite_store, tmp_path / "backup")
    assert [copy.name for copy in copies] == ["store.sqlite", "store.sqlite.authority"]
    assert all(stat.S_IMODE(os.stat(copy).st_mode) == 0o600 for copy in copies)
    assert stat.S_IMODE(os.stat(tmp_path / "backup").st_mode) == 0o700
    sqlite_store.close()
    number = path.stat().st_ino
    path.write_bytes(copies[0].read_bytes())
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    assert path.stat().st_ino == number
    assert refused(new_store(str(path)))


def test_a_copy_that_gets_the_number_of_the_removed_file_is_refused(
    sqlite_store: Store, new_store: Opens, tmp_path: Path
) -> None:
    path = Path(str(sqlite_store.path))
    sqlite_store.close()
    copy = path.read_bytes()
    for each in path.parent.glob(path.name + "-*"):
        each.unlink()
    number = path.stat().st_ino
    path.write_bytes(copy)
    assert path.stat().st_ino == number
    assert refused(new_store(str(path)))


def test_a_home_that_an_earlier_version_wrote_is_written_anew(store: Store) -> None:
    def place() -> str:
        with store.read() as connection:
            return str(connection.execute(text("SELECT place FROM home")).scalar_one())

    known = place()
    with store.write() as connection:
        connection.execute(text("UPDATE home SET place = :old"), {"old": known.rpartition(":")[0]})
    assert store.check().ok
    store.create_tables()
    assert place().rpartition(":")[0] == known.rpartition(":")[0]
    assert ":" in place()
    assert store.check().ok


def test_a_database_made_of_another_is_refused(
    postgresql_store: Store, new_store: Opens, postgresql: PostgresqlServer
) -> None:
    name = postgresql_store.shown.split("@/")[1].split("?")[0]
    postgresql_store.close()
    with postgresql.connect() as connection:
        connection.execute(f"CREATE DATABASE copied TEMPLATE {name}")
    copied = new_store(postgresql_store.shown.replace(f"/{name}", "/copied"))
    assert refused(copied)
    copied.close()
    with postgresql.connect() as connection:
        connection.execute("DROP DATABASE copied")


def test_devices_of_after_the_backup_keep_their_numbers(store: Store) -> None:
    accounts = Accounts(store)
    token = accounts.create_enrolment("devices", 9, timedelta(days=1), None, "test").token

    def enrol(key: int) -> Any:
        given = Candidate(token_hash(token), bytes([key]) * 32, simulated=False)
        return asyncio.run(store.put(EnrolDevices([]), given))

    assert [enrol(1), enrol(2)] == [1, 2]
    with store.write() as connection:
        connection.execute(text("UPDATE home SET place = 'a backup'"))
    accept_restored(store, go_on=True)
    store.create_tables()
    with store.read() as connection:
        (line,) = (line for line in lines(connection) if line.action == "store.restored")
    above = line.detail["devices_above"]
    assert above == 1_000_002
    assert enrol(3) == above + 1
    assert accounts.device_count() == 3


def test_a_restored_dump_is_refused_until_it_is_accepted(
    postgresql_store: Store, new_store: Opens, postgresql: PostgresqlServer
) -> None:
    """In a database of the same server too, and in one of the same name."""
    name = postgresql_store.shown.split("@/")[1].split("?")[0]
    url = postgresql.new_database()
    other = url.split("@/")[1].split("?")[0]
    postgresql.run(
        *("sh", "-c", 'pg=$1; shift; "$pg/pg_dump" $1 $2 --format=custom $3 | "$pg/pg_restore" $1 $2 -d $4'),
        *("sh", postgresql.binaries, f"--host={postgresql.folder}", "--username=mapveil", name, other),
    )
    restored = new_store(url)
    assert refused(restored)
    assert accept_restored(restored, go_on=False) == ("", (), (), False)
    restored.create_tables()
    assert restored.check().ok
    restored.close()
    postgresql.drop_database(url)


def test_a_server_that_keeps_its_identity_from_users_still_tells_a_restored_dump(
    postgresql_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "_POSTGRESQL_MAY", "SELECT FALSE")
    assert refused(postgresql_store)  # the same tables under another description of them
    accept_restored(postgresql_store, go_on=True)
    postgresql_store.create_tables()
    assert postgresql_store.check().ok


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_damaged_store_is_not_backed_up_and_nothing_is_left(
    sqlite_store: Store, tmp_path: Path, at: float
) -> None:
    path = Path(str(sqlite_store.path))
    with sqlite_store.write() as connection:
        audit_log.record(connection, "operator 1", "test", None, text="x" * 100_000)
    sqlite_store.close()
    with path.open("r+b") as file:
        file.seek(int(at * path.stat().st_size))
        file.write(b"\xff" * 9_000)
    with pytest.raises(InputError, match=r"the store is damaged \(.+\), so nothing is backed up"):
        back_up(sqlite_store, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_an_empty_file_is_no_store_to_back_up(new_store: Opens, tmp_path: Path) -> None:
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(InputError, match="there is no store at"):
        back_up(new_store(str(tmp_path / "empty.sqlite")), tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_no_backup_over_another_or_of_postgresql(store: Store, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    said = "pg_dump --format=custom" if store.shareable else "exists already"
    with pytest.raises(InputError, match=said):
        back_up(store, tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []
