"""Attacks of one device on a collection, and dropouts: a shard is lost at most, and the device is named."""

from __future__ import annotations

import asyncio
import json
from fractions import Fraction

import numpy as np
import pytest
from sqlalchemy import select

from mapveil.collector.refusals import Invalid
from mapveil.collector.rounds import worker
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.rounds.shard_ends import close_shard
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.store.schema import audit, shards
from mapveil.collector.store.watched_devices import device_faults
from mapveil_client.canonical_cbor import decode as decode_values
from mapveil_client.canonical_cbor import encode as encode_values
from mapveil_client.secure_sum import messages
from mapveil_client.secure_sum.messages import BOX_BYTES, SHARE_BYTES

LIAR = 5
ROUND = {"method": "uniform"}


def tampered(crowd, phase, change):
    """Let the liar's message of a phase be changed as ``change`` does with its fields."""
    original = crowd._answer

    def answer(engine, id, terms, announced, number, now, device):
        data = original(engine, id, terms, announced, number, now, device)
        if data is None or (device, now) != (LIAR, phase):
            return data
        values = decode_values(data)
        return encode_values([*values[:4], *change(values[4:])])

    crowd._answer = answer


def wrong_shares(fields):
    given, shares = fields
    rows = np.frombuffer(shares, dtype="<u2").reshape(-1, SHARE_BYTES // 2)
    return given, np.where(rows > 0, rows - 1, 7).astype("<u2").tobytes()


def garbage(fields):
    commitment, boxes = fields
    return commitment, bytes(len(boxes))


def unopenable(fields):
    commitment, boxes = fields
    rows = np.frombuffer(boxes, dtype=np.uint8).reshape(-1, BOX_BYTES).copy()
    rows[:, -1] ^= 1
    return commitment, rows.tobytes()


def nonsense(fields):
    vector, *rest = fields
    return np.random.default_rng(1).bytes(len(vector)), *rest


def flipped(fields):
    commitment, *rest = fields
    return bytes([commitment[0] ^ 1]) + commitment[1:], *rest


def lines(store, action):
    with store.read() as connection:
        query = select(audit.c.detail).where(audit.c.action == action).order_by(audit.c.number)
        return [json.loads(detail) for detail in connection.execute(query).scalars()]


def failed(store):
    with store.read() as connection:
        assert reconcile(connection).problems == []
        return list(connection.execute(select(shards.c.failed).order_by(shards.c.shard)).scalars())


def test_a_shard_that_fails_comes_to_the_same_bytes_again_in_a_process_that_answers_no_device(
    engine, store, clock, crowd_of, opened, make_spec, monkeypatch
):
    """A worker whose commit is lost closes it once more, and the fault is still told."""
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    tampered(crowd, "shares", flipped)
    failures = []

    def thrice(held, shard, phase):
        end = close_shard(held, shard, phase)
        apart = ShardMachines(store).of(id, 1)
        assert [close_shard(apart, shard, phase).encode() for _ in range(2)] == [end.encode()] * 2
        failures.extend(end.lines if end.failure else ())
        return end

    monkeypatch.setattr(worker, "close_shard", thrice)
    assert crowd.play(engine, id, clock) == "done"
    assert {action for action, _ in failures} == {"shard.fail", "device.fault"}


@pytest.mark.parametrize(
    ("phase", "change", "included", "fault"),
    [
        ("shares", flipped, 12, ("commitment", True)),
        ("shares", garbage, 23, ("pairs", False)),
        ("shares", unopenable, 23, ("boxes", True)),
        ("inputs", nonsense, 12, None),
    ],
    ids=["altered commitment", "other keys", "garbage boxes", "garbage vector"],
)
def test_one_bad_device_costs_its_shard_at_most(
    engine, store, clock, crowd_of, opened, make_spec, phase, change, included, fault
):
    crowd = crowd_of(store, 24)
    # 64 sums: nonsense in all of them lies outside the range of some.
    id, _ = opened(engine, make_spec("distributed", method="laplace"))
    tampered(crowd, phase, change)
    assert crowd.play(engine, id, clock) == "done"
    record = engine.collection(id)
    assert record["rounds"][0]["included"] == included
    assert record["rounds"][0]["left_out"] == (24 - included) // 12
    # Survivors were told before the answers came, so whoever was among them was charged, whatever became of the shard.
    assert (record["spent"], engine.ledger()[0]["devices"]) == ("2", 23 if included == 23 else 24)
    named = {(each["device"], each["kind"], each["proven"]) for each in lines(store, "device.fault")}
    assert named == (set() if fault is None else {(LIAR, *fault)})
    assert sum(phase is not None for phase in failed(store)) == (24 - included) // 12
    assert engine.map(id).guarantee.epsilon == Fraction(2)


def test_of_two_devices_with_one_mask_key_the_first_counts(
    engine, store, clock, crowd_of, opened, make_spec, monkeypatch
):
    crowd = crowd_of(store, 24)
    drawn = crowd.rng.child
    twins = {f"client {device} 1": "client 1 1" for device in (1, 2)}  # draw the same pairs of keys
    monkeypatch.setattr(crowd.rng, "child", lambda name: drawn(twins.get(name, name)))
    options = {"shard_size": 24, "tolerated_dropout": 0.25, "corrupt": 0.05}
    id, _ = opened(engine, make_spec("distributed", options=options, **ROUND))
    assert crowd.play(engine, id, clock) == "done"
    assert engine.collection(id)["rounds"][0]["included"] == 23
    (named,) = lines(store, "device.fault")
    assert named["device"] in (1, 2)
    assert named["kind"] == "message"


def begun(engine, id, crowd):
    asyncio.run(crowd.join(engine, id))
    engine.tick()


def test_one_bad_device_of_the_only_shard_costs_its_own_report_and_is_named(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 12)
    id, _ = opened(engine, make_spec("distributed", devices=12, **ROUND))
    tampered(crowd, "shares", unopenable)
    assert crowd.play(engine, id, clock) == "done"
    assert engine.collection(id)["rounds"][0]["included"] == engine.ledger()[0]["devices"] == 11
    (named,) = device_faults(store)
    assert (named.device, named.collection, named.kind, named.proven) == (LIAR, id, "boxes", True)
    failed(store)


def test_a_device_that_deals_another_seed_ends_the_only_shard_and_is_named(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 12)
    id, _ = opened(engine, make_spec("distributed", devices=12, **ROUND))
    tampered(crowd, "shares", flipped)
    assert crowd.play(engine, id, clock) == "aborted"
    assert (engine.collection(id)["spent"], engine.ledger()[0]["devices"]) == ("2", 12)
    (named,) = device_faults(store)
    assert (named.device, named.collection, named.kind, named.proven) == (LIAR, id, "commitment", True)
    (failure,) = lines(store, "shard.fail")
    assert (failure["device"], failure["phase"], failure["shard"]) == (LIAR, "answers", 1)
    failed(store)


def test_altered_answers_are_refused_and_end_nothing(engine, store, clock, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 12)
    id, _ = opened(engine, make_spec("distributed", devices=12, **ROUND))
    begun(engine, id, crowd)
    crowd.play_until(engine, id, "answers")
    tampered(crowd, "answers", wrong_shares)
    with pytest.raises(Invalid, match="another share of client"):
        asyncio.run(crowd.turn(engine, id))
    crowd.gone.add(LIAR)
    assert crowd.play(engine, id, clock) == "done"
    assert engine.collection(id)["rounds"][0]["included"] == 12
    assert device_faults(store) == []
    failed(store)


def test_two_devices_with_one_listed_identity_count_once_and_end_nothing(
    engine, store, clock, crowd_of, opened, make_spec, monkeypatch
):
    # Rounds list 8 bytes of an identity, which 2^32 draws give two devices; here 1 byte, which seed 15 does.
    first = messages.PRINT.start
    parts = (("identity", slice(first, first + 1)), *messages._DISTINCT[1:])
    monkeypatch.setattr(messages, "_DISTINCT", parts)
    crowd = crowd_of(store, 12, seed=15)
    listed = [each.public[0] for each in crowd.identities]
    alike = [device for device, byte in enumerate(listed, 1) if listed.count(byte) > 1]
    assert len(alike) == 2
    id, _ = opened(engine, make_spec("distributed", devices=12, **ROUND))
    assert crowd.play(engine, id, clock) == "done"
    assert engine.collection(id)["rounds"][0]["included"] == 11
    (named,) = device_faults(store)
    assert named.device in alike
    assert (named.kind, named.against, named.proven) == ("message", 1, False)
    failed(store)


@pytest.mark.parametrize(
    ("phase", "devices"), [("keys", 0), ("shares", 0), ("inputs", 0), ("consents", 24), ("answers", 24)]
)
def test_an_operator_s_abort_charges_those_whose_survivors_were_told(
    engine, store, clock, crowd_of, opened, make_spec, phase, devices
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", **ROUND))
    begun(engine, id, crowd)
    crowd.play_until(engine, id, phase)
    asyncio.run(crowd.turn(engine, id))
    engine.abort(id, "operator 1", "enough")
    assert sum(charge["devices"] for charge in engine.ledger()) == devices
    failed(store)


def test_a_malformed_input_is_refused_at_the_door_and_costs_its_device_only(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", **ROUND))
    begun(engine, id, crowd)
    crowd.play_until(engine, id, "inputs")
    tampered(crowd, "inputs", lambda fields: (fields[0][:-1], *fields[1:]))
    with pytest.raises(Invalid, match="vector of"):
        asyncio.run(crowd.turn(engine, id))
    crowd.gone.add(LIAR)
    assert crowd.play(engine, id, clock) == "done"
    assert (engine.ledger()[0]["devices"], engine.collection(id)["rounds"][0]["left_out"]) == (23, 0)
