"""The tables are made once, whole or not at all, and never where they are not Mapveil's own."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from sqlalchemy import inspect, select, text
from sqlalchemy.exc import DBAPIError

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store import schema
from mapveil.collector.store.triggers import TRIGGERS
from mapveil_client.errors import InputError


def test_creating_twice_changes_nothing(store):
    store.create_tables()
    with store.read() as connection:
        assert schema.check_version(connection) == schema.VERSION
        assert set(inspect(connection).get_table_names()) == set(schema.METADATA.tables)


def test_a_store_made_before_ends_were_kept_goes_on(store):
    with store.write() as connection:
        connection.execute(text("DROP TABLE ended_tasks"))
    store.create_tables()
    with store.read() as connection:
        assert connection.execute(select(schema.ended_tasks)).all() == []
    assert store.check().ok


def test_several_processes_create_at_once(new_store, store_url):
    stores = [new_store(store_url) for _ in range(4)]
    failures: list[BaseException] = []

    def create(each):
        try:
            each.create_tables()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=create, args=(each,)) for each in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with stores[0].read() as connection:
        assert connection.execute(select(schema.schema_version)).all() == [(schema.VERSION,)]


def test_a_store_of_another_version_is_refused_untouched(store):
    with store.write() as connection:
        connection.execute(text("UPDATE schema_version SET version = 9999"))
    with pytest.raises(
        InputError, match=r"schema version 9999, this Mapveil reads version 5; use the Mapveil"
    ):
        store.create_tables()
    with store.read() as connection:
        assert connection.execute(select(schema.schema_version)).all() == [(9999,)]
    assert not store.check().ok


def test_a_store_that_does_not_say_its_version_is_refused(store):
    with store.write() as connection:
        connection.execute(text("DELETE FROM schema_version"))
    with pytest.raises(InputError, match=r"does not say its schema version.*restore a backup"):
        store.create_tables()
    assert "does not say its schema version" in store.check().problems[0]


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
        made.create_tables()


def test_a_failure_leaves_nothing(new_store, store_url, monkeypatch):
    made = new_store(store_url)
    with monkeypatch.context() as patch:
        patch.setitem(TRIGGERS, made.dialect, ("CREATE TRIGGER without an end",))
        with pytest.raises((StoreUnavailable, DBAPIError)):
            made.create_tables()
    with made.read() as connection:
        assert inspect(connection).get_table_names() == []
    made.create_tables()
    with made.read() as connection:
        assert connection.execute(schema.audit.select()).all() == []


def test_a_new_file_is_its_owners_only(new_store, tmp_path):
    path = tmp_path / "store.sqlite"
    new_store(f"sqlite:///{path}").create_tables()
    assert path.stat().st_mode & 0o777 == 0o600
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_folder_that_is_none_is_named(new_store, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no store can be made here"):
        new_store(str(tmp_path / "file" / "store.sqlite")).create_tables()
