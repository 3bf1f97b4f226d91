"""Taking messages while a phase is being shut: what was acknowledged is there when it is closed, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, text

from mapveil.collector.refusals import StoreUnavailable, TooLate
from mapveil.collector.roles import Loop
from mapveil.collector.rounds import secure_rounds
from mapveil.collector.rounds.collection import move
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.intake import KeepMessages, KeepReports, Kept, Message, Report
from mapveil.collector.rounds.life_cycle import Happening
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.store.schema import messages, reports
from mapveil_client.secure_sum.states import ServerState
from tests.authority import AUTHORITY
from tests.collector.store.rows import lock_waits


@pytest.fixture
def running(engine, store, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 4)
    options = {"shard_size": 4, "tolerated_dropout": 0, "corrupt": 0}
    id, _ = opened(engine, make_spec("distributed", devices=4, method="uniform", options=options))
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    return id


def there(store):
    with store.read() as connection:
        return set(connection.execute(select(messages.c.client)).scalars())


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.01, 0.03])
def test_what_is_acknowledged_was_in_time(store, running, delay):
    seen, keep = {}, KeepMessages(running, 1, ServerState.KEYS)

    def shut():
        with store.write() as connection:
            assert secure_rounds.shut_phase(connection, running, 1, ServerState.KEYS)
        seen["when shut"] = there(store)

    async def send():
        timer = threading.Timer(delay, shut)
        timer.start()

        async def one(client):
            await asyncio.sleep(client / 10_000)
            return await store.put(keep, Message(0, client, b"%d" % client))

        outcomes = await asyncio.gather(*(one(client) for client in range(300)))
        timer.join()
        return outcomes

    outcomes = asyncio.run(send())
    kept = {client for client, outcome in enumerate(outcomes) if outcome is Kept.NEW}
    assert set(outcomes) <= {Kept.NEW, Kept.LATE}
    assert kept == there(store) == seen["when shut"]


def shut_keys(connection, id):
    assert secure_rounds.shut_phase(connection, id, 1, ServerState.KEYS)


def fail(connection, id):
    assert move(connection, id, Happening.FAILED, "operator 1", reason="enough") is not None


@pytest.mark.parametrize(
    ("end", "trust", "keep", "item"),
    [
        (shut_keys, "distributed", lambda id: KeepMessages(id, 1, ServerState.KEYS), Message(0, 1, b"m")),
        (fail, "distributed", lambda id: KeepMessages(id, 1, ServerState.KEYS), Message(0, 1, b"m")),
        (fail, "local", KeepReports, Report(1, b"r")),
    ],
)
def test_what_waits_for_an_end_is_late(
    postgresql_store, clock, crowd_of, opened, make_spec, end, trust, keep, item
):
    """The statement began before the end: it sees the rows as they were, unless it looks again."""
    store = postgresql_store
    engine = Engine(store, clock, authority=AUTHORITY)
    crowd = crowd_of(store, 4)
    options = {"shard_size": 4, "tolerated_dropout": 0, "corrupt": 0} if trust == "distributed" else {}
    id, _ = opened(engine, make_spec(trust, devices=4, options=options))
    if trust == "distributed":
        asyncio.run(crowd.join(engine, id))
        engine.tick()
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'accepted'"
    )
    with ThreadPoolExecutor() as pool:
        with store.write() as connection:
            end(connection, id)
            put = pool.submit(asyncio.run, store.put(keep(id), item))
            while not put.done():
                with store.read() as other:
                    if other.execute(waiting).scalar_one():
                        break
        assert put.result() is Kept.LATE
    for table in (messages, reports):
        with store.read() as connection:
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == 0


def test_two_processes_insert_what_both_were_sent_in_one_order(
    postgresql_store, postgresql_url, new_store, clock, crowd_of, opened, make_spec
):
    """Else each holds what the other waits for, and one of them gives way."""
    store, other = postgresql_store, new_store(postgresql_url)
    crowd_of(store, 4)
    id, _ = opened(Engine(store, clock, authority=AUTHORITY), make_spec("local", devices=4))
    one, two, three = (Report(device, b"r") for device in (1, 2, 3))
    keep = KeepReports(id)

    def keep_both():
        with other.write() as connection:
            return keep(connection, [two, one])

    with ThreadPoolExecutor() as pool:
        with store.write() as connection:
            assert keep(connection, [one]) == [Kept.NEW]
            # The lock of the collection is shared.
            assert pool.submit(asyncio.run, store.put(keep, three)).result(300) is Kept.NEW
            both = pool.submit(keep_both)
            while not lock_waits(store):
                assert not both.done()
            assert keep(connection, [two]) == [Kept.NEW]
        assert both.result() == [Kept.AGAIN, Kept.AGAIN]


def test_nothing_is_kept_of_a_collection_that_was_aborted(store, running):
    with store.write() as connection:
        fail(connection, running)
    keep = KeepMessages(running, 1, ServerState.KEYS)
    assert asyncio.run(store.put(keep, Message(0, 1, b"m"))) is Kept.LATE
    assert there(store) == set()


def test_a_store_that_fails_acknowledges_nothing(store, running, monkeypatch):
    def lost():
        raise StoreUnavailable("lost")

    monkeypatch.setattr(store._commits, "_transaction", lost)

    async def send():
        keep = KeepMessages(running, 1, ServerState.KEYS)
        puts = (store.put(keep, Message(0, client, b"")) for client in range(5))
        return await asyncio.gather(*puts, return_exceptions=True)

    assert [type(each) for each in asyncio.run(send())] == [StoreUnavailable] * 5
    assert there(store) == set()


def test_whoever_leaves_takes_nothing_from_the_others(store, running):
    async def send():
        keep = KeepMessages(running, 1, ServerState.KEYS)
        tasks = [asyncio.create_task(store.put(keep, Message(0, n, b"x"))) for n in range(6)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(send())
    assert [each for n, each in enumerate(outcomes) if n not in (0, 3)] == [Kept.NEW] * 4
    assert {1, 2, 4, 5} <= there(store)


def test_the_conductor_runs_until_it_is_stopped_and_outlives_its_store(
    store, clock, crowd_of, opened, make_spec
):
    engine = Engine(store, clock, authority=AUTHORITY)
    assert Loop.CONDUCT not in engine.loops._beats
    crowd = crowd_of(store, 3)
    id, terms = opened(engine, make_spec("local", devices=3))
    bodies = crowd.local_reports(terms)

    async def run():
        conducting = asyncio.create_task(engine.loops.run())
        real, engine._store.read = engine._store.read, lambda: (_ for _ in ()).throw(StoreUnavailable("lost"))
        await asyncio.sleep(0.25)  # a few ticks, all of which fail
        assert Loop.CONDUCT not in engine.loops._beats
        engine._store.read = real
        await asyncio.gather(*(engine.devices.report(id, d + 1, body) for d, body in enumerate(bodies)))
        for _ in range(10_000):
            if (await asyncio.to_thread(engine.collection, id))["state"] == "done":
                break
            await asyncio.sleep(0.05)
        assert Loop.CONDUCT in engine.loops._beats
        engine.loops.stop()
        await asyncio.wait_for(conducting, 300)

    asyncio.run(run())
    assert engine.collection(id)["state"] == "done"
    with pytest.raises(TooLate):
        asyncio.run(engine.devices.report(id, 1, bodies[1]))


def test_the_check_of_reports_is_made_once_for_all_that_wait(
    engine, store, crowd_of, opened, make_spec, monkeypatch
):
    """Its tables take seconds and memory, and a thousand devices can come meanwhile; the first of them leaves."""
    crowd = crowd_of(store, 5)
    id, terms = opened(engine, make_spec("local", devices=5))
    bodies = crowd.local_reports(terms)
    real, made, begun, go_on = Offer.report_check, [], threading.Event(), threading.Event()

    def slow(offer):
        made.append(offer)
        begun.set()
        assert go_on.wait(60)
        if len(made) == 1:
            raise MemoryError
        return real(offer)

    monkeypatch.setattr(Offer, "report_check", slow)

    async def send(wanted):
        begun.clear()
        go_on.clear()
        await engine.devices.document(id)  # else they would come to the check one after another
        tasks = [asyncio.create_task(engine.devices.report(id, d + 1, bodies[d])) for d in wanted]
        await asyncio.to_thread(begun.wait, 60)
        tasks[0].cancel()
        go_on.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    failed = asyncio.run(send(range(3)))
    assert [type(each) for each in failed] == [asyncio.CancelledError, MemoryError, MemoryError]
    assert [type(each) for each in asyncio.run(send(range(5)))] == [asyncio.CancelledError] + [type(None)] * 4
    assert len(made) == 2


def test_the_checks_of_many_collections_are_kept(engine, store, crowd_of, opened, make_spec, monkeypatch):
    crowd, real, made = crowd_of(store, 3), Offer.report_check, []

    def counted(offer):
        made.append(offer)
        return real(offer)

    collections = [opened(engine, make_spec("local", devices=3)) for _ in range(12)]
    monkeypatch.setattr(Offer, "report_check", counted)

    async def send():
        for device in (1, 2):
            for id, terms in collections:
                await engine.devices.report(id, device, crowd.local_reports(terms)[device - 1])

    asyncio.run(send())
    assert len(made) == len(collections)


def test_a_check_that_fails_once_its_only_waiter_left_is_made_again(
    engine, store, crowd_of, opened, make_spec, monkeypatch
):
    crowd = crowd_of(store, 3)
    id, terms = opened(engine, make_spec("local", devices=3))
    bodies = crowd.local_reports(terms)
    begun, go_on = threading.Event(), threading.Event()

    def failing(offer):
        begun.set()
        assert go_on.wait(60)
        raise MemoryError

    async def send():
        with monkeypatch.context() as patch:
            patch.setattr(Offer, "report_check", failing)
            first = asyncio.create_task(engine.devices.report(id, 1, bodies[0]))
            await asyncio.to_thread(begun.wait, 60)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            go_on.set()
            while len(engine.devices._checks):
                await asyncio.sleep(0.001)
        await engine.devices.report(id, 2, bodies[1])

    asyncio.run(asyncio.wait_for(send(), 60))
