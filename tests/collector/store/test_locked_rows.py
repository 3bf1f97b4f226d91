"""Locked rows: a writer that finds one backs off, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from functools import partial
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert

from mapveil.collector.store import backends, group_commit
from mapveil.collector.store.audit_log import _LOCK_KEY, record
from mapveil.collector.store.backends import Locked, Repeatable
from mapveil.collector.store.schema import messages
from mapveil_client import connection

from ..faults.scene import until
from .rows import clients, commit, gather, lock_waits, message, put, refuse_after


def test_nothing_that_records_lines_keeps_what_devices_send_waiting(
    postgresql_store, postgresql_url, new_store
):
    """Another process is numbering its lines, and a writer of this one is in a long transaction."""
    store, other = postgresql_store, new_store(postgresql_url)

    def enrol(connection, batch):
        record(connection, "device 1", "test.enrol")
        return batch

    def report(connection, batch):
        return [put(client)(connection) for client in batch]

    async def main():
        with other.write() as numbering, store.write():
            numbering.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            enrolling = asyncio.create_task(store.put(enrol, 1, records=True))
            while not lock_waits(store):
                await asyncio.sleep(0.005)
            assert await store.put(report, 7) == 1
            assert not enrolling.done()
        assert await enrolling == 1

    asyncio.run(main())
    assert clients(store) == [7]


def keeps(connection, batch):
    """Write a batch of clients, as one writer."""
    return [put(client)(connection) for client in batch]


def test_waits_for_locks_end_before_a_phone_gives_up_and_before_deadlocks_are_looked_for(postgresql_store):
    def seconds(connection, batch):
        names = "'lock_timeout', 'deadlock_timeout'"
        asked = f"SELECT name, CAST(setting AS integer) FROM pg_settings WHERE name IN ({names})"
        return [{name: wait / 1000 for name, wait in connection.execute(text(asked))}]

    shared, recorded = gather(
        *(postgresql_store.put(seconds, 0, records=records) for records in (False, True))
    )
    assert 0 < 10 * shared["lock_timeout"] <= shared["deadlock_timeout"]
    assert 0 < 4 * recorded["lock_timeout"] < connection._SILENCE_S  # two locks, after another's two


@pytest.fixture
def patient(monkeypatch):
    """A slow machine may take longer over the rest of a test than a locked row is waited for."""
    monkeypatch.setattr(group_commit, "_GIVE_UP_SECONDS", 600.0)


@pytest.mark.usefixtures("patient")
def test_a_writer_whose_row_is_locked_waits_alone(postgresql_store, postgresql_url, new_store):
    store, other = postgresql_store, new_store(postgresql_url)

    async def main():
        with other.write() as connection:
            put(1)(connection)
            connection.execute(text("DELETE FROM messages"))  # nobody else can take its key until this ends
            waiting = asyncio.create_task(store.put(keeps, 1))
            for n in range(100, 120):
                assert await commit(store, put(n)) == 1
            failing = commit(store, refuse_after(9, ValueError("of its own")))
            own = await asyncio.gather(failing, commit(store, put(120)), return_exceptions=True)
            assert [type(each) for each in own] == [ValueError, int]
            assert not waiting.done()
        assert await waiting == 1

    asyncio.run(main())
    assert clients(store) == [1, *range(100, 121)]


def test_a_row_that_stays_locked_fails_its_own_writer(
    postgresql_store, postgresql_url, new_store, monkeypatch
):
    store, other = postgresql_store, new_store(postgresql_url)
    with monkeypatch.context() as soon, other.write() as connection:
        soon.setattr(group_commit, "_GIVE_UP_SECONDS", 0.0)
        put(1)(connection)
        answers = gather(store.put(keeps, 1), store.put(keeps, 2), commit(store, put(3)))
    assert [type(answer) for answer in answers] == [Locked, Locked, int]
    assert gather(store.put(keeps, 2)) == [1]
    assert clients(store) == [1, 2, 3]


def test_closing_waits_for_no_row_that_is_locked(postgresql_store, postgresql_url, new_store):
    """Whatever waits for it is refused, though it is more than one transaction takes."""
    store, other = postgresql_store, new_store(postgresql_url)

    async def main():
        with other.write() as connection:
            put(1)(connection)
            waiting = [asyncio.create_task(store.put(keeps, 1)) for _ in range(1000)]
            await asyncio.sleep(0)
            await asyncio.to_thread(store.close)
            return await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(answer) for answer in asyncio.run(main())} == {Locked}


class Busy:
    """A writer of clients that finds a row locked in the calls that are named, counted from one."""

    def __init__(self, *locked: int, first: Exception | None = None) -> None:
        self.locked, self.first = locked, first
        self.calls: list[list[int]] = []

    def __call__(self, connection, batch):
        self.calls.append(list(batch))
        if self.first is not None and len(self.calls) <= 2:
            raise self.first
        if len(self.calls) in self.locked:
            raise Locked()
        return keeps(connection, batch)


def together(store, *pairs, beside=None):
    """Answers of items that wait in the order given before the first transaction begins, and others beside them."""

    async def main():
        with store.write():
            waiting = [asyncio.create_task(store.put(writer, item)) for writer, item in pairs]
            await asyncio.sleep(0.05)
        while beside and not all(task.done() for task in waiting):
            await store.put(beside, 0)
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


@pytest.mark.usefixtures("patient")
def test_a_writer_that_finds_its_row_locked_when_written_again_backs_off_in_order(sqlite_store):
    """Another item of its transaction failed, and all were written again, each in a savepoint."""
    busy, failing = Busy(2), refuse_after(9, ValueError("of its own"))
    answers = together(sqlite_store, (busy, 1), (busy, 2), (lambda connection, _: failing(connection), 0))
    assert [type(answer) for answer in answers] == [int, int, ValueError]
    assert busy.calls == [[1, 2], [1], [1, 2]]
    assert clients(sqlite_store) == [1, 2]
    assert not sqlite_store._commits._backoffs


@pytest.mark.usefixtures("patient")
def test_a_writer_that_finds_its_row_locked_in_a_transaction_of_its_own_backs_off_in_order(sqlite_store):
    """Its transaction was in another's way, twice."""
    busy = Busy(3, first=Repeatable("in each other's way"))
    assert together(sqlite_store, (busy, 1), (busy, 2)) == [1, 1]
    assert busy.calls == [[1, 2], [1], [1], [1, 2]]


