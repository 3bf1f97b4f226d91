"""Two processes on one store: they share a collection, and whoever is slower changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import numpy as np
import pytest
from sqlalchemy import func, select, text, update

from mapveil.collector.refusals import Refusal
from mapveil.collector.roles import LOOPS, Loop, Role
from mapveil.collector.rounds import conductor, worker
from mapveil.collector.rounds.collection import counted
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.intake import KeepMembers, KeepReports, Kept, Report
from mapveil.collector.rounds.shard_ends import close_shard
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.store import backends, database, group_commit
from mapveil.collector.store.database import lock_collection
from mapveil.collector.store.schema import charges, collections, members, messages
from mapveil.collector.store.work_queue import LEASE_SECONDS
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import ServerState
from tests.authority import AUTHORITY


def both(engines, id):
    """One step of each conductor and the work that is there, at the same time."""
    barrier, failures = threading.Barrier(len(engines)), []

    def run(engine):
        barrier.wait()
        try:
            engine._conductor.step(id)
            for loop in LOOPS[Role.WORKER]:
                engine.loops._act(loop)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_two_engines_share_a_distributed_collection(
    new_store, store_url, clock, crowd_of, opened, make_spec, totals_of
):
    stores = [new_store(store_url) for _ in range(2)]
    stores[0].create_tables()
    engines = [
        Engine(store, clock, Randomness(number), authority=AUTHORITY) for number, store in enumerate(stores)
    ]
    crowd = crowd_of(stores[0], 8)
    options = {"shard_size": 4, "tolerated_dropout": 0, "corrupt": 0}
    id, _ = opened(
        engines[0], make_spec("distributed", devices=8, method="uniform", options=options, epsilon="9")
    )
    turns = 0
    while engines[0].collection(id)["state"] not in ("done", "aborted"):
        turns += 1
        assert turns < 100
        both(engines, id)
        time.sleep(0.12)  # what an engine knows of another's steps is a moment old
        asyncio.run(crowd.turn(engines[turns % 2], id, most=3))
    record = engines[1].collection(id)
    assert record["state"] == "done", record["reason"]
    ((total, included),) = totals_of(stores[1], id).values()
    assert included == 8
    assert np.array_equal(total, sum(crowd.vectors[d, 1] for d in range(1, 9)))
    with stores[0].read() as connection:
        assert connection.execute(select(func.count()).select_from(charges)).scalar() == 1
        assert connection.execute(select(func.count()).select_from(messages)).scalar() == 0
    actions = [line.action for line in engines[0].audit(0, 100, id)]
    assert (
        actions.count("collection.charge")
        == actions.count("round.start")
        == actions.count("collection.done")
        == 1
    )
    assert np.array_equal(engines[0].map(id).values, engines[1].map(id).values)


def test_a_report_that_comes_with_the_end_is_in_both_lines_or_in_none(
    postgresql_store, clock, crowd_of, opened, make_spec, monkeypatch
):
    engine = Engine(postgresql_store, clock, Randomness(7), authority=AUTHORITY)
    crowd = crowd_of(postgresql_store, 24)
    id, terms = opened(engine, make_spec("local", minimum=20))
    bodies = crowd.local_reports(terms)
    for device, body in enumerate(bodies[:23], 1):
        asyncio.run(engine.devices.report(id, device, body))

    def send():
        with contextlib.suppress(Refusal):
            asyncio.run(engine.devices.report(id, 24, bodies[23]))

    late = threading.Thread(target=send)

    def meanwhile(*given):
        count = counted(*given)
        late.start()
        while late.is_alive():
            with postgresql_store.read() as connection:
                if connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar():
                    break
        return count

    monkeypatch.setattr(conductor, "counted", meanwhile)
    engine.begin(id, "operator 1")
    late.join()
    lines = {line.action: line.detail for line in engine.audit(0, 1000, id)}
    assert lines["collection.finishing"]["reports"] == lines["collection.charge"]["devices"]


def test_only_one_process_conducts(new_store, store_url, clock, opened, make_spec):
    stores = [new_store(store_url) for _ in range(2)]
    stores[0].create_tables()
    conductors = [Engine(store, clock, authority=AUTHORITY)._conductor for store in stores]
    with stores[1].sole("conductor") as mine:
        assert mine
        assert conductors[0].tick() is False
    assert conductors[0].tick() is True


@pytest.mark.parametrize("slow", ["draw_round", "shut_phase"])
def test_a_step_longer_than_the_conductor_may_be_silent_is_done_once(
    new_store, postgresql_url, clock, crowd_of, opened, make_spec, totals_of, monkeypatch, slow
):
    """The first conductor loses its role in the middle of a step, the second takes it, and both go on."""
    monkeypatch.setattr(backends, "HOLDER_SECONDS", 1)
    stores = [new_store(postgresql_url) for _ in range(2)]
    stores[0].create_tables()
    engines = [Engine(store, clock, Randomness(n), authority=AUTHORITY) for n, store in enumerate(stores)]
    crowd = crowd_of(stores[0], 8)
    options = {"shard_size": 4, "tolerated_dropout": 0, "corrupt": 0}
    id, _ = opened(
        engines[0], make_spec("distributed", devices=8, method="uniform", options=options, epsilon="9")
    )
    asyncio.run(crowd.turn(engines[0], id))  # joins, or sends the first messages
    act, overtaken = getattr(conductor.secure_rounds, slow), []

    def overtake(*given):
        if not overtaken:
            overtaken.append(False)
            last = time.monotonic() + 300
            while not engines[1]._conductor.tick():
                assert time.monotonic() < last
                time.sleep(0.1)
            overtaken[0] = True
        return act(*given)

    monkeypatch.setattr(conductor.secure_rounds, slow, overtake)
    turns = 0
    while engines[0].collection(id)["state"] not in ("done", "aborted"):
        turns += 1
        assert turns < 100
        for loop in Loop:
            engines[0].loops._act(loop)
        time.sleep(0.12)
        asyncio.run(crowd.turn(engines[0], id))
    assert overtaken == [True]
    ((total, included),) = totals_of(stores[0], id).values()
    assert included == 8
    assert np.array_equal(total, sum(crowd.vectors[d, 1] for d in range(1, 9)))
    actions = [line.action for line in engines[0].audit(0, 100, id)]
    once = ("collection.charge", "round.start", "collection.done")
    assert [actions.count(each) for each in once] == [1, 1, 1]
    assert len(engines[0].ledger()) == 1


def test_a_worker_that_dies_costs_its_lease_and_no_sum(
    new_store, postgresql_url, clock, crowd_of, opened, make_spec, mortal_store, totals_of, monkeypatch
):
    _, killed = mortal_store
    stores = [new_store(postgresql_url) for _ in range(3)]
    stores[0].create_tables()
    engine, *workers = (Engine(store, clock, Randomness(1), authority=AUTHORITY) for store in stores)
    crowd = crowd_of(stores[0], 8)
    options = {"shard_size": 4, "tolerated_dropout": 0, "corrupt": 0}
    spec = make_spec("distributed", devices=8, method="uniform", options=options, epsilon="9")
    id, _ = opened(engine, spec)
    deaths = 0

    def die(*_):
        raise killed

    while engine.collection(id)["state"] not in ("done", "aborted"):
        engine.loops._act(Loop.CONDUCT)
        for loop in LOOPS[Role.WORKER]:
            with monkeypatch.context() as patch:
                patch.setattr(worker, "close_shard", die)
                patch.setattr(worker, "make_map", die)
                with contextlib.suppress(killed):
                    workers[0].loops._act(loop)
                    continue  # there was nothing to do
            deaths += 1
            before = engine.collection(id)
            while workers[1].loops._act(loop):  # all but what the first one has
                pass
            engine.loops._act(Loop.CONDUCT)
            assert engine.collection(id)["state"] == before["state"]
            assert engine.collection(id)["rounds"] == before["rounds"]
            clock.advance(LEASE_SECONDS + 1)
            assert workers[1].loops._act(loop)
        asyncio.run(crowd.turn(engine, id))
    assert engine.collection(id)["state"] == "done"
    assert deaths == 6  # five phases, and the map
    ((total, included),) = totals_of(stores[0], id).values()
    assert included == 8
    assert np.array_equal(total, sum(crowd.vectors[d, 1] for d in range(1, 9)))
    assert len(engine.ledger()) == 1


def test_a_process_that_answers_no_device_keeps_nothing_of_the_shards_that_it_closes(
    store, engine, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    crowd.play_until(engine, id, "keys")
    asyncio.run(crowd.turn(engine, id))
    for answers in (False, True):
        held = ShardMachines(store).of(id, 1)
        held.answers = answers
        ends = [close_shard(held, shard, ServerState.KEYS) for shard in range(2)]
        assert [each.failure for each in ends] == ["", ""]
        at = ServerState.SHARES if answers else ServerState.KEYS
        assert [machine.server.state for machine in held.machines] == [at, at]
    assert crowd.play(engine, id, clock) == "done"


def test_no_more_join_than_are_expected_though_two_processes_let_them(
    new_store, store_url, clock, crowd_of, opened, make_spec
):
    stores = [new_store(store_url) for _ in range(2)]
    stores[0].create_tables()
    engine = Engine(stores[0], clock, Randomness(1), authority=AUTHORITY)
    crowd_of(stores[0], 60)
    id, _ = opened(engine, make_spec("distributed", devices=40))
    keep = KeepMembers(id, 40)
    outcomes: list[Kept] = []

    def let_in(store, own):
        async def put():
            outcomes.extend(await asyncio.gather(*(store.put(keep, device) for device in own)))

        asyncio.run(put())

    # Some of the devices at both, and each twice.
    threads = [
        threading.Thread(target=let_in, args=(store, [*own, *own]))
        for store, own in zip(stores, (range(1, 36), range(26, 61)), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with stores[0].read() as connection:
        rows = counted(connection, id, members)
        assert rows == connection.execute(select(collections.c.joined)).scalar_one() == 40
    assert set(outcomes) == {Kept.NEW, Kept.AGAIN, Kept.FULL}
    assert engine.devices.progress(id).present == 40
    assert stores[0].check().ok
    with stores[0].write() as connection:
        connection.execute(update(collections).values(joined=39))
    assert "says that it has 39 members; 40 are there" in stores[0].check().problems[0]


def test_what_a_transaction_waited_for_it_sees_as_it_is_then(new_store, postgresql_url):
    """Whatever the database's default: at REPEATABLE READ whoever waited would be told to begin anew."""
    store = new_store(postgresql_url)
    with store.write() as connection:
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(
            text(f'ALTER DATABASE "{name}" SET default_transaction_isolation TO "repeatable read"')
        )
    store = new_store(postgresql_url)
    with store.write() as connection:
        assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "read committed"


