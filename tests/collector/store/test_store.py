"""The store: transactions, several processes, and its examination."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from mapveil.cli.store_actions import open_store
from mapveil.collector.clock import SystemClock
from mapveil.collector.http.examination import examine, sign_head
from mapveil.collector.http.settings import Settings
from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store import backends
from mapveil.collector.store.database import FairLock, Store, lock_collection
from mapveil.collector.store.principals import Accounts
from mapveil.collector.store.schema import VERSION, messages, operators
from mapveil_client.errors import InputError, PromiseError

from .rows import clients, commit, gather, message, put, refuse_after, write

SECRET = b"52.379189 4.899431, where somebody lives"


@pytest.mark.parametrize(
    "url",
    [
        "",
        ":memory:",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://x/y",
        "sqlite://host/x",
        "postgresql://h:port/x",
    ],
)
def test_what_is_no_store_is_refused(url, clock):
    with pytest.raises(InputError, match="expected"):
        Store(url, clock=clock)


@pytest.mark.parametrize(
    "given", ["me:hunter2@localhost:1/x", "me@localhost:1/x?password=hunter2&sslpassword=hunter2"]
)
def test_a_password_is_never_shown(clock, given):
    store = Store(f"postgresql://{given}", clock=clock)
    with pytest.raises(StoreUnavailable) as caught, store.read():
        pass
    told = [repr(store), store.shown, str(caught.value), str(caught.value.__cause__), str(store.check())]
    assert not any("hunter2" in line for line in told)
    assert re.fullmatch(r"postgresql://me(:\*+)?@localhost:1/x", store.shown)
    assert not store.check().reachable
    store.close()


def test_what_was_written_is_there_for_the_next_process(store, store_url, new_store):
    with store.write() as connection:
        connection.execute(messages.insert(), message(1))
    assert gather(commit(store, put(2))) == [1]
    assert clients(new_store(store_url)) == [1, 2]


def test_a_block_that_raises_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError):
        write(store, refuse_after(1, ZeroDivisionError))
    assert clients(store) == []


def test_reading_cannot_write(store):
    with pytest.raises((DBAPIError, StoreUnavailable)), store.read() as connection:
        connection.execute(messages.insert(), message(1))
    assert clients(store) == []


def test_reading_sees_one_moment(store):
    count = select(func.count()).select_from(messages)
    with store.read() as connection:
        assert connection.execute(count).scalar_one() == 0
        with store.write() as other:
            other.execute(messages.insert(), message(1))
        assert connection.execute(count).scalar_one() == 0
    assert clients(store) == [1]


def test_writing_within_writing_is_a_mistake_and_no_deadlock(store):
    with pytest.raises(RuntimeError, match="within another"), store.write(), store.write():
        pass
    with store.write() as connection:
        connection.execute(messages.insert(), message(1))
    assert clients(store) == [1]


def test_transactions_in_each_others_way_are_run_again(postgresql_store, postgresql_url, new_store):
    """Two stores take the same rows in opposite order, again and again: every work succeeds in the end."""
    stores = [postgresql_store, new_store(postgresql_url)]
    with postgresql_store.write() as connection:
        connection.execute(messages.insert(), [message(n) for n in range(2)])

    def change(first: int):
        def work(connection):
            for client in (first, 1 - first):
                row = messages.c.client == client
                connection.execute(messages.update().where(row).values(shard=messages.c.shard + 1))
                time.sleep(0.002)

        return work

    async def main():
        await asyncio.gather(*(commit(store, change(n)) for _ in range(5) for n, store in enumerate(stores)))

    asyncio.run(main())
    with postgresql_store.read() as connection:
        assert list(connection.execute(select(messages.c.shard)).scalars()) == [10, 10]


def test_one_alone_has_a_role(store, store_url, new_store):
    other = new_store(store_url)
    with store.sole("conductor") as mine:
        assert mine
        with (
            other.sole("conductor") as theirs,
            store.sole("conductor") as again,
            other.sole("porter") as porter,
        ):
            assert (theirs, again, porter) == (False, False, True)
    with other.sole("conductor") as theirs:
        assert theirs


def test_a_role_is_given_back_by_a_block_that_raises(store, store_url, new_store):
    with pytest.raises(ZeroDivisionError), store.sole("conductor"):
        raise ZeroDivisionError
    with new_store(store_url).sole("conductor") as mine:
        assert mine


def test_a_role_is_given_back_by_a_lost_connection(postgresql, postgresql_store, postgresql_url, new_store):
    with postgresql_store.sole("conductor") as mine:
        assert mine
        postgresql.restart()
        with new_store(postgresql_url).sole("conductor") as theirs:
            assert theirs
    with postgresql_store.sole("conductor") as mine:
        assert mine


def test_a_frozen_process_loses_its_role(postgresql_store, postgresql_url, new_store, monkeypatch):
    """What PostgreSQL sees of one is silence; a process that says that it goes on keeps the role."""
    monkeypatch.setattr(backends, "HOLDER_SECONDS", 10)  # far more than a busy machine lets a thread wait
    other = new_store(postgresql_url)

    def taken() -> bool:
        with other.sole("conductor") as theirs:
            return theirs

    with postgresql_store.sole("conductor") as mine:
        assert mine
        until = time.monotonic() + backends.HOLDER_SECONDS + 1
        while time.monotonic() < until:
            assert postgresql_store.remain("conductor")
            time.sleep(0.1)
        assert not taken()
        until = time.monotonic() + 300
        while not taken():
            assert time.monotonic() < until
            time.sleep(0.1)
        assert not postgresql_store.remain("conductor")
        assert not postgresql_store.remain("conductor")
    with postgresql_store.sole("conductor") as mine:
        assert mine
    # A connection that holds no role may be silent.
    for each in (postgresql_store, other):
        with each.read() as connection:
            assert connection.execute(text("SHOW idle_session_timeout")).scalar_one() == "0"


def test_a_clock_far_from_the_databases_is_told(store, postgresql_store, postgresql_url, monkeypatch):
    """Leases and phases are set by the clock of one process and read by that of another."""
    assert store.clock_fault() is None or store.shareable
    now = SystemClock().now()
    for seconds, told in ((-400, "400 s behind"), (900, "900 s ahead of"), (2, None)):
        postgresql_store.clock.wall = now + timedelta(seconds=seconds)
        fault = postgresql_store.clock_fault()
        assert fault is None if told is None else told in fault
    monkeypatch.setattr(SystemClock, "now", lambda _: now + timedelta(hours=1))
    settings = Settings(store=postgresql_url, port=0)
    with pytest.raises(InputError, match="this machine's clock is 3,600 s ahead"):
        open_store(settings)
    assert any("synchronize both" in each.detail for each in examine(settings) if each.state == "failed")


def test_a_database_without_tables_is_empty_and_not_one_that_cannot_be_written(store_url):
    if "://" not in store_url:
        Path(store_url).touch()
    found = {each.what: each for each in examine(Settings(store=store_url, port=0))}
    assert found["store"].state == "ok"
    assert found["store"].detail.endswith(", empty): mapveil serve makes its tables")
    with pytest.raises(PromiseError, match="no head is signed: the store has no tables yet"):
        sign_head(Settings(store=store_url))


def test_a_right_that_the_user_lacks_is_named(postgresql, postgresql_url, new_store):
    store = new_store(postgresql_url.replace("mapveil@", "stranger@"))
    with postgresql.connect(postgresql_url.split("@/")[1].split("?")[0]) as admin:
        admin.execute("CREATE ROLE stranger LOGIN")
        admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        with pytest.raises(
            StoreUnavailable, match="no schema has been selected to create in; make that user"
        ):
            store.create_tables()
        (problem,) = store.check().problems
        assert "user USAGE of any schema of its search_path" in problem
        admin.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")  # as PostgreSQL 15 begins
        with pytest.raises(StoreUnavailable, match="permission denied for schema public; make that user"):
            store.create_tables()
        (problem,) = store.check().problems
        assert "user CREATE in schema public; make that user the owner" in problem


def test_tables_in_a_schema_that_the_user_may_not_use_are_not_said_to_be_none(
    postgresql, postgresql_store, postgresql_url, new_store
):
    guest = new_store(postgresql_url.replace("mapveil@", "blind@"))
    with postgresql.connect(postgresql_url.split("@/")[1].split("?")[0]) as admin:
        admin.execute("CREATE ROLE blind LOGIN")
        admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        (problem,) = guest.check().problems
        assert "user USAGE of any schema of its search_path" in problem
        admin.execute("DROP ROLE blind")


def test_a_user_who_may_write_the_version_alone_has_no_writable_store(
    postgresql, postgresql_store, postgresql_url, new_store
):
    guest = new_store(postgresql_url.replace("mapveil@", "guest@"))
    with postgresql.connect(postgresql_url.split("@/")[1].split("?")[0]) as admin:
        admin.execute("CREATE ROLE guest LOGIN")
        admin.execute("GRANT USAGE ON SCHEMA public TO guest")  # which a schema made anew lacks
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
        admin.execute("GRANT UPDATE ON schema_version TO guest")
        report = guest.check()
        assert report.reachable
        assert not report.writable
        (problem,) = report.problems
        assert all(f" {table}" in problem for table in ("collections", "reports", "audit"))
        admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guest")
        report = guest.check()
        assert not report.writable
        assert (
            "rights on public.devices_id_seq, public.enrolments_id_seq, public.operators_id_seq; "
            in report.problems[0]
        )
        admin.execute("REVOKE SELECT ON audit FROM guest")
        (problem,) = guest.check().problems  # one fault, however many look at the table
        assert "rights on audit, " in problem
        admin.execute("GRANT SELECT ON audit TO guest")
        numbered = "devices_id_seq, enrolments_id_seq, operators_id_seq"
        admin.execute(f"GRANT USAGE ON {numbered} TO guest")
        admin.execute("REVOKE UPDATE, DELETE ON audit, charges FROM guest")
        assert guest.check().writable
        guest.create_tables()
        assert Accounts(guest).create_operator("me", "admin", timedelta(days=1), "command line").id == 1
        admin.execute("DROP OWNED BY guest")
        admin.execute("DROP ROLE guest")


def add_collection(store) -> None:
    times = {"created_at": "a"}
    with store.write() as connection:
        connection.execute(
            operators.insert(),
            {"id": 1, "name": "n", "role": "admin", "token_hash": bytes(32), "expires_at": "b", **times},
        )
        connection.execute(
            text(
                "INSERT INTO collections (id, state, terms, join_seconds, phase_seconds, created_by, created_at) "
                "VALUES ('c', 'pending', :terms, 1, 1, 1, 'a')"
            ),
            {"terms": b""},
        )


def test_a_locked_collection_waits(postgresql_store, postgresql_url, new_store):
    add_collection(postgresql_store)
    other, order = new_store(postgresql_url), []

    def change():
        with other.write() as connection:
            assert lock_collection(connection, "c")
            order.append("theirs")

    with postgresql_store.write() as connection:
        lock_collection(connection, "c")
        thread = threading.Thread(target=change)
        thread.start()
        thread.join(0.3)
        order.append("mine")
    thread.join()
    assert order == ["mine", "theirs"]


def test_there_may_be_no_such_collection(store):
    with store.write() as connection:
        assert not lock_collection(connection, "nothing")


def test_no_row_is_told_in_an_error(store, caplog):
    caplog.set_level(logging.DEBUG)
    rows = [message(1, SECRET), message(1, SECRET)]
    with pytest.raises(IntegrityError) as caught, store.write() as connection:
        connection.execute(messages.insert(), rows)
    bad = {**message(2, SECRET), "shard": None}
    with pytest.raises(IntegrityError) as missing, store.write() as connection:
        connection.execute(messages.insert(), bad)
    for error in (caught.value, missing.value):
        told = f"{error}{error!r}{error.orig}{error.orig!r}{caplog.text}"
        assert "52.379" not in told
        assert SECRET.hex()[:16] not in told
        assert "Failing row" not in told


def test_a_store_is_examined(store, store_url, new_store):
    report = store.check()
    assert report.reachable
    assert report.writable
    assert (report.version, report.audit_lines) == (VERSION, 0)
    assert report.ok
    warned = ["PostgreSQL's fsync is off" in warning for warning in report.warnings]
    assert warned == ([True] if store.dialect == "postgresql" else [])  # as the tests' server runs
    assert clients(store) == []


def test_a_store_that_was_not_made_is_examined(new_store, store_url):
    report = new_store(store_url).check()
    assert report.ok == report.reachable  # a database without tables is there
    assert report.version is None
    assert report.reachable == store_url.startswith("postgresql")


def test_a_store_that_cannot_be_written_is_examined(sqlite_store):
    with sqlite_store.write() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    report = sqlite_store.check()
    assert report.reachable
    assert not report.writable
    assert not report.ok


def test_a_fair_lock_is_given_in_order():
    lock, order, threads = FairLock(), [], []

    def hold(number: int):
        with lock.held():
            order.append(number)

    with lock.held():
        for number in range(20):
            thread = threading.Thread(target=hold, args=(number,))
            thread.start()
            threads.append(thread)
            while len(lock._queue) <= number + 1:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == list(range(20))
