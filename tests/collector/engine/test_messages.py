"""What devices send: once, in time, their own; whatever else comes is refused and changes nothing."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest
from sqlalchemy import func, select

from mapveil.collector.refusals import Conflict, Invalid, NotFound, TooLate
from mapveil.collector.rounds import secure_rounds
from mapveil.collector.rounds.shard_ends import close_shard
from mapveil.collector.store.schema import messages, reports
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.states import ServerState
from mapveil_client.terms import CollectionTerms
from tests.authority import credentials_of

FOUR = {
    "devices": 4,
    "method": "uniform",
    "epsilon": "9",
    "options": {"shard_size": 4, "tolerated_dropout": 0, "corrupt": 0},
}


def send(engine, *message):
    asyncio.run(engine.devices.message(*message))


def stored(store, table):
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar()


@pytest.fixture
def running(engine, store, crowd_of, opened, make_spec):
    """A round of four devices that collects keys."""
    crowd = crowd_of(store, 5)
    id, _ = opened(engine, make_spec("distributed", **FOUR))
    asyncio.run(crowd.join(engine, id))
    engine.tick()
    terms = CollectionTerms.decode(engine.devices.terms(id))
    announced = RoundAnnouncement.decode(engine.devices.announcement(id, 1))

    def answer(device, phase):
        return crowd._answer(engine, id, terms, announced, 1, phase, device)

    return crowd, id, announced, answer


def other_keys(engine, crowd, id, announced, device, *, identity=None):
    """The first message of another client in the same assigned."""
    assigned = engine.devices.assignment(id, 1, device)
    parameters = announced.parameters(assigned.shard)
    vector = np.zeros(announced.length, dtype=np.int64)
    who = identity or crowd.identities[device - 1]
    return Client(
        parameters, assigned.client, vector, Randomness(99), credentials=credentials_of(who)
    ).advertise()


def test_a_message_sent_again_is_fine_and_another_is_not(engine, store, running):
    crowd, id, announced, answer = running
    first = answer(1, "keys")
    for _ in range(3):
        send(engine, id, 1, "keys", 1, first)
    assert stored(store, messages) == 1
    with pytest.raises(Conflict):
        send(engine, id, 1, "keys", 1, other_keys(engine, crowd, id, announced, 1))
    assert stored(store, messages) == 1


def test_many_copies_at_once_are_one(engine, store, running):
    crowd, id, announced, answer = running
    first, other = answer(1, "keys"), other_keys(engine, crowd, id, announced, 1)

    async def many():
        bodies = [first] * 20 + [other] * 20
        return await asyncio.gather(
            *(engine.devices.message(id, 1, "keys", 1, body) for body in bodies), return_exceptions=True
        )

    outcomes = asyncio.run(many())
    # Whichever came first: they run side by side.
    kept, refused = sorted((outcomes[:20], outcomes[20:]), key=lambda part: part[0] is not None)
    assert kept == [None] * 20
    assert all(isinstance(each, Conflict) for each in refused)
    assert stored(store, messages) == 1


def test_what_is_not_the_devices_own_is_refused(engine, store, running):
    crowd, id, announced, answer = running
    theirs = answer(2, "keys")
    stranger = other_keys(engine, crowd, id, announced, 1, identity=Identity.draw(Randomness(3)))
    for body in (theirs, b"", b"nonsense", theirs[:-1], stranger, bytes(1 << 16)):
        with pytest.raises(Invalid):
            send(engine, id, 1, "keys", 1, body)
    for message in (
        (id, 1, "keys", 77, theirs),
        (id, 1, "done", 2, theirs),
        (id, 2, "keys", 2, theirs),
        ("0" * 32, 1, "keys", 2, theirs),
    ):
        with pytest.raises(NotFound):
            send(engine, *message)
    with pytest.raises(Conflict):
        send(engine, id, 1, "shares", 2, theirs)
    assert stored(store, messages) == 0


def test_a_message_that_comes_late_is_fine_only_if_it_was_kept(engine, store, running, clock):
    crowd, id, announced, answer = running
    bodies = {device: answer(device, "keys") for device in (1, 2, 3, 4)}
    for device, body in bodies.items():
        send(engine, id, 1, "keys", device, body)
    engine.tick()
    assert engine.devices.progress(id).phase == "shares"
    send(engine, id, 1, "keys", 1, bodies[1])
    with pytest.raises(TooLate):
        send(engine, id, 1, "keys", 1, other_keys(engine, crowd, id, announced, 1))
    assert stored(store, messages) == 4


def test_nothing_is_accepted_between_shutting_a_phase_and_opening_the_next(engine, store, running):
    _crowd, id, _, answer = running
    for device in (1, 2, 3):
        send(engine, id, 1, "keys", device, answer(device, "keys"))
    last = answer(4, "keys")
    with store.write() as connection:
        assert secure_rounds.shut_phase(connection, id, 1, ServerState.KEYS)
    with pytest.raises(TooLate):
        send(engine, id, 1, "keys", 4, last)
    engine._machines.forget(id)
    engine._board.forget(id)
    with pytest.raises(TooLate):
        send(engine, id, 1, "keys", 4, last)
    assert stored(store, messages) == 3


def test_no_survivors_are_told_before_the_round_is_charged(engine, store, running):
    _, id, _, answer = running
    for phase in ("keys", "shares", "inputs"):
        for device in (1, 2, 3, 4):
            send(engine, id, 1, phase, device, answer(device, phase))
        if phase != "inputs":
            engine.tick()
    inbox = engine.devices.server_message(id, 1, 1)
    with store.write() as connection:
        secure_rounds.shut_phase(connection, id, 1, ServerState.INPUTS)
    # The machine goes on before the store does, as it would if the process died in between.
    close_shard(engine._machines.of(id, 1), 0, ServerState.INPUTS)
    assert engine.ledger() == []
    assert engine.devices.server_message(id, 1, 1) == inbox
    engine.tick()
    assert engine.devices.server_message(id, 1, 1).phase == "consents"
    assert [line["devices"] for line in engine.ledger()] == [4]


def test_after_the_round_and_the_collection_everything_is_too_late(engine, store, crowd_of, clock, running):
    crowd, id, _, _ = running
    assert crowd.play(engine, id, clock) == "done"
    with pytest.raises(TooLate):
        send(engine, id, 1, "keys", 1, crowd.answers[1, 1, "keys"])
    with pytest.raises(TooLate):
        engine.devices.server_message(id, 1, 1)
    with pytest.raises(TooLate):
        engine.devices.assignment(id, 1, 1)
    with pytest.raises(TooLate):
        asyncio.run(engine.devices.join(id, 5))
    asyncio.run(engine.devices.join(id, 1))  # it did join


def test_a_fifth_device_is_not_taken_where_four_are_wanted(engine, running):
    _crowd, id, _, _ = running
    assert engine.collection(id)["members"] == 4
    with pytest.raises(NotFound):
        engine.devices.assignment(id, 1, 5)


def test_reports_are_checked_kept_once_and_forgotten(engine, store, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 4)
    id, terms = opened(engine, make_spec("local", devices=4))
    bodies = crowd.local_reports(terms)
    others = crowd.local_reports(terms, Randomness(5))
    different = next(each for each in others if each != bodies[0])
    asyncio.run(engine.devices.report(id, 1, bodies[0]))
    asyncio.run(engine.devices.report(id, 1, bodies[0]))
    with pytest.raises(Conflict):
        asyncio.run(engine.devices.report(id, 1, different))
    for body in (b"", b"nonsense", bodies[0] + b"\0", bytes(5000)):
        with pytest.raises(Invalid) as caught:
            asyncio.run(engine.devices.report(id, 2, body))
        assert "report" in str(caught.value)
    with pytest.raises(Conflict):
        asyncio.run(engine.devices.join(id, 2))
    asyncio.run(engine.devices.report(id, 3, bodies[2]))
    with pytest.raises(NotFound):  # there are no rounds of it
        send(engine, id, 1, "keys", 2, b"")
    assert stored(store, reports) == 2
    for device in (2, 4):
        asyncio.run(engine.devices.report(id, device, bodies[device - 1]))
    engine.tick()
    assert engine.collection(id)["reports"] == 4
    with store.read() as connection:
        assert set(connection.execute(select(reports.c.body)).scalars()) == {b""}
    with pytest.raises(TooLate):
        asyncio.run(engine.devices.report(id, 1, bodies[0]))


def test_nothing_that_devices_send_is_logged_or_audited(
    engine, store, clock, crowd_of, opened, make_spec, caplog
):
    caplog.set_level(logging.DEBUG)
    crowd = crowd_of(store, 4)
    id, _ = opened(engine, make_spec("distributed", **FOUR))
    crowd.play(engine, id, clock)
    told = caplog.text + repr(engine.audit(0, 1000)) + repr(engine.collections()) + repr(engine.ledger())
    for body in crowd.answers.values():
        assert body.hex()[-64:] not in told
        assert repr(body[-32:])[2:-1] not in told
    for identity in crowd.identities:
        assert identity.public.hex() not in told
