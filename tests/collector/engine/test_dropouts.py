"""Devices that leave: a round is run again, a shard is left out, or too few are left; nobody is charged for nothing."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from mapveil.collector.rounds import restoration
from mapveil.collector.rounds.collection import counted, log_text
from mapveil.collector.rounds.restoration import accept_restored, restored_meanwhile
from mapveil.collector.store import audit_log
from mapveil.collector.store.schema import assignments, messages

from .test_left_out_shards import ROUND, begun, failed, lines


def leaving(engine, id, crowd, number, phase, shard, count):
    """Let ``count`` devices of a shard leave before a phase."""
    placed = [d for d in range(1, crowd.count + 1) if d not in crowd.gone]
    here = [d for d in placed if engine.devices.assignment(id, number, d).shard == shard]
    crowd.leaves |= dict.fromkeys(here[:count], (number, phase))


@pytest.mark.parametrize("phase", ["keys", "shares"])
def test_a_round_that_told_nothing_is_run_again_with_the_devices_left(
    engine, store, clock, crowd_of, opened, make_spec, phase, caplog
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", **ROUND))
    begun(engine, id, crowd)
    leaving(engine, id, crowd, 1, phase, 0, 4)  # three are tolerated
    assert crowd.play(engine, id, clock) == "done"
    first, second = engine.collection(id)["rounds"]
    assert (first["state"], first["included"], first["asked"]) == ("restarted", None, 24)
    assert (second["state"], second["included"], second["asked"]) == ("done", 20, 20)
    (charge,) = engine.ledger()
    assert (charge["number"], charge["devices"], charge["epsilon"]) == (2, 20, "2")
    assert [each["failed"] for each in lines(store, "round.restart")] == [1]
    (failure,) = lines(store, "shard.fail")
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warned == [
        f"collection {id} round 1: {log_text(failure['reason'])}",
        f"collection {id} round 1 is run again: shards that failed: 1",
    ]
    failed(store)


def test_who_answered_stays_where_a_collection_is_aborted_before_the_round_that_is_run_again(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", **ROUND))
    begun(engine, id, crowd)
    leaving(engine, id, crowd, 1, "keys", 0, 4)
    asyncio.run(crowd.turn(engine, id))
    clock.advance(61)
    while engine.collection(id)["rounds"][-1]["state"] != "restarted":
        engine._conductor.step(id)
        engine.loops._worker.close_shards()
    engine.abort(id, "operator 1", "enough")
    engine.tick()
    with store.read() as connection:
        assert counted(connection, id, assignments) == 20
        assert counted(connection, id, messages) == 0
    failed(store)


@pytest.mark.parametrize("ended", [False, True])
def test_a_shard_left_out_after_its_survivors_were_told_is_charged_and_follows(
    engine, store, clock, crowd_of, opened, make_spec, ended
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", minimum=11, **ROUND))
    begun(engine, id, crowd)
    leaving(engine, id, crowd, 1, "inputs", 0, 1)
    leaving(engine, id, crowd, 1, "consents", 1, 12)
    while engine.collection(id)["progress"]["phase"] != "answers":
        if not asyncio.run(crowd.turn(engine, id)):
            clock.advance(61)
        engine.tick()
    (made,) = engine.collection(id)["rounds"]
    assert (made["included"], engine.ledger()[0]["devices"]) == (11, 23)
    if ended:
        engine.abort(id, "operator 1", "enough")
    failed(store)


def test_a_shard_left_out_before_its_survivors_were_told_is_not_charged(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", **ROUND))
    begun(engine, id, crowd)
    leaving(engine, id, crowd, 1, "inputs", 1, 4)
    assert crowd.play(engine, id, clock) == "done"
    (charge,) = engine.ledger()
    (made,) = engine.collection(id)["rounds"]
    assert (charge["devices"], made["included"], made["left_out"]) == (12, 12, 1)
    (failure,) = lines(store, "shard.fail")
    assert (failure["phase"], failure["shard"]) == ("inputs", 2)
    failed(store)


def test_after_two_restarts_a_shard_is_left_out(engine, store, clock, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 36)
    id, _ = opened(engine, make_spec("distributed", devices=36, minimum=12, **ROUND))
    begun(engine, id, crowd)
    for number in (1, 2, 3):
        leaving(engine, id, crowd, number, "keys", 0, 4)
        asyncio.run(crowd.turn(engine, id))
        clock.advance(61)
        engine.tick()
    assert crowd.play(engine, id, clock) == "done"
    *again, last = engine.collection(id)["rounds"]
    assert [each["state"] for each in again] == ["restarted", "restarted"]
    assert (last["shards"], last["left_out"], last["asked"]) == (3, 1, 28)
    assert engine.ledger()[0]["devices"] == last["included"]
    failed(store)


def test_fewer_left_for_a_further_round_than_the_minimum_end_the_collection_with_a_hint(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 36)
    id, _ = opened(engine, make_spec("distributed", devices=36, minimum=35, **ROUND))
    begun(engine, id, crowd)
    leaving(engine, id, crowd, 1, "keys", 0, 4)
    assert crowd.play(engine, id, clock) == "aborted"
    assert engine.collection(id)["reason"] == (
        "32 devices could be asked; 35 are promised at least; "
        "devices had 60 s, a longer phase_seconds gives them more"
    )


def test_fewer_included_than_the_minimum_end_the_collection_uncharged(
    engine, store, clock, crowd_of, opened, make_spec, caplog
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", minimum=13, **ROUND))
    begun(engine, id, crowd)
    leaving(engine, id, crowd, 1, "inputs", 1, 4)
    assert crowd.play(engine, id, clock) == "aborted"
    record = engine.collection(id)
    assert record["reason"] == (
        "12 devices are in the sums; 13 are promised at least; "
        "devices had 60 s, a longer phase_seconds gives them more"
    )
    assert (record["spent"], engine.ledger()) == ("0", [])
    assert record["progress"]["reason"] == record["reason"]
    assert f"collection {id} is aborted: {record['reason']}" in [each.getMessage() for each in caplog.records]
    failed(store)


def test_a_collection_that_a_restored_store_ends_says_that_it_was_restored(
    engine, store, clock, crowd_of, opened, make_spec, monkeypatch
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", minimum=13, **ROUND))
    begun(engine, id, crowd)
    clock.advance(1)
    monkeypatch.setattr(restoration, "elsewhere", lambda _: True)
    assert accept_restored(store, go_on=True).continued == (id,)
    leaving(engine, id, crowd, 1, "inputs", 1, 4)
    assert crowd.play(engine, id, clock) == "aborted"
    assert engine.collection(id)["reason"] == (
        "12 devices are in the sums; 13 are promised at least; "
        "the store was restored from a backup, which may lack what devices had sent"
    )


@pytest.mark.parametrize("over", ["round.done", "round.restart"])
def test_a_round_that_begins_after_a_restoration_lacks_nothing(
    engine, store, crowd_of, opened, make_spec, monkeypatch, over
):
    crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", **ROUND))
    other, _ = opened(engine, make_spec("distributed", **ROUND))
    monkeypatch.setattr(restoration, "elsewhere", lambda _: True)
    accept_restored(store, go_on=True)

    def restored():
        with store.read() as connection:
            return restored_meanwhile(connection, id), restored_meanwhile(connection, other)

    assert restored() == (True, True)
    with store.write() as connection:
        audit_log.record(connection, "service", over, id, round=1)
    assert restored() == (False, True)  # all that is sent for the next round comes after the backup


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_collection_of_a_hundred_shards_with_eight_in_a_hundred_dropouts_ends_in_a_map(
    engine, store, clock, crowd_of, opened, make_spec
):
    devices = 600
    crowd = crowd_of(store, devices)
    options = {"shard_size": 6, "tolerated_dropout": 0.34, "corrupt": 0}
    id, _ = opened(engine, make_spec("distributed", devices=devices, options=options, **ROUND))
    chance = np.random.default_rng(3)
    for device in range(1, devices + 1):
        if chance.random() < 0.08:
            crowd.leaves[device] = (1, str(chance.choice(["keys", "shares", "inputs", "answers"])))
    begun(engine, id, crowd)
    leaving(engine, id, crowd, 1, "inputs", 7, 3)
    assert crowd.play(engine, id, clock) == "done"
    last = engine.collection(id)["rounds"][-1]
    assert last["left_out"] >= 1 or last["number"] > 1  # unless the round with that shard was run again
    assert 0.8 * devices <= last["included"] <= devices - 6
    assert engine.map(id).rounds[0].included == last["included"]
    failed(store)
