"""Whoever leaves, and whenever: the exact sum of those who stayed, or an abort, never a wrong sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mapveil_client.secure_sum.graph import make_ring, permutation
from mapveil_client.secure_sum.masks import Cipher
from mapveil_client.secure_sum.states import Abort, ServerState

SLOW = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)


def must_abort(parameters, graph_seed, stays) -> bool:
    """The slow, obvious rule: sets and loops over clients."""
    graph = make_ring(parameters.clients, parameters.neighbours, graph_seed).neighbours.tolist()
    everybody = range(parameters.clients)
    answering = 4 if not parameters.active else 5
    for done in (1, 2, 3):
        left = {i for i in everybody if stays[i] >= done}
        if len(left) < parameters.minimum:
            return True
        bound = left if done < 3 else {i for i in everybody if stays[i] >= 2}
        for i in bound:
            near = sum(j in left for j in graph[i])
            if near < parameters.threshold and (i in left or near):
                return True
    sharing = {i for i in everybody if stays[i] >= 2}
    survivors = {i for i in everybody if stays[i] >= 3}
    reached, edge = set(), {min(survivors)}
    while edge:
        reached |= edge
        edge = {j for i in edge for j in graph[i] if j in survivors} - reached
    if reached != survivors:
        return True
    answers = {i for i in survivors if stays[i] >= answering}
    if parameters.active:
        order = permutation(parameters.clients, graph_seed)[: parameters.committee]
        if sum(i in survivors and stays[i] >= 4 for i in order.tolist()) < parameters.quorum:
            return True
    asked = survivors | {i for i in sharing if any(j in survivors for j in graph[i])}
    return any(sum(j in answers for j in graph[i]) < parameters.threshold for i in asked)


@st.composite
def rounds(draw):
    """A round, and how many messages of each client arrive: few leave, or many, or any pattern."""
    clients = draw(st.integers(3, 12) | st.integers(3, 24) | st.integers(25, 200))
    even = list(range(2, min(clients, 14), 2))
    neighbours = draw(st.sampled_from([*even, clients - 1] if clients <= 24 else even[1:4]))
    active = draw(st.booleans())
    threshold = draw(st.sampled_from([2, neighbours // 2 + 1]) | st.integers(2, neighbours))
    last = 5 if active else 4
    leaving = draw(st.sampled_from([0.0, 0.03, 0.1, 0.3]))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    stays = np.where(chance.random(clients) < leaving, chance.integers(0, last + 1, clients), last)
    changes = {
        "neighbours": neighbours,
        "threshold": threshold,
        "length": draw(st.integers(1, 4)),
        "bits": draw(st.integers(1, 64)),
        "minimum": draw(st.sampled_from([2, 2, clients // 2 + 1, clients])),
        "signed": active or draw(st.booleans()),
        "active": active,
        "cipher": draw(st.sampled_from(list(Cipher))),
    }
    if active:
        changes["committee"] = draw(st.integers(1, clients))
        changes["quorum"] = draw(st.integers(changes["committee"] // 2 + 1, changes["committee"]))
    return clients, changes, stays, draw(st.integers(0, 2**32))


def check(local_round, parameters, stays, seed) -> bool:
    """Run it; True where there was a sum."""
    chance = np.random.default_rng(seed)
    vectors = chance.integers(-(1 << 62), 1 << 62, size=(parameters.clients, parameters.length))
    made = local_round(parameters, vectors, seed=seed, stays=stays)
    try:
        total = made.run()
    except Abort:
        assert must_abort(parameters, made.server._ring.seed, stays)
        assert made.server.state is ServerState.ABORTED
        return False
    assert not must_abort(parameters, made.server._ring.seed, stays)
    assert total.tolist() == made.true_sum().tolist()
    assert made.server.included.tolist() == (np.asarray(stays) >= 3).tolist()
    return True


@SLOW
@given(case=rounds())
def test_any_pattern_gives_the_exact_sum_of_the_survivors_or_an_abort(local_round, make_parameters, case):
    clients, changes, stays, seed = case
    summed = check(local_round, make_parameters(clients, **changes), stays, seed)
    event("sum" if summed else "abort")
    event(f"sum after dropouts: {summed and bool(np.any(np.asarray(stays) < 4))}")


@pytest.mark.parametrize(
    ("clients", "neighbours", "active"), [(200, 12, False), (80, 8, True), (80, 79, False)]
)
def test_many_clients(local_round, make_parameters, clients, neighbours, active):
    chance = np.random.default_rng(1)
    last = 5 if active else 4
    stays = np.where(chance.random(clients) < 0.05, chance.integers(0, last, clients), last)
    parameters = make_parameters(
        clients,
        neighbours=neighbours,
        threshold=neighbours // 2 + 1,
        minimum=clients * 4 // 5,
        signed=active,
        active=active,
    )
    assert check(local_round, parameters, stays, 1)


@pytest.mark.parametrize("leaves_after", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("active", [False, True])
def test_everyone_but_one_step_at_a_time(local_round, make_parameters, leaves_after, active):
    # Three of seven leave together at each step in turn: always a sum, of four or of all seven.
    parameters = make_parameters(7, threshold=4 if leaves_after < 1 else 3, neighbours=6)
    if active:
        parameters = make_parameters(7, threshold=4, neighbours=6, signed=True, active=True)
    stays = np.full(7, 9)
    stays[[1, 3]] = leaves_after
    made = local_round(parameters, np.arange(35).reshape(7, 5), stays=stays)
    total = made.run()
    assert total.tolist() == made.true_sum().tolist()
    assert made.server.included.sum() == (7 if leaves_after >= 3 else 5)


def test_a_thousand_clients_of_which_every_twentieth_leaves(local_round, make_parameters):
    clients = 1000
    chance = np.random.default_rng(3)
    stays = np.where(chance.random(clients) < 0.05, chance.integers(0, 4, clients), 9)
    parameters = make_parameters(clients, neighbours=12, threshold=7, length=3, bits=20, minimum=900)
    assert check(local_round, parameters, stays, 3)
