"""Group commit: writes share commits, fail alone, and survive a kill once they are acknowledged."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy.exc import IntegrityError

from mapveil.collector.refusals import Conflict, StoreUnavailable
from mapveil.collector.store import group_commit
from mapveil.collector.store.backends import Repeatable
from mapveil.collector.store.schema import messages

from .rows import clients, commit, gather, message, put, refuse_after


@pytest.fixture
def unhurried(monkeypatch):
    """Transactions that no time ends: on a busy machine that would make them many."""
    monkeypatch.setattr(group_commit, "_MAX_SECONDS", math.inf)


@pytest.mark.usefixtures("unhurried")
def test_works_share_commits_and_get_their_own_answers(store):
    batches = []
    store.on_commit = batches.append
    assert gather(*(commit(store, lambda _, n=n: n * n) for n in range(1000))) == [n * n for n in range(1000)]
    assert sum(batch.items for batch in batches) == 1000
    assert len(batches) < 100


def test_a_work_that_raises_fails_alone(store):
    works = [put(100 + n) if n % 3 else refuse_after(9, Conflict("no")) for n in range(60)]
    answers = gather(*(commit(store, work) for work in works))
    assert [isinstance(answer, Conflict) for answer in answers] == [n % 3 == 0 for n in range(60)]
    assert clients(store) == [100 + n for n in range(60) if n % 3]


@pytest.mark.usefixtures("unhurried")
def test_works_that_raise_cost_the_others_one_commit(store):
    batches = []
    store.on_commit = batches.append

    async def main():
        with store.write():  # the thread waits for this, so that all of it waits
            works = [put(100 + n) if n % 50 else refuse_after(n, Conflict("no")) for n in range(300)]
            waiting = [asyncio.create_task(commit(store, work)) for work in works]
            await asyncio.sleep(0.05)
        return await asyncio.gather(*waiting, return_exceptions=True)

    answers = asyncio.run(main())
    assert sum(isinstance(answer, Conflict) for answer in answers) == 6
    assert clients(store) == [100 + n for n in range(300) if n % 50]
    assert [batch.items for batch in batches] == [49] * 6  # up to each that raises, and after the last


def test_a_row_that_breaks_the_schema_fails_alone(store):
    answers = gather(*(commit(store, put(n)) for n in (1, 2, 1, 3)))
    assert [type(answer) for answer in answers] == [int, int, IntegrityError, int]
    assert clients(store) == [1, 2, 3]


def test_a_key_that_another_process_took_first_is_looked_for_again(store):
    """The writer looked before the other's commit, and inserts after it."""
    looked = []

    def keeps(connection, batch):
        looked.append(len(batch))
        if len(looked) == 1:
            put(1)(connection)
            put(1)(connection)
        return ["known"]

    assert gather(store.put(keeps, 7)) == ["known"]
    assert clients(store) == []


def test_what_is_written_again_alone_is_observed(store):
    tried, batches = [], []
    store.on_commit = batches.append

    def keeps(connection, batch):
        tried.append(len(batch))
        if len(tried) <= 2:  # in the batch's transaction, and in that of the savepoints
            raise Repeatable("another was faster")
        return ["known"]

    assert gather(store.put(keeps, 7)) == ["known"]
    assert [batch.items for batch in batches] == [1]


def test_an_answer_comes_after_the_commit_only(store):
    """A sender that was answered finds the row with another connection."""

    async def one(client: int) -> bool:
        await commit(store, put(client))
        return client in clients(store)

    assert gather(*(one(client) for client in range(30))) == [True] * 30


def test_a_work_whose_waiter_left_holds_nobody_up(store):
    async def main():
        with store.write():  # the thread waits for this, so nothing is taken yet
            task = asyncio.create_task(commit(store, put(1)))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0.01)
        await commit(store, put(2))

    asyncio.run(main())
    assert clients(store)[-1] == 2


def test_a_loop_that_was_closed_holds_nobody_up(store):
    loop = asyncio.new_event_loop()
    release = threading.Event()

    def slow(connection):
        release.wait(5)
        put(1)(connection)

    task = loop.create_task(commit(store, slow))
    loop.run_until_complete(asyncio.sleep(0.05))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    release.set()
    assert gather(commit(store, put(2))) == [1]
    assert clients(store) == [1, 2]


def test_closing_commits_what_waits_and_refuses_the_rest(store, store_url, new_store):
    async def main():
        waiting = [asyncio.create_task(commit(store, put(n))) for n in range(50)]
        await asyncio.sleep(0)
        await asyncio.to_thread(store.close)
        answers = await asyncio.gather(*waiting)
        with pytest.raises(StoreUnavailable, match="closed"):
            await commit(store, put(99))
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
                await commit(store, put(n))
                n += 200

        await asyncio.gather(asyncio.to_thread(write), *(one(first) for first in range(200)))

    asyncio.run(main())
    assert len(between) == 20
    assert max(between) <= 3