def test_devices_of_a_locked_collection_wait_alone_and_late_ones_not_at_all(
    new_store, postgresql_url, clock, crowd_of, opened, make_spec, monkeypatch
):
    """The end of a phase and the beginning of a round lock the collection, however long they last."""
    monkeypatch.setattr(backends, "_POSTGRESQL_SETTINGS", ())  # by which a lock is waited for without end
    monkeypatch.setattr(group_commit, "_GIVE_UP_SECONDS", 600.0)
    stores = [new_store(postgresql_url) for _ in range(2)]
    stores[0].create_tables()
    engine = Engine(stores[0], clock, Randomness(1), authority=AUTHORITY)
    crowd_of(stores[0], 3)
    late, joined, other = (opened(engine, make_spec("distributed", devices=3))[0] for _ in range(3))
    reported = opened(engine, make_spec("local", devices=3))[0]
    engine.abort(late, "operator 1", "of this test")

    async def main():
        with stores[1].write() as connection:
            for id in (late, joined, reported):
                lock_collection(connection, id)
            waiting = [
                asyncio.create_task(stores[0].put(keep, item))
                for keep, item in (
                    (KeepMembers(joined, 3), 1),
                    (KeepReports(reported), Report(1, b"a report")),
                )
            ]
            for id, outcome in ((late, Kept.LATE), (other, Kept.NEW)):
                assert await asyncio.wait_for(stores[0].put(KeepMembers(id, 3), 1), 300) is outcome
            assert not any(task.done() for task in waiting)
        return await asyncio.gather(*waiting)

    assert asyncio.run(main()) == [Kept.NEW] * 2


