"""Heartbeats of the conductor and the leader: the others see whether one takes steps."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from mapveil.collector.clock import SystemClock
from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.roles import Loop
from mapveil.collector.rounds import conductor, loops, worker
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.shard_ends import close_shard
from mapveil.collector.store import backends
from mapveil.collector.store.heartbeats import ABSENT_SECONDS, STUCK_SECONDS, has_heartbeat, send_heartbeat
from mapveil.collector.store.schema import collections
from tests.authority import AUTHORITY

from ..heartbeats import age_heartbeats


@pytest.mark.parametrize("loop", [Loop.CONDUCT, Loop.LEAD])
def test_a_process_that_waits_for_a_role_is_not_stuck_though_its_holder_sends_no_heartbeat(
    new_store, postgresql_url, clock, monkeypatch, loop
):
    monkeypatch.setattr(loops, "time", clock)
    stores = [new_store(postgresql_url) for _ in range(2)]
    stores[0].create_tables()
    engine = Engine(stores[0], clock, authority=AUTHORITY)
    engine._conductor._leader = NoLeader()
    waiting = engine.loops
    waiting._begun = {loop: clock.monotonic()}
    send_heartbeat(stores[1], loop.value)
    with stores[1].sole(loop.value) as frozen:
        assert frozen
        for _ in range(4):
            clock.advance(STUCK_SECONDS)
            age_heartbeats(stores[1], STUCK_SECONDS)
            waiting._act(loop)
            assert waiting.stuck() == []
        assert not has_heartbeat(stores[0], loop.value)  # which health says by another field
        clock.advance(STUCK_SECONDS + 1)
        assert waiting.stuck() == [loop.value]  # a loop that does not go round is


class NoLeader:
    """A leader without collections."""

    def end_all(self):
        pass


def test_a_conductor_in_many_steps_sends_heartbeats_and_is_not_stuck(
    postgresql_store, clock, opened, make_spec, crowd_of, monkeypatch
):
    """Also where a tick takes longer than it may be silent."""
    monkeypatch.setattr(loops, "time", clock)
    engine = Engine(postgresql_store, clock, authority=AUTHORITY)
    engine.loops._begun = {Loop.CONDUCT: clock.monotonic()}
    assert not has_heartbeat(postgresql_store, "conductor")
    crowd_of(postgresql_store, 3)
    for _ in range(3):
        opened(engine, make_spec("local"))
    found = []
    step = engine._conductor.step

    def slow(identifier):
        clock.advance(STUCK_SECONDS)
        age_heartbeats(postgresql_store, STUCK_SECONDS)
        found.append(has_heartbeat(postgresql_store, "conductor"))
        assert engine.loops.stuck() == []
        return step(identifier)

    engine._conductor.step = slow
    engine.loops._act(Loop.CONDUCT)
    assert found == [False, True, True]
    assert has_heartbeat(postgresql_store, "conductor")
    age_heartbeats(postgresql_store, ABSENT_SECONDS)
    assert not has_heartbeat(postgresql_store, "conductor")


def test_a_worker_with_a_long_queue_is_not_stuck(
    engine, store, clock, crowd_of, opened, make_spec, monkeypatch
):
    monkeypatch.setattr(loops, "time", clock)
    monkeypatch.setattr(worker, "_SHARDS", 1)
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    crowd.play_until(engine, id, "keys")
    asyncio.run(crowd.turn(engine, id))
    engine.loops._act(Loop.CONDUCT)
    engine.loops._begun = {Loop.SHARDS: clock.monotonic()}
    found = []

    def slow(*arguments):
        clock.advance(STUCK_SECONDS)
        found.append(engine.loops.stuck())
        return close_shard(*arguments)

    monkeypatch.setattr(worker, "close_shard", slow)
    engine.loops._act(Loop.SHARDS)
    assert found == [[], []]  # of two shards


def test_a_heartbeat_counts_after_the_longest_step_of_a_healthy_process(postgresql_store):
    send_heartbeat(postgresql_store, "conductor")
    age_heartbeats(postgresql_store, loops.STUCK_SECONDS)
    assert has_heartbeat(postgresql_store, "conductor")
    assert not has_heartbeat(postgresql_store, "leader")


def test_a_heartbeat_is_of_the_clock_of_the_database(new_store, postgresql_url):
    """Machines whose clocks differ by months see each other's; one from before that clock was set back is none."""
    stores = [new_store(postgresql_url), new_store(postgresql_url)]
    stores[0].create_tables()
    stores[1].clock = SystemClock()
    for sender, reader in (stores, stores[::-1]):
        send_heartbeat(sender, "conductor")
        assert has_heartbeat(reader, "conductor")
        age_heartbeats(sender, ABSENT_SECONDS)
        assert not has_heartbeat(reader, "conductor")
    age_heartbeats(stores[0], -3 * ABSENT_SECONDS)
    assert not has_heartbeat(stores[0], "conductor")