@pytest.mark.usefixtures("unhurried")
def test_thousands_of_inserts_share_few_commits(sqlite_store):
    count, batches = 5000, []
    sqlite_store.on_commit = batches.append

    async def main():
        numbers = iter(range(count))

        async def one():
            for n in numbers:
                await commit(sqlite_store, put(n, bytes(200)))

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
        await store.put(lambda connection, _: [connection.execute(messages.insert(), row)], None)
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


def test_many_items_of_one_writer_do_not_starve_another(store):
    begun, all_wait, batches = threading.Event(), threading.Event(), []

    def first(connection, batch):
        begun.set()
        all_wait.wait()
        return list(batch)

    def many(connection, batch):
        batches.append("many")
        return list(batch)

    def other(connection, batch):
        batches.append("other")
        return list(batch)

    async def main():
        tasks = [asyncio.create_task(store.put(first, 0))]
        await asyncio.to_thread(begun.wait)
        tasks += [asyncio.create_task(store.put(many, n)) for n in range(3000)]
        tasks.append(asyncio.create_task(store.put(other, -1)))
        await asyncio.sleep(0)
        all_wait.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert batches[1] == "other"
    assert len(batches) > 3


def test_a_writer_that_forgets_a_result_answers_nobody_wrongly(store):
    def forgets(connection, batch):
        return []

    answers = gather(store.put(forgets, 1), commit(store, put(7)))
    assert isinstance(answers[0], ValueError)
    assert clients(store) == [7]


@pytest.mark.parametrize("others", [0, 20])
def test_a_writer_that_raises_what_no_future_takes_fails_alone(store, others):
    works = [refuse_after(99, StopIteration), *map(put, range(others))]
    answers = gather(*(asyncio.wait_for(commit(store, work), 60) for work in works))
    assert [type(answer) for answer in answers] == [RuntimeError, *[int] * others]
    assert isinstance(answers[0].__cause__, StopIteration)
    assert clients(store) == list(range(others))


@pytest.mark.parametrize("failing", [0, 1])
def test_a_commit_that_could_not_be_observed_is_answered(store, caplog, failing):
    def observe(batch):
        raise ZeroDivisionError

    store.on_commit = observe
    works = [*map(put, range(20)), *[refuse_after(99, ValueError("of its own"))] * failing]
    answers = gather(*(asyncio.wait_for(commit(store, work), 60) for work in works))
    assert [type(answer) for answer in answers] == [int] * 20 + [ValueError] * failing
    assert clients(store) == list(range(20))
    assert "a commit could not be observed" in caplog.text


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("begins", [True, False])
def test_what_could_not_be_written_stays_in_memory_no_longer_than_its_answer(
    store, monkeypatch, count, begins
):
    """Without a collection of garbage."""
    gone = []

    class Item:
        def __del__(self):
            gone.append(1)

    def lost():
        raise StoreUnavailable("lost")

    def failing(connection, batch):
        raise ValueError("of the writer")

    async def send():
        puts = (store.put(failing, Item()) for _ in range(count))
        return [type(each) for each in await asyncio.gather(*puts, return_exceptions=True)]

    if not begins:
        monkeypatch.setattr(store._commits, "_transaction", lost)
    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(send()) == [ValueError if begins else StoreUnavailable] * count
        end = time.monotonic() + 60
        while len(gone) < count:  # the thread that answered goes on a moment later
            assert time.monotonic() < end
            time.sleep(0.001)
    finally:
        gc.enable()


@pytest.mark.usefixtures("unhurried")
def test_a_lost_store_is_waited_for_once_and_not_for_each_item(postgresql, postgresql_store, monkeypatch):
    """It is lost between a transaction that one item failed and the one in which the others are written again."""
    store, transactions, begin = postgresql_store, [], postgresql_store._commits._transaction
    begun, all_wait = threading.Event(), threading.Event()

    def transaction():
        transactions.append(1)
        if len(transactions) == 2:
            postgresql.stop()
        return begin()

    def first(connection, batch):
        begun.set()
        all_wait.wait()
        return list(batch)

    async def main():
        tasks = [asyncio.create_task(store.put(first, 0))]
        await asyncio.to_thread(begun.wait)
        tasks += [asyncio.create_task(commit(store, put(n))) for n in range(20)]
        tasks.append(asyncio.create_task(commit(store, refuse_after(99, ValueError("of its own")))))
        await asyncio.sleep(0)
        all_wait.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    monkeypatch.setattr(store._commits, "_transaction", transaction)
    try:
        answers = asyncio.run(main())
    finally:
        postgresql.start()
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert len(transactions) == 2
    assert clients(store) == []
