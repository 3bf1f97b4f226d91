"""Migrations: they make exactly the tables of the schema, once, and never touch what is not theirs."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable

from mapveil.collector.store.migrate import newest_revision, revision_of
from mapveil.collector.store.schema import METADATA, audit
from mapveil_client.errors import InputError


def test_migrations_and_schema_agree(store):
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_migrations_and_schema_agree_to_the_letter(new_store, sqlite_url):
    """Autogenerate compares neither primary keys nor the names of constraints; the texts of the tables hold them."""
    made = new_store(sqlite_url)
    made.migrate()
    with made.read() as connection:
        texts = connection.execute(
            text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type IN ('table', 'index')")
        )
        found = {name: parts(sql) for name, sql in texts if name != "alembic_version"}
        wanted = {
            table.name: parts(str(CreateTable(table).compile(connection))) for table in METADATA.sorted_tables
        }
        wanted |= {
            index.name: parts(str(CreateIndex(index).compile(connection)))
            for table in METADATA.sorted_tables
            for index in table.indexes
        }
    assert found == wanted


def parts(statement: str) -> set[str]:
    return {line.strip().rstrip(",") for line in statement.strip().splitlines()}


def test_autogenerate_would_notice(store):
    with store.write() as connection:
        connection.execute(text("ALTER TABLE devices ADD COLUMN place TEXT"))
        assert compare_metadata(MigrationContext.configure(connection), METADATA)


def test_migrating_twice_does_nothing(store):
    assert store.migrate() == []
    with store.read() as connection:
        assert revision_of(connection) == newest_revision()


def test_several_processes_migrate_at_once(new_store, store_url):
    stores = [new_store(store_url) for _ in range(4)]
    ran: list[list[str]] = []
    threads = [threading.Thread(target=lambda each=each: ran.append(each.migrate())) for each in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ran) == [[], [], [], ["0001"]]


def test_a_newer_store_is_refused_untouched(store):
    with store.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(
        InputError, match=r"at revision 9999, this Mapveil knows 0001 at most; a newer Mapveil"
    ):
        store.migrate()
    with store.read() as connection:
        assert revision_of(connection) == "9999"
    assert not store.check().ok


def test_another_programs_tables_are_refused(new_store, store_url):
    made = new_store(store_url)
    if made.dialect == "sqlite":
        with sqlite3.connect(store_url) as other:
            other.execute("CREATE TABLE cats (name TEXT)")
        other.close()
    else:
        with made.write() as connection:
            connection.execute(text("CREATE TABLE cats (name TEXT)"))
    with pytest.raises(InputError, match="another program's"):
        made.migrate()


def test_a_failed_migration_leaves_nothing(new_store, store_url, monkeypatch):
    made = new_store(store_url)
    with monkeypatch.context() as patch:
        patch.setattr("alembic.operations.Operations.create_index", broken)
        with pytest.raises(ZeroDivisionError):
            made.migrate()
    with made.read() as connection:
        assert inspect(connection).get_table_names() == []
    assert made.migrate() == ["0001"]
    with made.read() as connection:
        assert connection.execute(audit.select()).all() == []


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_a_new_file_is_its_owners_only(new_store, tmp_path):
    path = tmp_path / "new" / "store.sqlite"
    new_store(f"sqlite:///{path}").migrate()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_folder_that_cannot_be_made_is_named(new_store, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no store can be made here"):
        new_store(str(tmp_path / "file" / "store.sqlite")).migrate()
