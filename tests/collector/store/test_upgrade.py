"""Stores of earlier versions are upgraded when they are asked to be, and their collections are the same afterwards.

``tests/vectors/store/version-3.sql.gz`` is a store that the last commit before version 4 wrote while it served: one
collection that ended, one that devices may still join.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import inspect, select, text

from mapveil.collector.http.examination import examine
from mapveil.collector.http.settings import Settings
from mapveil.collector.rounds.collection import listed
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store import schema
from mapveil.collector.store.audit_log import lines
from mapveil.collector.store.backends import APPLICATION_ID
from mapveil.collector.store.database import Store
from mapveil.collector.store.upgrade import upgrade
from mapveil_client.errors import InputError

WRITTEN = Path(__file__).parents[2] / "vectors" / "store" / "version-3.sql.gz"


@pytest.fixture
def old(sqlite_url: str, new_store: Callable[[str], Store]) -> Store:
    """The store of version 3."""
    with sqlite3.connect(sqlite_url) as file:
        file.executescript(gzip.decompress(WRITTEN.read_bytes()).decode())
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    file.close()
    return new_store(sqlite_url)


def test_it_is_refused_untouched_until_it_is_upgraded(old: Store) -> None:
    with pytest.raises(InputError, match=r"schema version 3.*stop every process on it, back it up, and run"):
        old.create_tables()
    with old.read() as connection:
        assert "at_helper" not in {each["name"] for each in inspect(connection).get_columns("tasks")}


def test_a_store_that_an_older_mapveil_wrote_goes_on(old: Store, clock, tmp_path: Path) -> None:
    with old.alone() as connection:
        assert upgrade(connection) == (3, schema.VERSION)
    old.create_tables()
    assert old.check().ok
    found = {each.what: each for each in examine(Settings(store=str(old.path), port=0))}
    assert found["charges"].detail == "1 charges of 2 collections follow from the audit log"
    with old.read() as connection:
        ended, waiting = sorted(listed(connection), key=lambda each: each.state)
        assert (ended.state, waiting.state) == ("done", "open")
        assert list(lines(connection))[-1].action == "store.upgrade"
    engine = Engine(old, clock)
    assert engine.map(ended.id).values.sum() > 0
    assert engine.abort(waiting.id, "operator 1", "done with it")["state"] == "aborted"
    assert old.check().ok


def test_its_tables_are_those_of_a_new_store(
    old: Store, new_store: Callable[[str], Store], tmp_path: Path
) -> None:
    with old.alone() as connection:
        upgrade(connection)
    new = new_store(str(tmp_path / "new.sqlite"))
    new.create_tables()

    def shape(store: Store) -> dict[str, tuple[dict[str, tuple[str, bool]], list[str]]]:
        with store.read() as connection:
            found = inspect(connection)
            return {
                table: (
                    {
                        each["name"]: (str(each["type"]), each["nullable"])
                        for each in found.get_columns(table)
                    },
                    sorted(each["name"] or "" for each in found.get_indexes(table)),
                )
                for table in found.get_table_names()
            }

    assert shape(old) == shape(new)


def test_both_databases_take_the_statements(store: Store) -> None:
    row = {"c": "x", "operator": 0}
    with store.write() as connection:
        connection.execute(text("ALTER TABLE tasks DROP COLUMN at_helper"))
        connection.execute(text("ALTER TABLE collections DROP COLUMN joined"))
        connection.execute(text("DROP INDEX ix_devices_barred"))
        for table in ("generation", "home", "work", "ended_tasks"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("UPDATE schema_version SET version = 3"))
        connection.execute(
            text(
                "INSERT INTO collections (id, state, terms, join_seconds, phase_seconds, created_at) "
                "VALUES ('x', 'done', :terms, 1, 1, 'then'), ('y', 'done', :terms, 1, 1, 'then')"
            ),
            {"terms": b""},
        )
        token = {"id": 1, "token_hash": bytes(32), "name": "n", "created_at": "then", "expires_at": "then"}
        connection.execute(schema.enrolments.insert().values(**token, uses_left=1))
        phone = {"id": 1, "public_key": bytes(32), "enrolment": 1, "enrolled_at": "then"}
        connection.execute(schema.devices.insert().values(**phone))
        connection.execute(schema.members.insert().values(collection="x", device=1, joined_at="then"))
        for row in ({"c": "x", "operator": 0}, {"c": "y", "operator": 1}):
            connection.execute(
                text("INSERT INTO tasks VALUES (:c, :operator, :sums, 0, '{}')"), {**row, "sums": b""}
            )
    with store.alone() as connection:
        upgrade(connection)
        assert upgrade(connection) == (schema.VERSION, schema.VERSION)  # once more changes nothing
        told = connection.execute(
            select(schema.tasks.c.operator, schema.tasks.c.at_helper).order_by(schema.tasks.c.operator)
        ).all()
        joined = select(schema.collections.c.id, schema.collections.c.joined).order_by(
            schema.collections.c.id
        )
        assert connection.execute(joined).all() == [("x", 1), ("y", 0)]
    assert told == [(0, True), (1, False)]
    store.create_tables()
    assert store.check().ok


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        (schema.OLDEST - 1, "finish its collections with"),
        (schema.VERSION + 1, "use the Mapveil that made it"),
    ],
)
def test_other_versions_are_refused(store: Store, version: int, hint: str) -> None:
    with store.write() as connection:
        connection.execute(text(f"UPDATE schema_version SET version = {version}"))
    assert store.check().version == version
    said = f"schema version {version}, this Mapveil reads version {schema.VERSION}; {hint}"
    with pytest.raises(InputError, match=said), store.alone() as connection:
        upgrade(connection)


def test_an_empty_database_has_nothing_to_upgrade(store_url: str, new_store: Callable[[str], Store]) -> None:
    made = new_store(store_url)
    if made.path is not None:
        Path(store_url).touch()
    with pytest.raises(InputError, match="no tables yet"), made.alone() as connection:
        upgrade(connection)


def test_tables_that_lack_something_are_a_problem_and_no_crash(store: Store) -> None:
    with store.write() as connection:
        connection.execute(text("UPDATE schema_version SET version = 5"))
        connection.execute(text("DROP TABLE charges"))
        connection.execute(text("ALTER TABLE collections RENAME COLUMN joined TO gone"))
    problems = store.check().problems
    assert any("joined" in each for each in problems), problems