def test_two_intakes_that_let_devices_join_the_same_collections_never_wait_for_each_other_in_a_circle(
    postgresql_url, new_store, clock, crowd_of, opened, make_spec, monkeypatch
):
    """In opposite orders; PostgreSQL looks for deadlocks at once, and counts them."""
    settings = (*backends._POSTGRESQL_SETTINGS, "SET deadlock_timeout = '10ms'")
    monkeypatch.setattr(backends, "_POSTGRESQL_SETTINGS", settings)
    monkeypatch.setattr(database, "_LOCK_SECONDS", 60.0)
    stores = [new_store(postgresql_url) for _ in range(2)]
    stores[0].create_tables()
    engine = Engine(stores[0], clock, Randomness(1), authority=AUTHORITY)
    crowd_of(stores[0], 10)
    ids = [opened(engine, make_spec("distributed", devices=10))[0] for _ in range(8)]

    def wait(connection, batch):
        all_sent.wait()
        return batch

    async def let_in(device):
        """At both intakes, each of which takes what has come in meanwhile."""
        tasks = [asyncio.create_task(store.put(wait, 0)) for store in stores]
        for store, own in zip(stores, (ids, ids[::-1]), strict=True):
            tasks += [asyncio.create_task(store.put(KeepMembers(id, 10), device)) for id in own]
        await asyncio.sleep(0.1)
        all_sent.set()
        outcomes = await asyncio.gather(*tasks)
        all_sent.clear()
        return outcomes[len(stores) :]

    all_sent = threading.Event()
    outcomes = [outcome for device in range(1, 11) for outcome in asyncio.run(let_in(device))]
    assert outcomes.count(Kept.NEW) == outcomes.count(Kept.AGAIN) == 80
    with stores[0].read() as connection:
        of_this = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert connection.execute(of_this).scalar_one() == 0