def test_a_conductor_whose_steps_all_fail_sends_no_heartbeat(
    postgresql_store, clock, opened, make_spec, crowd_of
):
    engine = Engine(postgresql_store, clock, authority=AUTHORITY)
    crowd_of(postgresql_store, 3)
    ids = [opened(engine, make_spec("local"))[0] for _ in range(2)]
    step, broken = engine._conductor.step, set(ids)

    def failing(identifier):
        if identifier in broken:
            raise ZeroDivisionError
        return step(identifier)

    engine._conductor.step = failing
    for _ in range(3):  # the second time both rest
        assert engine._conductor.tick()
        assert not has_heartbeat(postgresql_store, "conductor")
        clock.advance(4)
    broken.remove(ids[0])
    clock.advance(10)
    assert engine._conductor.tick()
    assert has_heartbeat(postgresql_store, "conductor")


def test_a_tick_ends_although_its_heartbeat_cannot_be_sent(
    postgresql_store, clock, opened, make_spec, crowd_of, monkeypatch
):
    engine = Engine(postgresql_store, clock, authority=AUTHORITY)
    crowd_of(postgresql_store, 3)
    ids = [opened(engine, make_spec("local"))[0] for _ in range(2)]
    stepped = []
    engine._conductor.step = stepped.append

    def fail(*_):
        raise StoreUnavailable("lost")

    with monkeypatch.context() as patch:
        patch.setattr(conductor, "send_heartbeat", fail)
        assert engine._conductor.tick()
    assert sorted(stepped) == sorted(ids)
    assert not has_heartbeat(postgresql_store, "conductor")
    assert engine._conductor.tick()  # not only when the next one is due
    assert has_heartbeat(postgresql_store, "conductor")


@pytest.mark.parametrize("failure", ["unread", "replaced"])
def test_a_conductor_that_reads_nothing_or_was_replaced_sends_no_heartbeat(
    postgresql_store, clock, opened, make_spec, crowd_of, monkeypatch, failure
):
    engine = Engine(postgresql_store, clock, authority=AUTHORITY)
    crowd_of(postgresql_store, 3)
    opened(engine, make_spec("local"))

    def fail(*_):
        raise StoreUnavailable("lost")

    if failure == "unread":
        monkeypatch.setattr(conductor, "listed", fail)
        with pytest.raises(StoreUnavailable):
            engine._conductor.tick()
    else:
        engine._conductor.step = lambda _: monkeypatch.setattr(postgresql_store, "remain", lambda _: False)
        engine._conductor.tick()
    assert not has_heartbeat(postgresql_store, "conductor")


@pytest.mark.parametrize("locked", [0, 1], ids=["the oldest", "the newest"])
def test_a_collection_whose_rows_are_locked_stops_no_other(
    postgresql, postgresql_url, new_store, clock, opened, make_spec, crowd_of, monkeypatch, locked
):
    """Somebody's session holds one collection; the others go on, and that one once it is let go."""
    settings = (*backends._POSTGRESQL_SETTINGS, "SET lock_timeout = '1s'")
    monkeypatch.setattr(backends, "_POSTGRESQL_SETTINGS", settings)
    store = new_store(postgresql_url)
    store.create_tables()
    engine = Engine(store, clock, authority=AUTHORITY)
    crowd_of(store, 3)
    ids = [opened(engine, make_spec("local", join_seconds=60))[0] for _ in range(2)]
    clock.advance(61)
    with postgresql.connect(postgresql_url.split("@/")[1].split("?")[0]) as session, session.transaction():
        session.execute("SELECT 1 FROM collections WHERE id = %s FOR UPDATE", (ids[locked],))
        with pytest.raises(StoreUnavailable):
            engine._conductor.tick()
        states = states_of(store)
        assert [states[each] == "open" for each in ids] == [number == locked for number in range(2)]
    clock.advance(61)
    assert engine._conductor.tick()
    assert "open" not in states_of(store).values()


def states_of(store):
    with store.read() as connection:
        return {
            row.id: row.state for row in connection.execute(select(collections.c.id, collections.c.state))
        }
