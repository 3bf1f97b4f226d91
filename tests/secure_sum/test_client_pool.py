"""A pool of client processes: every task answered once, faults carried over, no stale answers."""

from __future__ import annotations

import multiprocessing
from functools import partial

import numpy as np
import pytest

from mapveil.secure_sum.client_pool import ClientPool, ShardClients, Task
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import OwnFault, PeerFault
from mapveil_client.secure_sum.vectors import SparseVectors

N = 12
PARAMETERS = RoundParameters(round_id=b"r", clients=N, neighbours=4, threshold=3, length=2, bits=8, minimum=2)
NOTHING = np.zeros(0, dtype=np.int64)


def advertise(first: int, last: int) -> Task:
    vectors = SparseVectors(last - first, 2, NOTHING, NOTHING, NOTHING)
    return Task("advertise", (first, vectors, list(range(first, last))))


STARTS = [partial(advertise, first, first + 3) for first in range(0, N, 3)]
SPOILT = [partial(Task, "deliver", ([(0, b"junk")],))]


@pytest.fixture(scope="module")
def pools():
    made = [ClientPool(1), ClientPool(2)]
    yield made
    for pool in made:
        pool.close()


@pytest.mark.parametrize("which", [0, 1], ids=["here", "apart"])
def test_every_task_is_answered_once(pools, which):
    pool = pools[which]
    pool.open(PARAMETERS, Randomness())
    answers = [client for messages in pool.run(STARTS) for client, _ in messages]
    assert sorted(answers) == list(range(N))


@pytest.mark.parametrize("which", [0, 1], ids=["here", "apart"])
def test_a_seeded_pool_repeats_and_an_unseeded_one_does_not(pools, which):
    pool, drawn = pools[which], []
    for rng in (Randomness(7), Randomness(7), Randomness(8), Randomness(), Randomness()):
        pool.open(PARAMETERS, rng)
        drawn.append(sorted(message for messages in pool.run(STARTS) for message in messages))
    assert drawn[0] == drawn[1]
    assert all(drawn[i] != drawn[j] for i in range(2, 5) for j in range(1, i))
    for each in drawn:
        assert len({data for _, data in each}) == N  # no two clients draw alike


@pytest.mark.parametrize("which", [0, 1], ids=["here", "apart"])
def test_a_fault_is_raised_here_and_the_next_shard_is_clean(pools, which):
    pool = pools[which]
    pool.open(PARAMETERS, Randomness(1))
    list(pool.run(STARTS))
    with pytest.raises(PeerFault):
        list(pool.run(SPOILT))
    pool.open(PARAMETERS, Randomness(1))
    assert sorted(client for messages in pool.run(STARTS) for client, _ in messages) == list(range(N))


def test_answers_nobody_waits_for_are_not_taken_for_later_ones(pools):
    pool = pools[1]
    pool.open(PARAMETERS, Randomness(1))
    next(pool.run(STARTS))
    pool.open(PARAMETERS, Randomness(1))
    assert sorted(client for messages in pool.run(STARTS) for client, _ in messages) == list(range(N))


def test_a_process_that_ends_is_said_to(pools):
    pool = pools[1]
    pool.open(PARAMETERS, Randomness(1))
    for process in multiprocessing.active_children():
        process.terminate()
        process.join()
    with pytest.raises(OwnFault, match="ended by itself"):
        list(pool.run(STARTS))
    pool.open(PARAMETERS, Randomness(1))  # new ones
    assert len(list(pool.run(STARTS))) == len(STARTS)


def test_a_pool_that_is_forgotten_ends_its_processes():
    before = {process.pid for process in multiprocessing.active_children()}
    pool = ClientPool(2)
    pool.open(PARAMETERS, Randomness(1))
    assert len({process.pid for process in multiprocessing.active_children()} - before) == 2
    del pool
    assert {process.pid for process in multiprocessing.active_children()} <= before


def test_a_client_that_leaves_the_round_answers_nothing():
    clients = ShardClients()
    clients.open(PARAMETERS, 1, bytes(32))
    ((client, _),) = clients.advertise(4, SparseVectors(1, 2, NOTHING, NOTHING, NOTHING), [4])
    assert client == 4
    from mapveil_client.secure_sum import messages
    from mapveil_client.secure_sum.states import Message

    # A roster in which no neighbour is present: too few to share with.
    roster = messages.encode(PARAMETERS, Message.ROSTER, 4, bytes(32), b"\x00", b"", b"", b"")
    assert clients.deliver([(4, roster)]) == []
