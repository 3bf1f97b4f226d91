"""Settings: what a shard's parties agree on, and the sizes that follow from it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.secure_sum.drivers import check_promised, largest_messages
from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.graph_sizes import choose_committee, choose_neighbourhood
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.states import Abort

TWENTIETH = Fraction(1, 20)


def how(**changes: object) -> SumSettings:
    given = {"length": 9, "bits": 20, "corrupt": TWENTIETH, "dropout": TWENTIETH, "round_id": b"r"}
    return SumSettings(**{**given, **changes})


@pytest.mark.parametrize("active", [False, True])
def test_the_parties_agree_on_the_neighbourhood_and_on_the_promise(active):
    made = how(active=active, context=b"c").parameters(1_000, b"un")
    wanted = choose_neighbourhood(1_000, TWENTIETH, TWENTIETH, active=active)
    assert (made.neighbours, made.threshold) == wanted
    committee = choose_committee(1_000, TWENTIETH, TWENTIETH) if active else (0, 0)
    assert (made.committee, made.quorum) == committee
    assert made.minimum == 950
    assert (made.round_id, made.context, made.length, made.bits) == (b"run", b"c", 9, 20)
    assert made.active == made.signed == active


def test_the_failure_probabilities_reach_the_graph():
    strict, lax = how().parameters(1_000), how(sigma=10, eta=5).parameters(1_000)
    assert lax.neighbours < strict.neighbours


@pytest.mark.parametrize(
    ("clients", "dropout", "promised"),
    [
        (100, Fraction(1, 20), 95),
        (19, Fraction(1, 20), 19),
        (10, Fraction(1, 3), 7),
        (1, Fraction(99, 100), 1),
    ],
)
def test_the_promise_counts_whole_clients(clients, dropout, promised):
    settings = how(dropout=dropout)
    assert settings.promised(clients) == promised
    check_promised(np.array([promised]), np.array([clients]), settings)
    with pytest.raises(Abort, match=f"{promised - 1} of the {clients} vectors of shard 1"):
        check_promised(np.array([promised, promised - 1]), np.array([clients] * 2), settings)


def test_messages_grow_with_the_neighbours_and_the_vector():
    up, down = largest_messages(how(), 1_000)
    assert list(up) == ["advertise", "shares", "masked_input", "answer"]
    assert list(down) == ["roster", "inbox", "survivors"]
    longer, _ = largest_messages(how(length=9 + 80), 1_000)
    assert longer["masked_input"] - up["masked_input"] == 80 * 20 // 8 + 1  # one more byte says its length
    assert {k: v for k, v in longer.items() if k != "masked_input"} == {
        k: v for k, v in up.items() if k != "masked_input"
    }
    assert largest_messages(how(active=True), 1_000)[0]["shares"] > up["shares"]
    assert largest_messages(how(), 2) == ({}, {})  # no protocol between two


@pytest.mark.parametrize(
    ("name", "value"),
    [("length", 0), ("bits", 0), ("bits", 65), ("corrupt", Fraction(1)), ("dropout", Fraction(-1, 9))],
)
def test_settings_outside_their_range_are_refused(name, value):
    with pytest.raises(ParameterError, match=f"{name} must be"):
        SumSettings(**{"length": 3, "bits": 20, "round_id": b"r", name: value})
