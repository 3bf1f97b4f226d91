"""What a busy event loop may answer at once: the same as a thread would, or nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace

import pytest

from mapveil.collector.refusals import Conflict, Invalid, NotFound, TooLate
from mapveil.collector.rounds import conductor, progress, shard_machines
from mapveil.collector.rounds.engine import Engine
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import phase_named
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY

FOUR = {
    "devices": 4,
    "method": "uniform",
    "epsilon": "9",
    "options": {"shard_size": 4, "tolerated_dropout": 0, "corrupt": 0},
}


@pytest.fixture
def running(engine, store, crowd_of, opened, make_spec):
    """A round of four devices whose shares are collected; the fifth has not joined."""
    crowd = crowd_of(store, 5)
    id, _ = opened(engine, make_spec("distributed", **FOUR))
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    terms = CollectionTerms.decode(engine.devices.terms(id))
    announced = RoundAnnouncement.decode(engine.devices.announcement(id, 1))
    for device in range(1, 5):
        body = crowd._answer(engine, id, terms, announced, 1, "keys", device)
        asyncio.run(engine.devices.message(id, 1, "keys", device, body))
    engine.tick()
    assert engine.devices.progress(id).phase == "shares"
    return id


def known(engine, id, seconds, **changed):
    """Have progress be known for some time from now, however slow the machine is."""
    made = replace(engine._board.read(id), **changed)
    engine._board._known[id] = (time.monotonic() + seconds, made)
    return made


def test_an_assignment_is_at_hand_once_the_round_is(engine, running):
    engine._machines.forget(running)
    assert engine.devices.assignment_at_hand(running, 1, 1) is None
    assignments = [engine.devices.assignment(running, 1, device) for device in range(1, 5)]
    assert [engine.devices.assignment_at_hand(running, 1, device) for device in range(1, 5)] == assignments
    with pytest.raises(NotFound):
        engine.devices.assignment_at_hand(running, 1, 5)
    assert engine.devices.assignment_at_hand(running, 2, 1) is None


def test_a_server_message_is_at_hand_while_progress_and_machine_are(engine, running):
    message = engine.devices.server_message(running, 1, 1)
    assert message.phase == "shares"
    assert message.body
    known(engine, running, 60)
    assert engine.devices.server_message_at_hand(running, 1, 1) == message
    with pytest.raises(NotFound):
        engine.devices.server_message_at_hand(running, 1, 5)
    engine._board.forget(running)
    assert engine.devices.server_message_at_hand(running, 1, 1) is None


def test_a_server_message_is_not_at_hand_while_a_phase_is_closed(engine, running):
    engine.devices.server_message(running, 1, 1)
    machine = engine._machines.held(running, 1).machines[0]
    known(engine, running, 60)
    with machine.lock:
        assert engine.devices.server_message_at_hand(running, 1, 1) is None
    known(engine, running, 60, phase="inputs")
    assert machine.server.state is phase_named("shares")
    assert engine.devices.server_message_at_hand(running, 1, 1) is None


def test_a_thread_that_checks_a_message_is_waited_for(engine, running, monkeypatch):
    """Else one message in a thread sends the next ones there, and they keep each other waiting."""
    message = engine.devices.server_message(running, 1, 1)
    machine = engine._machines.held(running, 1).machines[0]
    known(engine, running, 600)
    monkeypatch.setattr(shard_machines, "_LOCK_SECONDS", 300)
    lock, locked = machine.lock, threading.Event()
    monkeypatch.setattr(machine, "lock", wanted := _Noticed(lock))

    def hold():
        with lock:
            locked.set()
            wanted.event.wait(300)

    checks = threading.Thread(target=hold)
    checks.start()
    assert locked.wait(300)
    assert engine.devices.server_message_at_hand(running, 1, 1) == message
    checks.join(300)


def test_a_thread_that_closes_a_phase_or_checks_a_large_message_is_not_waited_for(
    engine, running, monkeypatch
):
    message = engine.devices.server_message(running, 1, 1)
    machine = engine._machines.held(running, 1).machines[0]
    known(engine, running, 600)
    monkeypatch.setattr(machine, "lock", wanted := _Noticed(machine.lock))
    seen = []
    monkeypatch.setattr(
        machine, "_close_until", lambda _: seen.append(engine.devices.server_message_at_hand(running, 1, 1))
    )
    machine.bring_up(phase_named("inputs"))
    with machine.locked_for_long():
        wanted.event.clear()
        seen.append(engine.devices.server_message_at_hand(running, 1, 1))
    assert seen == [None, None]
    assert not wanted.event.is_set()
    assert engine.devices.server_message_at_hand(running, 1, 1) == message


def test_whoever_waited_in_vain_does_not_wait_again_at_once(engine, running, monkeypatch):
    engine.devices.server_message(running, 1, 1)
    machine = engine._machines.held(running, 1).machines[0]
    known(engine, running, 600)
    monkeypatch.setattr(machine, "lock", wanted := _Noticed(machine.lock))
    with machine.lock:
        wanted.timeouts.clear()
        assert [engine.devices.server_message_at_hand(running, 1, 1) for _ in range(3)] == [None] * 3
    assert wanted.timeouts[0] > 0
    assert 0 in wanted.timeouts[1:]


class _Noticed:
    """A lock that notices who wants it, and for how long each waits."""

    def __init__(self, lock):
        self._lock, self.event, self.timeouts = lock, threading.Event(), []

    def acquire(self, timeout=-1):
        self.event.set()
        self.timeouts.append(timeout)
        return self._lock.acquire(timeout=timeout)

    def release(self):
        self._lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()


def test_what_is_known_does_while_it_is_read_again(engine, running, monkeypatch):
    board = engine._board
    held = known(engine, running, -0.2)  # no longer fresh
    board._count_at.clear()
    begun, go_on, read = threading.Event(), threading.Event(), board._store.read

    def slow():
        begun.set()
        go_on.wait(10)
        return read()

    assert board.fresh(running) is None
    monkeypatch.setattr(board._store, "read", slow)
    reader = threading.Thread(target=board.of, args=(running,))
    reader.start()
    assert begun.wait(10)
    assert board.fresh(running) is held
    board._known[running] = (time.monotonic() - 5, held)
    assert board.fresh(running) is None  # too old even for that
    board.forget(running)
    assert board.fresh(running) is None  # it changed meanwhile
    go_on.set()
    reader.join(10)
    assert running not in board._known  # it may be from before the change
    monkeypatch.undo()
    assert replace(board.of(running), closes_in_s=None) == replace(held, closes_in_s=None)


def test_a_slow_read_of_one_collection_holds_up_no_other(engine, running, opened, make_spec, monkeypatch):
    """Locks are fewer than collections: of five others, one at least has another lock."""
    others = [opened(engine, make_spec("local"))[0] for _ in range(5)]
    begun, go_on, read = threading.Event(), threading.Event(), progress.progress_of

    def slow(connection, collection, deadlines):
        if collection.id == running:
            begun.set()
            go_on.wait(300)
        return read(connection, collection, deadlines)

    monkeypatch.setattr(progress, "progress_of", slow)
    engine._board.forget(running)
    with ThreadPoolExecutor(1 + len(others)) as pool:
        reader = pool.submit(engine.devices.progress, running)
        assert begun.wait(300)
        answers = [pool.submit(engine.devices.progress, id) for id in others]
        done, _ = wait(answers, 60, FIRST_COMPLETED)
        waits = not reader.done()
        go_on.set()
    assert done
    assert waits
    assert {answer.result().state for answer in answers} == {"open"}


def test_whether_a_message_is_early_is_read_without_a_count(engine, running, monkeypatch):
    counts, count = [], progress._messages
    monkeypatch.setattr(progress, "_messages", lambda *given: counts.append(1) or count(*given))
    monkeypatch.setattr(progress, "_FRESH_SECONDS", 3600.0)
    engine._board.forget(running)
    for _ in range(5):
        with pytest.raises(Conflict, match="is collecting shares"):
            asyncio.run(engine.devices.message(running, 1, "inputs", 1, b"x"))
    assert len(counts) == 1


def test_progress_of_another_phase_than_the_store_s_is_forgotten(engine, running):
    known(engine, running, 60, phase="keys")
    with pytest.raises(Invalid):
        asyncio.run(engine.devices.message(running, 1, "shares", 1, b"x"))
    assert engine.devices.progress(running).phase == "shares"


def test_progress_that_changes_while_it_is_read_is_read_again(engine, running, monkeypatch):
    monkeypatch.setattr(progress, "_FRESH_SECONDS", 3600.0)
    read = progress.progress_of

    def changed_meanwhile(*given):
        engine._board.forget(running)
        return read(*given)

    engine._board.read(running)
    assert engine._board.fresh(running) is not None
    monkeypatch.setattr(progress, "progress_of", changed_meanwhile)
    engine._board.forget(running)
    engine._board.of(running)
    assert engine._board.fresh(running) is None


def test_an_ended_round_is_loaded_by_nobody_and_kept_by_nobody(engine, running):
    engine.devices.assignment(running, 1, 1)
    assert engine._machines.collections == {running}
    engine.abort(running, "operator 1", "of this test")
    assert engine._machines.collections == set()
    with pytest.raises(TooLate):
        engine.devices.assignment(running, 1, 1)
    assert engine._machines.collections == set()


def test_what_another_process_ended_is_let_go(engine, running, store, clock):
    engine.devices.assignment(running, 1, 1)
    engine.devices.progress(running)
    Engine(store, clock, Randomness(2), authority=AUTHORITY).abort(running, "operator 1", "of this test")
    assert engine._machines.collections == engine._board.collections == {running}
    engine.let_go()
    assert engine._machines.collections == engine._board.collections == set()


def test_a_phase_is_told_as_it_stands_however_long_the_count_took(engine, running, monkeypatch):
    counts, count = [], progress._messages
    monkeypatch.setattr(progress, "_messages", lambda *given: counts.append(1) or count(*given))
    monkeypatch.setattr(progress, "COUNTED_PART", 10**9)
    monkeypatch.setattr(progress, "_FRESH_SECONDS", 0.0)
    board = engine._board
    board.forget(running)
    first = board.of(running)
    again = board.of(running)
    assert (again.phase, again.present, len(counts)) == (first.phase, first.present, 1)
    assert again.closes_in_s <= first.closes_in_s
    until, known = board._known[running]
    board._known[running] = until, replace(known, phase="keys")  # as of before another process closed it
    assert board.of(running).phase == "shares"
    assert len(counts) == 2


def test_a_phase_ends_in_its_time_however_long_a_count_took(engine, running, clock, monkeypatch):
    read = conductor.progress_of

    def slowly(*given):
        clock.advance(1)
        return read(*given)

    monkeypatch.setattr(conductor, "progress_of", slowly)
    monkeypatch.setattr(conductor, "COUNTED_PART", 10**9)
    engine.tick()
    clock.advance(3600)
    engine.tick()
    assert engine.devices.progress(running).phase != "shares"
