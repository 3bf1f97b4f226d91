"""Who took part is deleted some days after the end; the map, the charges and the audit log stay, and agree."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import delete, func, insert, select, text, update

from mapveil.collector.rounds import collection, worker
from mapveil.collector.rounds.conductor import _RETENTION_SECONDS
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.rounds.retention import delete_rows, messages_of, participants_of
from mapveil.collector.store.schema import (
    assignments,
    audit,
    charges,
    collections,
    members,
    messages,
    reports,
    retired,
    rounds,
    salts,
)
from mapveil.collector.store.work_queue import Task, Work, order, waiting
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import ServerState, server_phases
from tests.authority import AUTHORITY

from .test_reconciliation import free

DAY = 86_400


@pytest.fixture
def engine(store, clock, monkeypatch):
    monkeypatch.setattr(worker, "_ERASED", 7)
    return Engine(store, clock, Randomness(7), authority=AUTHORITY, keep_days=30)


@pytest.fixture
def ended(engine, store, clock, crowd_of, opened, make_spec):
    """End a collection of 24 devices; its identifier."""

    def made(trust):
        crowd = crowd_of(store, 24)
        id, terms = opened(engine, make_spec(trust))
        if trust == "local":
            for device, body in enumerate(crowd.local_reports(terms), start=1):
                asyncio.run(engine.devices.report(id, device, body))
        assert crowd.play(engine, id, clock) == "done"
        return id

    return made


def kept(store):
    with store.read() as connection:
        return [
            connection.execute(select(func.count()).select_from(table)).scalar()
            for table in (members, reports, assignments)
        ]


def salted(store):
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(salts)).scalar()


def wait(engine, clock, days):
    clock.advance(days * DAY + _RETENTION_SECONDS)
    engine.tick()


@pytest.mark.parametrize("trust", ["local", "distributed"])
def test_a_collection_keeps_all_but_who_took_part(engine, store, clock, ended, trust):
    id = ended(trust)
    record, ledger, there = engine.collection(id), engine.ledger(), kept(store)
    wait(engine, clock, 29)
    assert kept(store) == there
    assert salted(store) == len(ledger) > 0
    wait(engine, clock, 1)
    assert kept(store) == [0, 0, 0]
    assert salted(store) == 0
    assert (engine.collection(id), engine.ledger()) == (record, ledger)
    assert max(record["members"], record["reports"]) == 24
    assert engine.map(id).values.sum() > 0
    assert store.check().ok
    with store.read() as connection:
        found = reconcile(connection)
    assert (found.problems, found.retired) == ([], 1)
    wait(engine, clock, 1)
    lines = [line.detail for line in engine.audit(0, 1000, id) if line.action == "collection.forget"]
    assert lines == [{"devices": 24}]


@pytest.mark.parametrize("trust", ["local", "distributed"])
def test_a_charge_of_a_mapveil_without_salts_follows_all_the_same(
    engine, store, clock, ended, trust, monkeypatch
):
    monkeypatch.setattr(collection, "draw_salt", lambda *_: None)
    ended(trust)
    assert salted(store) == 0
    with store.read() as connection:
        assert reconcile(connection).problems == []
    with store.write() as connection:
        connection.execute(text("DROP TABLE salts"))
    with store.read() as connection:
        assert reconcile(connection).problems == []


def test_a_collection_whose_charges_do_not_follow_is_kept_with_its_evidence(
    engine, store, clock, ended, opened, make_spec, caplog
):
    id, (other, _) = ended("local"), opened(engine, make_spec("local"))
    engine.abort(other, "operator 1", "enough")
    with store.write() as connection:
        connection.execute(delete(reports).where(reports.c.device == 6))
    for _ in range(3):  # one collection a look
        wait(engine, clock, 31)
    assert kept(store) == [0, 23, 0]
    with store.read() as connection:
        found = reconcile(connection)
        assert connection.execute(select(retired.c.collection)).scalars().all() == [other]
    assert any("devices is 24 in the audit log, 23 by its documents" in each for each in found.problems)
    assert caplog.text.count(f"collection {id} keeps its devices") == 1


def test_a_collection_that_goes_on_is_not_touched(engine, store, clock, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 12)
    id, _ = opened(engine, make_spec("distributed", join_seconds=40 * DAY))
    asyncio.run(crowd.join(engine, id))
    wait(engine, clock, 31)
    assert kept(store)[0] == 12


def test_a_deletion_goes_on_after_a_stop(store, engine, ended):
    id, asked = ended("distributed"), iter([False, True])
    before = sum(kept(store))
    assert not delete_rows(store, participants_of(store, id), 7, lambda: next(asked))
    assert sum(kept(store)) == before - 14
    assert delete_rows(store, participants_of(store, id), 7, lambda: False)
    assert sum(kept(store)) == 0


def kept_messages(store):
    of_phase = select(messages.c.phase, func.count()).group_by(messages.c.phase)
    with store.read() as connection:
        return dict(tuple(row) for row in connection.execute(of_phase))


def summed(engine, store, crowd_of, opened, make_spec):
    """A collection whose one round is done, and for which no worker of maps has done anything."""
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(engine, id))
    while engine.collection(id)["state"] != "finishing":
        engine.loops._conductor.tick()
        engine.loops._worker.close_shards()
        asyncio.run(crowd.turn(engine, id))
    return id


def test_messages_of_a_round_that_is_done_are_deleted_by_a_worker_masked_inputs_first(
    engine, store, crowd_of, opened, make_spec, monkeypatch
):
    id = summed(engine, store, crowd_of, opened, make_spec)
    other, _ = opened(engine, make_spec("distributed", devices=3, minimum=3))
    inputs = ServerState.INPUTS.value
    with store.write() as connection:
        values = {"phase": inputs, "shard": 0, "client": 0, "body": b"x"}
        connection.execute(messages.insert(), [{**values, "collection": other, "round": 1}])
        connection.execute(messages.insert(), [{**values, "collection": id, "round": 2}])
    phases = {phase.value: 24 for phase in server_phases(active=True)}
    assert kept_messages(store) == phases | {inputs: 24 + 2}
    asked = iter([False, True])
    assert not delete_rows(store, messages_of(id, 1), 7, lambda: next(asked))
    assert kept_messages(store) == phases | {inputs: 10 + 2}
    monkeypatch.setattr(worker, "_TURN_SECONDS", -1)  # a page of seven in each
    assert engine.loops._worker.make_maps()
    assert kept_messages(store) == {inputs: 2}


@pytest.mark.parametrize("erased", [False, True])
def test_who_was_charged_stays_where_a_collection_is_aborted_after_its_sums(
    engine, store, crowd_of, opened, make_spec, erased
):
    id = summed(engine, store, crowd_of, opened, make_spec)
    if erased:
        assert delete_rows(store, messages_of(id, 1), 7, lambda: False)
    there = kept(store)
    engine.abort(id, "operator 1", "enough")
    engine.tick()
    assert (kept(store), kept_messages(store)) == (there, {})
    with store.read() as connection:
        assert reconcile(connection).problems == []


@pytest.mark.parametrize("task", [Task.PRUNE, Task.ERASE, Task.FORGET])
def test_a_map_waits_for_one_turn_of_deletion_at_most(store, engine, monkeypatch, task):
    doer, done = engine.loops._worker, []

    def doing(name):
        do = getattr(doer, name)

        def spy(taken):
            done.append(name)
            if len(done) == 1:
                with store.write() as connection:
                    order(connection, [Work(Task.MAP, "f" * 32)])
            return do(taken)

        return spy

    for name in ("_prune", "_erase", "_forget"):
        monkeypatch.setattr(doer, name, doing(name))
    monkeypatch.setattr(doer, "_make_map", lambda taken: done.append("_make_map") or doer._finished(*taken))
    with store.write() as connection:
        order(connection, [Work(task, str(number) * 32) for number in range(3)])
    assert doer.make_maps()
    deletes = f"_{task.value}"
    assert done == [deletes, "_make_map", deletes, deletes]
    assert waiting(store) == {}


def forged_charge(connection, id):
    trigger = "charges_stays_update" if connection.dialect.name == "sqlite" else "charges_stays ON charges"
    connection.execute(text(f"DROP TRIGGER {trigger}"))
    connection.execute(update(charges).values(devices=23))


def forged_row(connection, id):
    connection.execute(update(retired).values(devices=23))


def lost_row(connection, id):
    connection.execute(delete(retired))


def forged_count(connection, id):
    forged_row(connection, id)
    free(connection)
    forget = audit.c.action == "collection.forget"
    connection.execute(update(audit).where(forget).values(detail='{"devices":23}'))


def lost_charge(connection, id):
    free(connection)
    connection.execute(delete(charges))
    connection.execute(delete(audit).where(audit.c.action == "collection.charge"))


def forged_sum(connection, id):
    connection.execute(update(rounds).where(rounds.c.number == 1).values(included=25))


@pytest.mark.parametrize(
    ("trust", "forge", "problems"),
    [("local", each, 1) for each in (forged_charge, forged_row, lost_row, forged_count, lost_charge)]
    + [
        ("distributed", forged_sum, 3)
    ],  # of a round that says so nothing follows, and its two charges stand alone
)
def test_a_forged_store_is_found_after_the_deletion(engine, store, clock, ended, trust, forge, problems):
    id = ended(trust)
    wait(engine, clock, 30)
    with store.write() as connection:
        forge(connection, id)
    with store.read() as connection:
        assert len(reconcile(connection).problems) == problems


def test_a_deletion_that_nobody_recorded_is_found(engine, store, ended):
    id = ended("local")
    with store.write() as connection:
        ended_at = connection.execute(select(collections.c.ended_at)).scalar()
        connection.execute(insert(retired).values(collection=id, devices=24, at=ended_at))
        connection.execute(delete(reports))
    with store.read() as connection:
        assert reconcile(connection).problems
