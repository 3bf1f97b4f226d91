"""The store: durable, shared fairly, and honest when its database fails."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.dialects import postgresql as dialect
from sqlalchemy.exc import DBAPIError, IntegrityError

from mapveil.collector.refusals import Conflict, StoreUnavailable
from mapveil.collector.store.backends import Repeatable
from mapveil.collector.store.database import Store, lock_collection
from mapveil.collector.store.group_commit import FairLock
from mapveil.collector.store.schema import messages, operators
from mapveil_client.errors import InputError

SECRET = b"52.379189 4.899431, where somebody lives"


def message(client: int, body: bytes = b"body") -> dict[str, object]:
    return {"collection": "c", "round": 1, "phase": 0, "shard": 0, "client": client, "body": body}


def put(client: int, body: bytes = b"body"):
    return lambda connection: connection.execute(messages.insert(), message(client, body)) and 1


def refuse_after(client: int, error: Exception | type[Exception]):
    def work(connection):
        put(client)(connection)
        raise error

    return work


def write(store, work):
    with store.write() as connection:
        work(connection)


def clients(store) -> list[int]:
    with store.read() as connection:
        return list(connection.execute(select(messages.c.client).order_by(messages.c.client)).scalars())


def gather(*works):
    async def main():
        return await asyncio.gather(*works, return_exceptions=True)

    return asyncio.run(main())


# Where a store is


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


def test_a_password_is_never_shown(clock):
    store = Store("postgresql://me:hunter2@localhost:1/x", clock=clock)
    with pytest.raises(StoreUnavailable) as caught, store.read():
        pass
    told = [repr(store), store.shown, str(caught.value), str(caught.value.__cause__), str(store.check())]
    assert not any("hunter2" in line for line in told)
    assert "me:***@localhost" in store.shown
    assert not store.check().reachable
    store.close()


# Transactions


def test_what_was_written_is_there_for_the_next_process(store, store_url, new_store):
    with store.write() as connection:
        connection.execute(messages.insert(), message(1))
    assert gather(store.commit(put(2))) == [1]
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


# Group commit


def test_works_share_commits_and_get_their_own_answers(store):
    batches = []
    store.on_commit = batches.append
    assert gather(*(store.commit(lambda _, n=n: n * n) for n in range(1000))) == [n * n for n in range(1000)]
    assert sum(batch.items for batch in batches) == 1000
    assert len(batches) < 100


def test_a_work_that_raises_fails_alone(store):
    works = [put(100 + n) if n % 3 else refuse_after(9, Conflict("no")) for n in range(60)]
    answers = gather(*(store.commit(work) for work in works))
    assert [isinstance(answer, Conflict) for answer in answers] == [n % 3 == 0 for n in range(60)]
    assert clients(store) == [100 + n for n in range(60) if n % 3]


def test_a_row_that_breaks_the_schema_fails_alone(store):
    answers = gather(*(store.commit(put(n)) for n in (1, 2, 1, 3)))
    assert [type(answer) for answer in answers] == [int, int, IntegrityError, int]
    assert clients(store) == [1, 2, 3]


def test_an_answer_comes_after_the_commit_only(store):
    """Whoever was answered finds the row with another connection."""

    async def one(client: int) -> bool:
        await store.commit(put(client))
        return client in clients(store)

    assert gather(*(one(client) for client in range(30))) == [True] * 30


def test_a_work_whose_waiter_left_holds_nobody_up(store):
    async def main():
        with store.write():  # the thread waits for this, so nothing is taken yet
            task = asyncio.create_task(store.commit(put(1)))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0.01)
        await store.commit(put(2))

    asyncio.run(main())
    assert clients(store)[-1] == 2


def test_a_loop_that_was_closed_holds_nobody_up(store):
    loop = asyncio.new_event_loop()
    release = threading.Event()

    def slow(connection):
        release.wait(5)
        put(1)(connection)

    task = loop.create_task(store.commit(slow))
    loop.run_until_complete(asyncio.sleep(0.05))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    release.set()
    assert gather(store.commit(put(2))) == [1]
    assert clients(store) == [1, 2]


def test_closing_commits_what_waits_and_refuses_the_rest(store, store_url, new_store):
    async def main():
        waiting = [asyncio.create_task(store.commit(put(n))) for n in range(50)]
        await asyncio.sleep(0)
        await asyncio.to_thread(store.close)
        answers = await asyncio.gather(*waiting)
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.commit(put(99))
        return answers

    assert asyncio.run(main()) == [1] * 50
    assert clients(new_store(store_url)) == list(range(50))


def test_group_commits_do_not_keep_a_writer_out(store):
    """A thread that commits all the time gives way to whoever waits."""
    done, batches = threading.Event(), []
    store.on_commit = batches.append
    between = []  # commits of others while a writer waited

    def write():
        for n in range(20):
            before = len(batches)
            with store.write() as connection:
                between.append(len(batches) - before)
                connection.execute(messages.insert(), message(1_000_000 + n))
        done.set()

    async def main():
        async def one(first: int):
            n = first
            while not done.is_set():
                await store.commit(put(n))
                n += 200

        await asyncio.gather(asyncio.to_thread(write), *(one(first) for first in range(200)))

    asyncio.run(main())
    assert len(between) == 20
    assert max(between) <= 3


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
            while len(lock._waiting) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == list(range(20))


def test_thousands_of_inserts_share_few_commits(sqlite_store):
    count, batches = 5000, []
    sqlite_store.on_commit = batches.append

    async def main():
        numbers = iter(range(count))

        async def one():
            for n in numbers:
                await sqlite_store.commit(put(n, bytes(200)))

        await asyncio.gather(*(one() for _ in range(500)))

    asyncio.run(main())
    assert len(batches) < count / 20
    assert len(clients(sqlite_store)) == count


KILLED = """
import asyncio, sys
from mapveil.collector.clock import SystemClock
from mapveil.collector.store.schema import messages
from mapveil.collector.store.database import Store

