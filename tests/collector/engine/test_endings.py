"""Deadlines, too few devices, operators who begin or abort: nothing is charged that was not learnt."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from sqlalchemy import func, select, update

from mapveil.collector.refusals import Conflict, Invalid, NotFound
from mapveil.collector.roles import Loop
from mapveil.collector.rounds import worker
from mapveil.collector.rounds.collection import find
from mapveil.collector.rounds.device_service import OpenCollection
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.schema import charges, devices, messages, reports, work
from mapveil_client.errors import InputError
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY

ACTOR = "operator 1"


def counted(store, table):
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar()


def shard_of(engine, id, shard, count):
    return [d for d in range(1, count + 1) if engine.devices.assignment(id, 1, d).shard == shard]


def test_too_few_survivors_in_every_shard_abort_and_nothing_is_charged(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    for shard in (0, 1):
        for device in shard_of(engine, id, shard, 24)[:4]:  # three are tolerated
            crowd.leaves[device] = (1, "inputs")
    assert crowd.play(engine, id, clock) == "aborted"
    record = engine.collection(id)
    assert "shard 1" in record["reason"]
    assert record["spent"] == "0"
    assert (counted(store, charges), counted(store, messages)) == (0, 0)
    assert record["rounds"][0]["state"] == "aborted"
    with pytest.raises(NotFound):
        engine.map(id)


def test_as_many_as_are_tolerated_may_leave(engine, store, clock, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    for device in shard_of(engine, id, 0, 24)[:3]:
        crowd.leaves[device] = (1, "inputs")
    assert crowd.play(engine, id, clock) == "done"
    assert engine.ledger()[0]["devices"] == 21


def test_too_few_answers_abort_and_the_charge_stays(engine, store, clock, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 6)
    options = {"shard_size": 6, "tolerated_dropout": 0.34, "corrupt": 0}
    id, _ = opened(engine, make_spec("distributed", devices=6, method="uniform", options=options))
    crowd.leaves = dict.fromkeys(range(1, 6), (1, "answers"))
    assert crowd.play(engine, id, clock) == "aborted"
    record = engine.collection(id)
    assert (record["spent"], counted(store, charges), counted(store, messages)) == ("2", 1, 0)


def test_joining_ends_at_its_deadline(engine, store, clock, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 13)
    id, _ = opened(engine, make_spec("distributed", method="uniform", join_seconds=100, minimum=13))
    asyncio.run(crowd.join(engine, id))
    clock.advance(99)
    engine.tick()
    assert engine.collection(id)["state"] == "open"
    clock.advance(1)
    engine.tick()
    record = engine.collection(id)
    assert (record["state"], record["rounds"][0]["asked"]) == ("running", 13)


@pytest.mark.parametrize("trust", ["distributed", "local", "random-features"])
def test_a_deadline_with_fewer_than_the_minimum_aborts(
    engine, store, clock, crowd_of, opened, make_spec, trust
):
    crowd = crowd_of(store, 24)
    id, terms = opened(engine, make_spec(trust, join_seconds=100))
    if trust == "distributed":
        asyncio.run(engine.devices.join(id, 1))
    else:
        bodies = crowd.local_reports(terms) if trust == "local" else crowd.feature_reports(terms)
        asyncio.run(engine.devices.report(id, 1, bodies[0]))
    engine.tick()
    clock.advance(101)
    engine.tick()
    record = engine.collection(id)
    assert record["state"] == "aborted"
    assert record["reason"].startswith("1 devices")
    # The one report that came is known to the server, so it was paid for.
    assert record["spent"] == ("2" if trust == "local" else "0")
    with store.read() as connection:
        assert set(connection.execute(select(reports.c.body)).scalars()) <= {b""}


def test_whoever_finds_too_few_too_late_ends_nothing(engine, store, clock, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform", minimum=5))
    with store.read() as connection:
        stale = find(connection, id)
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    assert engine._conductor.end(stale, "0 devices joined in time") is False
    assert engine.collection(id)["state"] == "running"


def test_a_clock_that_jumps_neither_ends_nor_prolongs_a_phase(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd_of(store, 1)
    id, _ = opened(engine, make_spec("distributed", join_seconds=100))
    engine.tick()
    clock.jump(10_000)
    engine.tick()
    assert engine.collection(id)["state"] == "open"
    clock.jump(-20_000)
    # After a restart only the wall clock tells: it can hold a phase at most once more.
    again = Engine(store, clock, authority=AUTHORITY)
    assert again.collection(id)["progress"]["closes_in_s"] == 100
    clock.advance(100)
    again.tick()
    assert again.collection(id)["state"] == "aborted"


def test_an_operator_begins_when_the_minimum_is_there(engine, store, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 24)
    local, terms = opened(engine, make_spec("local", minimum=5))
    rounds_id, _ = opened(engine, make_spec("distributed", method="uniform", minimum=5))
    bodies = crowd.local_reports(terms)
    for device in range(1, 6):
        if device == 5:
            for id in (local, rounds_id):
                with pytest.raises(Conflict, match="4 devices"):
                    engine.begin(id, ACTOR)
        asyncio.run(engine.devices.report(local, device, bodies[device - 1]))
        asyncio.run(engine.devices.join(rounds_id, device))
    assert engine.begin(local, ACTOR)["state"] == "finishing"
    assert engine.begin(rounds_id, ACTOR)["progress"]["phase"] == "keys"
    with pytest.raises(Conflict):
        engine.begin(rounds_id, ACTOR)
    engine.tick()
    assert engine.collection(local)["state"] == "done"
    assert [(line.actor, line.action) for line in engine.audit(0, 99, local)][2:4] == [
        (ACTOR, "collection.begin"),
        ("service", "collection.finishing"),
    ]


def test_an_operator_aborts_at_any_time_but_after_the_end(engine, store, clock, crowd_of, opened, make_spec):
    crowd_of(store, 1)
    draft = engine.create(make_spec("local"), ACTOR)
    assert engine.abort(draft["id"], ACTOR, "not needed")["reason"] == "not needed"
    assert engine.abort(draft["id"], ACTOR, "again")["reason"] == "not needed"
    with pytest.raises(Conflict):
        engine.open(draft["id"], ACTOR)
    id, _ = opened(engine, make_spec("local"))
    for reason in ("", "x" * 501, "two\nlines", "\x00"):
        with pytest.raises(Invalid):
            engine.abort(id, ACTOR, reason)
    with pytest.raises(NotFound):
        engine.abort("0" * 32, ACTOR, "why not")


def test_an_aborted_round_is_forgotten_and_a_finished_one_stays(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    asyncio.run(crowd.turn(engine, id))
    assert counted(store, messages) == 24
    engine.abort(id, ACTOR, "enough")
    engine.tick()
    assert counted(store, messages) == 0
    assert engine.collection(id)["state"] == "aborted"
    other, _ = opened(engine, make_spec("distributed", method="uniform"))
    crowd.forget()
    assert crowd.play(engine, other, clock) == "done"
    with pytest.raises(Conflict):
        engine.abort(other, ACTOR, "too late")


@pytest.mark.parametrize("column", ["revoked_at", "quarantined_at"])
def test_a_barred_device_is_not_asked(engine, store, crowd_of, opened, make_spec, column):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(engine, id))
    with store.write() as connection:
        connection.execute(update(devices).where(devices.c.id == 7).values({column: "2026"}))
    engine.tick()
    assert engine.collection(id)["rounds"][0]["asked"] == 23
    with pytest.raises(NotFound):
        engine.devices.assignment(id, 1, 7)


def test_too_few_who_are_not_barred_end_a_collection_before_its_first_round(
    engine, store, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(engine, id))
    with store.write() as connection:
        connection.execute(update(devices).where(devices.c.id <= 13).values(revoked_at="2026"))
    engine.tick()
    shown = engine.collection(id)
    assert (shown["state"], shown["rounds"]) == ("aborted", [])
    assert shown["reason"] == (
        "11 devices could be asked; 12 are promised at least; devices were revoked or put in quarantine since they "
        "joined"
    )


def test_assignments_are_a_random_permutation_in_even_shards(engine, store, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    assigned = [engine.devices.assignment(id, 1, d) for d in range(1, 25)]
    places = [12 * each.shard + each.client for each in assigned]
    assert sorted(places) == list(range(24))
    assert all(each.client < 12 for each in assigned)
    assert np.corrcoef(range(24), places)[0, 1] < 0.9


def test_a_pending_collection_is_told_to_nobody(engine, store, crowd_of, make_spec):
    crowd_of(store, 1)
    id = engine.create(make_spec("local"), ACTOR)["id"]
    assert engine.devices.open_collections() == []
    with pytest.raises(NotFound):
        engine.devices.terms(id)
    engine.open(id, ACTOR)
    (shown,) = engine.devices.open_collections()
    assert shown == OpenCollection(id, "local", "Where people are", engine.collection(id)["terms"])
    with pytest.raises(InputError):
        engine.create({}, ACTOR)
    with pytest.raises(Invalid):
        engine.create(make_spec("local"), "nobody")


def test_a_fault_of_one_collection_leaves_the_others_alone(
    engine, store, clock, crowd_of, opened, make_spec, monkeypatch, caplog
):
    crowd = crowd_of(store, 24)
    ids = [opened(engine, make_spec("local", devices=3, title=title))[0] for title in ("one", "two")]
    for id in ids:
        bodies = crowd.local_reports(CollectionTerms.decode(engine.devices.terms(id)))
        for device in (1, 2, 3):
            asyncio.run(engine.devices.report(id, device, bodies[device - 1]))
    real = worker.make_map

    def broken(store, collection):
        if collection.id == ids[0]:
            raise ZeroDivisionError("a secret in a message")
        return real(store, collection)

    monkeypatch.setattr(worker, "make_map", broken)
    engine.tick()
    assert [engine.collection(id)["state"] for id in ids] == ["finishing", "done"]
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text
    monkeypatch.undo()
    engine.tick()
    assert engine.collection(ids[0])["state"] == "finishing"  # it rests a while
    clock.advance(6)
    engine.tick()
    assert engine.collection(ids[0])["state"] == "done"


def test_a_map_that_takes_long_moves_no_other_deadline(
    engine, store, clock, crowd_of, opened, make_spec, monkeypatch
):
    crowd = crowd_of(store, 24)
    slow, waits = (
        opened(engine, make_spec("local", devices=3, title=title))[0] for title in ("slow", "waits")
    )
    bodies = crowd.local_reports(CollectionTerms.decode(engine.devices.terms(slow)))
    for device in (1, 2, 3):
        asyncio.run(engine.devices.report(slow, device, bodies[device - 1]))
    making, free, real = threading.Event(), threading.Event(), worker.make_map

    def held(store, collection):
        making.set()
        assert free.wait(60)
        return real(store, collection)

    monkeypatch.setattr(worker, "make_map", held)
    assert engine._conductor.tick()
    mapping = threading.Thread(target=engine.loops._act, args=(Loop.MAPS,))
    mapping.start()
    try:
        assert making.wait(60)
        clock.advance(10**6)
        assert engine._conductor.tick()
        assert engine.collection(slow)["state"] == "finishing"
        assert engine.collection(waits)["state"] == "aborted"  # its time is over, and nobody reported
    finally:
        free.set()
        mapping.join()
    assert engine.collection(slow)["state"] == "done"


def test_reports_are_erased_part_by_part_and_the_rest_after_a_stop(
    engine, store, crowd_of, opened, make_spec, monkeypatch
):
    monkeypatch.setattr("mapveil.collector.rounds.worker._ERASED", 3)
    crowd, worker = crowd_of(store, 10), engine.loops._worker
    id, terms = opened(engine, make_spec("local", devices=11))
    for device, body in enumerate(crowd.local_reports(terms), 1):
        asyncio.run(engine.devices.report(id, device, body))
    engine.abort(id, "operator 1", "enough")
    write = store.write

    def left():
        with store.read() as connection:
            return sum(map(bool, connection.execute(select(reports.c.body)).scalars()))

    def stopping():
        worker.stopping = True
        return write()

    monkeypatch.setattr(store, "write", stopping)
    worker.make_maps()
    assert left() == 7
    monkeypatch.setattr(store, "write", write)
    worker.stopping = False
    engine.tick()
    with store.read() as connection:
        assert connection.execute(select(work)).first() is None
    assert left() == 0