@pytest.fixture
def simulated(monkeypatch):
    """Time of the thread that commits, which passes only as it is told to: by a writer that is free, 20 ms."""
    time = SimpleNamespace(now=0.0, monotonic=lambda: time.now, sleep=lambda seconds: None)

    def free(connection, batch):
        time.now += 0.02
        assert time.now < 1000
        return list(batch)

    time.free = free
    monkeypatch.setattr(group_commit, "time", time)
    return time


def test_each_item_waits_for_a_locked_row_as_long_as_it_may_and_no_longer(sqlite_store, simulated):
    """However long others have waited for it, and though the first try alone took longer."""
    tries, refused = [], {}

    def locked(connection, batch):
        tries.append(len(batch))
        simulated.now += 10.5 if len(tries) == 1 else 0.1
        raise Locked

    async def wait(item):
        since = simulated.now
        with pytest.raises(Locked):
            await sqlite_store.put(locked, item)
        refused[item] = simulated.now - since

    async def main():
        tasks = [asyncio.create_task(wait(0))]
        while not tries or simulated.now < 15:
            await sqlite_store.put(simulated.free, 0)
        tasks += [asyncio.create_task(wait(n)) for n in range(1, 601)]  # more than one transaction takes
        while not all(task.done() for task in tasks):
            await sqlite_store.put(simulated.free, 0)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert len(refused) == 601
    assert all(10 <= waited < 11 for waited in refused.values())
    assert len(tries) < 30


def test_a_row_that_is_waited_for_five_seconds_is_tried_again(sqlite_store, simulated):
    """As one is by a writer that records audit lines."""
    tries = []

    def locked_for_six_seconds(connection, batch):
        tries.append(simulated.now)
        if len(tries) == 1:
            simulated.now += 5
            raise Locked
        return batch

    answers = together(sqlite_store, (locked_for_six_seconds, 1), beside=simulated.free)
    assert answers == [1]
    assert tries[1] < 8


def test_a_short_try_of_one_locked_row_ends_no_hold_of_a_longer_one(sqlite_store, simulated, monkeypatch):
    monkeypatch.setattr(group_commit, "secrets", SimpleNamespace(randbelow=lambda _: 0))
    tries = {2.0: [], 0.1: []}

    def of(seconds):
        def locked_at_first(connection, batch):
            tries[seconds].append(simulated.now)
            if len(tries[seconds]) == 1:
                simulated.now += seconds
                raise Locked
            return batch

        return locked_at_first

    assert together(sqlite_store, (of(2.0), 1), (of(0.1), 2), beside=simulated.free) == [1, 2]
    assert [each[0] for each in tries.values()] == [0.0, 2.0]
    assert all(each[1] >= 4.0 for each in tries.values())  # as long after the longer try as it took


