"""A store whose database fails: full, replaced, restarted, damaged."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.dialects import postgresql as dialect

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store import backends
from mapveil.collector.store.backends import Repeatable
from mapveil.collector.store.schema import messages

from .rows import clients, commit, gather, message, put, write


def test_a_full_disk_refuses_and_heals(sqlite_store):
    pages = "PRAGMA max_page_count = {}"
    with sqlite_store.write() as connection:
        full = connection.execute(text("PRAGMA page_count")).scalar_one() + 5
        connection.exec_driver_sql(pages.format(full))
    answers = gather(*(commit(sqlite_store, put(n, bytes(4000))) for n in range(100)))
    assert any(isinstance(answer, StoreUnavailable) for answer in answers)
    kept = clients(sqlite_store)
    assert kept == [n for n, answer in enumerate(answers) if answer == 1]
    with pytest.raises(StoreUnavailable), sqlite_store.write() as connection:
        connection.execute(messages.insert(), message(1000, bytes(100_000)))
    with sqlite_store.write() as connection:
        connection.exec_driver_sql(pages.format(1 << 30))
    missing = [n for n, answer in enumerate(answers) if answer != 1]
    assert gather(*(commit(sqlite_store, put(n, bytes(4000))) for n in missing)) == [1] * len(missing)
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
        (answer,) = gather(commit(store, put(n, bytes(4000))))
        if isinstance(answer, StoreUnavailable):
            break
        acknowledged.append(n)
    else:
        pytest.fail("the disk was never full")
    assert clients(store) == acknowledged
    report = store.check()  # one, which may take the last page
    assert report.ok == report.writable
    ballast.unlink()
    assert gather(commit(store, put(5000, bytes(4000)))) == [1]
    assert clients(store) == [*acknowledged, 5000]
    store.close()


def test_a_file_that_was_replaced_is_noticed(sqlite_store, sqlite_url):
    """Connections that are open would go on writing to a file that has no name any more."""
    path = Path(sqlite_url)
    aside = path.with_name("aside")
    path.rename(aside)
    assert isinstance(gather(commit(sqlite_store, put(1)))[0], StoreUnavailable)
    with pytest.raises(StoreUnavailable), sqlite_store.read():
        pass
    assert not path.exists()
    aside.rename(path)
    assert gather(commit(sqlite_store, put(1))) == [1]
    assert clients(sqlite_store) == [1]


@pytest.mark.parametrize("silent", [0.0, math.inf], ids=["asked first", "used at once"])
def test_a_server_that_restarts_is_found_again(postgresql, postgresql_store, monkeypatch, silent):
    monkeypatch.setattr(backends, "_SILENT_SECONDS", silent)
    store = postgresql_store
    assert gather(commit(store, put(1))) == [1]
    postgresql.stop()
    assert isinstance(gather(commit(store, put(2)))[0], StoreUnavailable)
    with pytest.raises(StoreUnavailable), store.read():
        pass
    assert not store.check().reachable
    postgresql.start()
    assert gather(commit(store, put(3))) == [1]
    postgresql.restart()
    if silent:  # one transaction fails, and no connection of before is used again
        with pytest.raises(StoreUnavailable):
            clients(store)
    assert clients(store) == [1, 3]
    assert gather(commit(store, put(4))) == [1]


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
                await commit(postgresql_store, lambda c, n=n: c.execute(again.values(message(n))))
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
    """The memory of the service was rebuilt from the file that is gone."""
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
