"""A process that is slow while another goes on: it tells nothing wrong, ends nothing, and holds no work up."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from sqlalchemy import update

from mapveil.collector.refusals import TooLate
from mapveil.collector.roles import Loop
from mapveil.collector.rounds import shard_machines, worker
from mapveil.collector.rounds.collection import forget_inputs
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.store.schema import rounds
from mapveil.collector.store.work_queue import LEASE_SECONDS, Leases, Task, Work, order
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import ServerState
from tests.authority import AUTHORITY


@pytest.fixture
def pair(new_store, postgresql_url, clock):
    """Two engines on one store of PostgreSQL."""
    stores = [new_store(postgresql_url) for _ in range(2)]
    stores[0].create_tables()
    return [
        Engine(each, clock, Randomness(at), authority=AUTHORITY) for at, each in enumerate(stores)
    ], stores


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("after", [0, 1])
def test_an_intake_tells_no_set_of_survivors_that_it_read_while_the_messages_were_being_deleted(
    pair, clock, crowd_of, opened, make_spec, monkeypatch, active, after
):
    """It would be another set than was told before: of those of which both were told, all could be unmasked."""
    (first, second), stores = pair
    crowd = crowd_of(stores[0], 24)
    id, _ = opened(first, make_spec("distributed", method="uniform", active=active))
    asyncio.run(crowd.join(first, id))
    first.tick()
    crowd.play_until(first, id, "answers")
    second.devices.assignment(id, 1, 1)
    monkeypatch.setattr(shard_machines, "_ROWS", 5)
    real, ended = stores[1].pages, []

    def pages(query, rows, *key):
        inputs = ServerState.INPUTS.value in query.compile().params.values()
        for at, page in enumerate(real(query, rows, *key)):
            if inputs and at == after and not ended:
                first.abort(id, "operator 1", "enough")
                first.tick()
                ended.append(id)
            yield page

    monkeypatch.setattr(stores[1], "pages", pages)
    with pytest.raises(TooLate):
        second.devices.server_message(id, 1, 1)
    assert ended
    with pytest.raises(TooLate):
        second.devices.server_message(id, 1, 1)


def test_inputs_that_were_read_while_another_process_closed_their_phase_are_read_again(
    pair, clock, crowd_of, opened, make_spec, monkeypatch
):
    """Inputs that count in no sum are deleted with the phase: who read the first of them would lack the last only."""
    (first, _), stores = pair
    crowd = crowd_of(stores[0], 24)
    id, _ = opened(first, make_spec("distributed", method="uniform", active=False))
    asyncio.run(crowd.join(first, id))
    first.tick()
    crowd.play_until(first, id, "inputs")
    asyncio.run(crowd.turn(first, id))
    monkeypatch.setattr(shard_machines, "_ROWS", 5)
    real, closed = stores[1].pages, []

    def pages(query, rows, *key):
        inputs = ServerState.INPUTS.value in query.compile().params.values()
        for page in real(query, rows, *key):
            yield page
            if inputs and not closed:
                closed.append(id)
                with stores[0].write() as connection:
                    forget_inputs(connection, id, 1, [(0, 0), (0, 11)])
                    connection.execute(update(rounds).values(phase=ServerState.ANSWERS.value))

    monkeypatch.setattr(stores[1], "pages", pages)
    machine = ShardMachines(stores[1]).of(id, 1).machines[0]
    machine.bring_up(ServerState.ANSWERS)
    assert closed
    assert np.flatnonzero(machine.server.included).tolist() == list(range(1, 11))


def test_a_masked_input_that_is_gone_though_no_phase_ended_is_a_fault_and_no_end_of_the_round(
    pair, clock, crowd_of, opened, make_spec, monkeypatch
):
    (first, _), stores = pair
    crowd = crowd_of(stores[0], 24)
    id, _ = opened(first, make_spec("distributed", method="uniform"))
    asyncio.run(crowd.join(first, id))
    first.tick()
    crowd.play_until(first, id, "inputs")
    asyncio.run(crowd.turn(first, id))
    machine = ShardMachines(stores[1]).of(id, 1).machines[0]
    monkeypatch.setattr(machine, "_close_until", lambda _: machine._masked_input(99))
    with pytest.raises(AssertionError, match="no phase ended"):
        machine.bring_up(ServerState.CONSENTS)
    assert crowd.play(first, id, clock) == "done"


def test_a_worker_that_slept_while_another_made_the_map_ends_nothing(
    pair, clock, crowd_of, opened, make_spec, monkeypatch, caplog
):
    (first, second), stores = pair
    crowd = crowd_of(stores[0], 24)
    id, terms = opened(first, make_spec("local"))
    for device, body in enumerate(crowd.local_reports(terms), start=1):
        asyncio.run(first.devices.report(id, device, body))
    first.loops._act(Loop.CONDUCT)
    make = worker.make_map

    def slept(store, collection):
        monkeypatch.setattr(worker, "make_map", make)
        clock.advance(LEASE_SECONDS + 1)
        assert second.loops._act(Loop.MAPS)
        return make(store, collection)  # of reports that are erased

    monkeypatch.setattr(worker, "make_map", slept)
    assert not first.loops._act(Loop.MAPS)
    assert first.collection(id)["state"] == "done"
    assert "cannot go on" not in caplog.text


def test_work_that_was_given_up_is_leased_no_longer_than_once(pair, clock):
    _, stores = pair
    leases = [Leases(each, name, Task.PRUNE) for each, name in zip(stores, "ab", strict=True)]
    for number in (1, 2):
        with stores[0].write() as connection:
            order(connection, [Work(Task.PRUNE, str(number) * 32, 1)])
        clock.advance(1)
    given_up, taken = leases[0].take(1), leases[0].take(1)
    clock.advance(LEASE_SECONDS - 1)
    leases[0].renew(taken)
    clock.advance(2)
    assert leases[1].take(1) == given_up
    assert leases[1].take(1) == []