def test_a_row_that_was_locked_long_ago_refuses_nobody_untried(sqlite_store, simulated):
    """Others took long meanwhile."""
    locked = [True]

    def busy(connection, batch):
        if locked:
            simulated.now += 0.1
            raise Locked
        return batch

    def stalls(connection, batch):
        simulated.now += 12
        return batch

    assert isinstance(together(sqlite_store, (busy, 1), beside=simulated.free)[0], Locked)
    locked.clear()
    simulated.now += 300
    assert together(sqlite_store, (stalls, 0), (busy, 2), (simulated.free, 3)) == [0, 2, 3]


def test_what_is_given_up_stays_in_memory_no_longer_than_its_answer(sqlite_store, monkeypatch):
    """Without a collection of garbage."""
    gone, calls = [], []

    class Item:
        def __del__(self):
            gone.append(1)

    def busy(connection, batch):
        calls.append(len(batch))
        raise Repeatable("in each other's way") if len(calls) < 3 else Locked()

    async def send():
        puts = (sqlite_store.put(busy, Item()) for _ in range(2))
        return [type(each) for each in await asyncio.gather(*puts, return_exceptions=True)]

    monkeypatch.setattr(group_commit, "_GIVE_UP_SECONDS", 0.0)
    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(send()) == [Locked] * 2
        until(lambda: len(gone) == 2, "the items are gone", 60)
    finally:
        gc.enable()


def test_no_transaction_waits_for_one_locked_row_after_another(sqlite_store, simulated):
    """Of 20 writers each finds its row locked when it is written again; their items keep their order."""
    began: list[list[str]] = []
    written: dict[int, list[int]] = {}

    @contextlib.contextmanager
    def transaction():
        began.append([])
        with sqlite_store.write() as connection:
            yield connection

    def of(number):
        calls = []

        def writer(connection, batch):
            calls.append(batch)
            if len(calls) == 2:
                simulated.now += 0.1
                began[-1].append("locked")
                raise Locked()
            written[number] = list(batch)
            return keeps(connection, [10 * number + each for each in batch])

        return writer

    sqlite_store._commits._transaction = transaction
    failing = refuse_after(99, ValueError("of its own"))
    writers = [of(n) for n in range(20)]
    pairs = [(writer, item) for writer in writers for item in range(2)]
    pairs.append((lambda connection, _: failing(connection), 0))
    answers = together(sqlite_store, *pairs, beside=simulated.free)
    assert [type(answer) for answer in answers] == [int] * 40 + [ValueError]
    assert max(map(len, began)) == 1
    assert written == {number: [0, 1] for number in range(20)}


@pytest.mark.parametrize("count", [1, 5, 20])
def test_locked_rows_leave_half_of_the_time_to_the_others_until_they_are_given_up(
    sqlite_store, simulated, count
):
    tries: list[float] = []

    def locked(connection, batch):
        tries.append(simulated.now)
        simulated.now += 0.1
        raise Locked()

    pairs = [(lambda connection, batch, n=n: locked(connection, batch), n) for n in range(count)]
    answers = together(sqlite_store, *pairs, beside=simulated.free)
    assert {type(answer) for answer in answers} == {Locked}
    assert simulated.now < group_commit._GIVE_UP_SECONDS + 0.5
    found = tries[count - 1] + 0.1  # until then each was tried once
    later = tries[count:]
    assert len(later) >= count / 2
    assert count > 1 or len(tries) < 20  # each back-off of one alone is longer than the last
    assert 0.1 * len(later) <= (later[-1] + 0.1 - found) / 2 + 0.1


def test_two_processes_that_hold_what_the_other_waits_for_both_go_on(postgresql_url, new_store, monkeypatch):
    """Without PostgreSQL's own search for deadlocks, which begins after a second."""
    settings = (*backends._POSTGRESQL_SETTINGS, "SET deadlock_timeout = '60s'")
    monkeypatch.setattr(backends, "_POSTGRESQL_SETTINGS", settings)
    stores = [new_store(postgresql_url) for _ in range(2)]
    stores[0].create_tables()
    both_hold = threading.Barrier(2)

    def keep(connection, client):
        connection.execute(insert(messages).on_conflict_do_nothing(), message(client))

    def keep_and_meet(connection, client):
        keep(connection, client)
        with contextlib.suppress(threading.BrokenBarrierError):  # broken when it is written again
            both_hold.wait(60)
            both_hold.abort()

    async def main():
        await asyncio.gather(
            *(
                commit(store, partial(work, client=client))
                for store, clients in zip(stores, ((1, 2), (2, 1)), strict=True)
                for work, client in zip((keep_and_meet, keep), clients, strict=True)
            )
        )

    asyncio.run(main())
    assert clients(stores[0]) == [1, 2]