store = Store(sys.argv[1], clock=SystemClock())
async def one(n):
    while True:
        row = {"collection": "c", "round": 1, "phase": 0, "shard": 0, "client": n, "body": b"x"}
        await store.commit(lambda connection: connection.execute(messages.insert(), row))
        print(n, flush=True)
        n += 20
async def main():
    await asyncio.gather(*(one(n) for n in range(20)))
asyncio.run(main())
"""


def test_what_was_acknowledged_survives_a_kill(store, store_url):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, store_url], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    seen = [process.stdout.readline() for _ in range(300)]
    process.send_signal(signal.SIGKILL)
    seen += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    acknowledged = {int(line) for line in seen if line.endswith("\n")}
    assert len(acknowledged) >= 300
    assert acknowledged <= set(clients(store))
    assert store.check().ok


# A failing database


def test_a_full_disk_refuses_and_heals(sqlite_store):
    pages = "PRAGMA max_page_count = {}"
    with sqlite_store.write() as connection:
        full = connection.execute(text("PRAGMA page_count")).scalar_one() + 5
        connection.exec_driver_sql(pages.format(full))
    answers = gather(*(sqlite_store.commit(put(n, bytes(4000))) for n in range(100)))
    assert any(isinstance(answer, StoreUnavailable) for answer in answers)
    kept = clients(sqlite_store)
    assert kept == [n for n, answer in enumerate(answers) if answer == 1]
    with pytest.raises(StoreUnavailable), sqlite_store.write() as connection:
        connection.execute(messages.insert(), message(1000, bytes(100_000)))
    with sqlite_store.write() as connection:
        connection.exec_driver_sql(pages.format(1 << 30))
    missing = [n for n, answer in enumerate(answers) if answer != 1]
    assert gather(*(sqlite_store.commit(put(n, bytes(4000))) for n in missing)) == [1] * len(missing)
    assert clients(sqlite_store) == list(range(100))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full_refuses_and_heals(small_disk, new_store):
    store = new_store(str(small_disk / "store.sqlite"))
    store.create_tables()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    acknowledged = []
    for n in range(1000):
        (answer,) = gather(store.commit(put(n, bytes(4000))))
        if isinstance(answer, StoreUnavailable):
            break
        acknowledged.append(n)
    else:
        pytest.fail("the disk was never full")
    assert clients(store) == acknowledged
    assert not store.check().writable or store.check().ok
    ballast.unlink()
    assert gather(store.commit(put(5000, bytes(4000)))) == [1]
    assert clients(store) == [*acknowledged, 5000]
    store.close()


def test_a_file_that_was_replaced_is_noticed(sqlite_store, sqlite_url):
    """Connections that are open would go on writing to a file that has no name any more."""
    path = Path(sqlite_url)
    aside = path.with_name("aside")
    path.rename(aside)
    assert isinstance(gather(sqlite_store.commit(put(1)))[0], StoreUnavailable)
    with pytest.raises(StoreUnavailable), sqlite_store.read():
        pass
    assert not path.exists()
    aside.rename(path)
    assert gather(sqlite_store.commit(put(1))) == [1]
    assert clients(sqlite_store) == [1]


def test_a_server_that_restarts_is_found_again(postgresql, postgresql_store):
    store = postgresql_store
    assert gather(store.commit(put(1))) == [1]
    postgresql.stop()
    assert isinstance(gather(store.commit(put(2)))[0], StoreUnavailable)
    with pytest.raises(StoreUnavailable), store.read():
        pass
    assert not store.check().reachable
    postgresql.start()
    assert gather(store.commit(put(3))) == [1]
    postgresql.restart()
    assert clients(store) == [1, 3]
    assert gather(store.commit(put(4))) == [1]


def test_a_restart_in_a_transaction_is_unavailable(postgresql, postgresql_store):
    def work(connection):
        put(1)(connection)
        postgresql.restart()
        put(2)(connection)

    with pytest.raises(StoreUnavailable):
        write(postgresql_store, work)
    assert clients(postgresql_store) == []


def test_nothing_acknowledged_is_lost_by_restarts(postgresql, postgresql_store):
    acknowledged, stop = [], threading.Event()
    again = dialect.insert(messages).on_conflict_do_nothing()

    async def one(n: int):
        while not stop.is_set():
            try:
                await postgresql_store.commit(lambda c, n=n: c.execute(again.values(message(n))))
            except StoreUnavailable:
                await asyncio.sleep(0.01)
                continue
            acknowledged.append(n)
            n += 20

    async def main():
        tasks = [asyncio.create_task(one(n)) for n in range(20)]
        async with asyncio.timeout(300):
            for restarts in range(4):
                while len(acknowledged) <= 40 * restarts:
                    await asyncio.sleep(0.05)
                if restarts < 3:
                    await asyncio.to_thread(postgresql.restart)
        stop.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert len(acknowledged) > 100
    assert set(acknowledged) <= set(clients(postgresql_store))


# Several processes


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
        await asyncio.gather(*(store.commit(change(n)) for _ in range(5) for n, store in enumerate(stores)))

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

    def change(shared: bool):
        with other.write() as connection:
            assert lock_collection(connection, "c", shared=shared)
            order.append("theirs")

    for mine, theirs, wanted in [
        (False, True, ["mine", "theirs"]),
        (True, False, ["mine", "theirs"]),
        (True, True, ["theirs", "mine"]),
    ]:
        order.clear()
        with postgresql_store.write() as connection:
            lock_collection(connection, "c", shared=mine)
            thread = threading.Thread(target=change, args=(theirs,))
            thread.start()
            thread.join(0.3)
            order.append("mine")
        thread.join()
        assert order == wanted


def test_there_may_be_no_such_collection(store):
    with store.write() as connection:
        assert not lock_collection(connection, "nothing")


# What is told


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
    assert (report.version, report.audit_lines) == (1, 0)
    assert report.ok
    warned = ["PostgreSQL's fsync is off" in warning for warning in report.warnings]
    assert warned == ([True] if store.dialect == "postgresql" else [])  # as the tests' server runs
    assert clients(store) == []


def test_a_store_that_was_not_made_is_examined(new_store, store_url):
    report = new_store(store_url).check()
    assert not report.ok
    assert report.version is None
    assert report.reachable == store_url.startswith("postgresql")


def test_a_store_that_cannot_be_written_is_examined(sqlite_store):
    with sqlite_store.write() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    report = sqlite_store.check()
    assert report.reachable
    assert not report.writable
    assert not report.ok


def test_a_damaged_file_is_unavailable(new_store, tmp_path):
    path = tmp_path / "store.sqlite"
    store = new_store(str(path))
    store.create_tables()
    store.close()
    path.write_bytes(path.read_bytes()[:4096] + os.urandom(path.stat().st_size - 4096))
    again = new_store(str(path))
    with pytest.raises(StoreUnavailable), again.read() as connection:
        connection.execute(select(messages)).all()
    assert not again.check().ok


def test_giving_way_is_a_kind_of_unavailable():
    assert issubclass(Repeatable, StoreUnavailable)


def test_another_file_in_its_place_is_refused_until_a_restart(new_store, tmp_path):
    """What the service holds in memory was rebuilt from the file that is gone."""
    stores = [new_store(str(tmp_path / name)) for name in ("one.sqlite", "two.sqlite")]
    for number, store in enumerate(stores):
        store.create_tables()
        write(store, put(number))
    stores[1].close()
    os.replace(tmp_path / "two.sqlite", tmp_path / "one.sqlite")
    with pytest.raises(StoreUnavailable, match="must be restarted"):
        write(stores[0], put(2))
    assert not stores[0].check().ok
    stores[0].close()
    for ending in ("-wal", "-shm"):  # of the file that is gone: SQLite would play them back into the new one
        (tmp_path / f"one.sqlite{ending}").unlink(missing_ok=True)
    assert clients(new_store(str(tmp_path / "one.sqlite"))) == [1]
