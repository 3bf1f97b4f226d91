"""The audit log: append-only for everybody, numbered without gaps, and a chain that shows what was done to it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from mapveil.collector.refusals import Conflict
from mapveil.collector.store.audit_log import lines, record, verify
from mapveil.collector.store.schema import audit

from .rows import commit

COLUMNS = ("number", "at", "actor", "action", "collection", "detail", "chain")


def write(store, *details: int) -> None:
    with store.write() as connection:
        for value in details:
            record(connection, "operator 1", "test.write", collection=f"{value:032x}", value=value)


def report(store):
    with store.read() as connection:
        return verify(connection)


def values(store, **options) -> list[int]:
    with store.read() as connection:
        return [line.detail["value"] for line in lines(connection, **options)]


def free(connection) -> None:
    """Drop the triggers, as somebody with all rights over the database would do first."""
    if connection.dialect.name == "sqlite":
        for name in ("audit_stays_update", "audit_stays_delete", "audit_goes_on"):
            connection.execute(text(f"DROP TRIGGER {name}"))
    else:
        connection.execute(text("ALTER TABLE audit DISABLE TRIGGER ALL"))


def test_lines_are_numbered_in_order(store, clock):
    write(store, 5)
    clock.advance(60)
    write(store, 6, 7)
    with store.read() as connection:
        found = lines(connection)
    assert [line.number for line in found] == [1, 2, 3]
    assert vars(found[0]) == {
        "number": 1,
        "at": "2026-03-01T12:00:00.000000+00:00",
        "actor": "operator 1",
        "action": "test.write",
        "collection": f"{5:032x}",
        "detail": {"value": 5},
    }
    assert found[2].at == "2026-03-01T12:01:00.000000+00:00"


def test_lines_are_read_by_pages_and_collections(store):
    write(store, *range(10))
    assert values(store, after=3, limit=4) == [3, 4, 5, 6]
    assert values(store, collection=f"{4:032x}") == [4]
    assert values(store, after=10**30, limit=10**30) == []
    assert values(store, after=-1, limit=2) == [0, 1]


def test_the_chain_is_what_it_says(store):
    """The formula of the module, spelled out."""
    write(store, 1, 2)
    chain = bytes(32)
    with store.read() as connection:
        for row in connection.execute(audit.select().order_by(audit.c.number)).mappings():
            line = json.dumps(
                {name: row[name] for name in COLUMNS[:-1]},
                sort_keys=True,
                separators=(",", ":"),
                ensure_ascii=False,
            )
            chain = hashlib.sha256(b"mapveil audit 1\0" + chain + line.encode()).digest()
            assert row["chain"] == chain
    assert report(store) == (2, chain.hex(), None)


def test_an_empty_log_is_whole(store):
    assert report(store) == (0, bytes(32).hex(), None)


def test_a_line_goes_with_its_transaction(store):
    with pytest.raises(ZeroDivisionError):
        fail_after_recording(store)
    assert report(store).lines == 0
    write(store, 1)
    assert report(store).lines == 1


def fail_after_recording(store):
    with store.write() as connection:
        record(connection, "service", "test.lost")
        raise ZeroDivisionError


def test_a_line_goes_with_its_work(store):
    """Works that share a commit keep their own lines only."""

    def work(value: int):
        def run(connection):
            record(connection, "service", "test.write", value=value)
            if value % 3 == 0:
                raise Conflict("no")

        return run

    async def main():
        await asyncio.gather(*(commit(store, work(n)) for n in range(60)), return_exceptions=True)

    asyncio.run(main())
    assert sorted(values(store, limit=1000)) == [n for n in range(60) if n % 3]
    assert report(store).intact


def test_a_line_outside_the_stores_transactions_is_a_mistake(store):
    with store.read() as connection, pytest.raises(RuntimeError, match=r"Store\.write"):
        record(connection, "service", "test.write")
    write(store, 1)
    with store.read() as connection, pytest.raises(RuntimeError, match=r"Store\.write"):
        record(connection, "service", "test.write")


def test_the_database_refuses_to_change_a_line(store):
    write(store, 1, 2, 3)
    add_charge(store)
    for statement in (
        "UPDATE audit SET actor = 'nobody' WHERE number = 2",
        "DELETE FROM audit WHERE number = 3",
        "DELETE FROM audit",
        "UPDATE charges SET epsilon = '0'",
        "DELETE FROM charges",
    ):
        with pytest.raises(IntegrityError, match="never changed"), store.write() as connection:
            connection.execute(text(statement))
    assert values(store) == [1, 2, 3]
    assert report(store).intact


def add_charge(store) -> None:
    with store.write() as connection:
        for statement in (
            "INSERT INTO operators VALUES (1, 'n', 'admin', :bytes, 'a', 'b', NULL)",
            "INSERT INTO collections VALUES ('c', 'done', :bytes, 1, 1, 1, 'a', NULL, NULL, NULL, 0)",
            "INSERT INTO charges VALUES ('c', 1, 'p', '1', 10, 'a')",
        ):
            bound = {"bytes": bytes(32)} if ":bytes" in statement else {}
            connection.execute(text(statement), bound)


def test_postgresql_refuses_to_empty_it(postgresql_store):
    write(postgresql_store, 1)
    with pytest.raises(IntegrityError, match="never changed"), postgresql_store.write() as connection:
        connection.execute(text("TRUNCATE audit"))


def test_sqlite_refuses_to_replace_a_line(sqlite_store):
    write(sqlite_store, 1, 2)
    row = {"chain": bytes(32)}
    for number in (1, 2, 4):
        statement = f"INSERT OR REPLACE INTO audit VALUES ({number}, 'a', 'b', 'c', NULL, '{{}}', :chain)"
        with pytest.raises(DBAPIError), sqlite_store.write() as connection:
            connection.execute(text(statement), row)
    assert values(sqlite_store) == [1, 2]


FORGERIES = {
    "UPDATE audit SET detail = '{}' WHERE number = 3": 3,
    "UPDATE audit SET detail = 'no JSON' WHERE number = 3": 3,
    "UPDATE audit SET at = '2020' WHERE number = 1": 1,
    "UPDATE audit SET actor = 'x' WHERE number = 5": 5,
    "UPDATE audit SET action = 'x' WHERE number = 5": 5,
    "UPDATE audit SET collection = NULL WHERE number = 2": 2,
    "DELETE FROM audit WHERE number = 1": 1,
    "DELETE FROM audit WHERE number = 4": 4,
    "UPDATE audit SET number = 9 WHERE number = 5": 5,
}


def test_whoever_changes_a_line_all_the_same_is_seen(store):
    write(store, 1, 2, 3, 4, 5)
    with store.write() as connection:
        free(connection)
        for statement, broken in FORGERIES.items():
            forged = connection.begin_nested()
            connection.execute(text(statement))
            assert verify(connection).broken == broken, statement
            forged.rollback()
        assert verify(connection).intact
        connection.execute(text(next(iter(FORGERIES))))
    assert any("line 3 " in problem for problem in store.check().problems)


def test_lines_taken_off_the_end_show_in_the_head(store):
    write(store, 1, 2, 3)
    before = store.check()
    assert before.audit_lines == 3
    assert before.audit_head == report(store).head
    with store.write() as connection:
        free(connection)
        connection.execute(text("DELETE FROM audit WHERE number = 3"))
    assert report(store).intact
    assert store.check().audit_head != before.audit_head


def test_a_long_log_is_verified_in_parts(sqlite_store):
    write(sqlite_store, *range(5000))
    assert report(sqlite_store).lines == 5000


def test_processes_number_lines_one_at_a_time(store, store_url, new_store):
    """Several stores, many threads: no gap, no number twice, one chain."""
    stores = [store, new_store(store_url), new_store(store_url)]

    def some(index: int):
        for n in range(10):
            write(stores[index % 3], 100 * index + n)

    threads = [threading.Thread(target=some, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert report(store)[::2] == (60, None)
    found = values(store)
    assert sorted(found) == sorted(100 * index + n for index in range(6) for n in range(10))
    for index in range(6):
        mine = [value for value in found if value // 100 == index]
        assert mine == sorted(mine)


DETAILS = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8).filter(
        lambda key: key not in ("connection", "actor", "action", "collection")
    ),
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.lists(st.integers(), max_size=3),
    max_size=4,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(detail=DETAILS)
def test_a_detail_survives_the_store(store, detail):
    with store.write() as connection:
        record(connection, "service", "test.detail", **detail)
    with store.read() as connection:
        found = lines(connection, limit=10_000)
        assert found[-1].detail == detail
        assert verify(connection).intact
