"""The protocol driver: the ideal driver's answers or an abort, whoever leaves whenever."""

from __future__ import annotations

import multiprocessing
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.secure_sum.drivers import IdealSum
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.secure_sum.server import Server
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.masks import Cipher
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.states import Abort, ServerState
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

THIRD = Fraction(1, 3)


def how(length: int = 6, **changes: object) -> SumSettings:
    # Lax failure probabilities: small shards then have graphs that are not complete.
    lax = {"dropout": THIRD, "corrupt": Fraction(1, 10), "sigma": 4, "eta": 4, "bits": 20}
    return SumSettings(length=length, round_id=b"round", **{**lax, **changes})


def some(clients: int, length: int = 6, number: int = 0) -> SparseVectors:
    generator = np.random.default_rng(number)
    entries = 3 * clients
    return SparseVectors(
        clients,
        length,
        generator.integers(0, clients, entries),
        generator.integers(0, length, entries),
        generator.integers(-100, 100, entries),
    )


def everybody(clients: int) -> np.ndarray:
    return np.full(clients, Leaves.NEVER, dtype=np.int8)


def both(vectors, shards, leaves, settings, driver, rng=None):
    """The answers of both drivers, and what the hooks were told."""
    told: list[list[int]] = []
    arguments = (vectors, np.array(shards), leaves, settings, rng or Randomness(3))

    def hear(counts: np.ndarray) -> None:
        told.append(counts.tolist())

    ideal = IdealSum().sums(*arguments, before_reveal=lambda _: None)
    return ideal, driver.sums(*arguments, before_reveal=hear), told


@settings(max_examples=60)
@given(
    st.integers(4, 24),
    st.lists(st.tuples(st.integers(0, 23), st.sampled_from(Leaves)), max_size=8),
    st.sampled_from([1, 7, 20, 33, 64]),
    st.booleans(),
    st.integers(0, 9),
)
def test_whatever_the_dropouts_the_sum_is_right_or_there_is_none(clients, leaving, bits, active, number):
    leaves = everybody(clients)
    for client, when in leaving:
        leaves[client % clients] = when
    settings = how(bits=bits, active=active, corrupt=Fraction(0))
    try:
        ideal, found, _ = both(some(clients, number=number), [0, clients], leaves, settings, ProtocolSum())
    except Abort:
        assert np.any(leaves < Leaves.NEVER)  # nobody left: nothing to abort for
        return
    assert np.array_equal(found[0].total, ideal[0].total)
    assert np.array_equal(found[0].included, ideal[0].included)


@pytest.mark.parametrize("when", Leaves)
def test_one_that_leaves_early_is_left_out_and_one_that_leaves_late_is_not(when):
    leaves = everybody(16)
    leaves[5] = when
    ideal, found, told = both(some(16), [0, 16], leaves, how(), ProtocolSum())
    assert found[0].included[5] == (when >= Leaves.INPUT)
    assert np.array_equal(found[0].total, ideal[0].total)
    assert told == [[15 + (when >= Leaves.INPUT)]]


def test_shards_are_told_one_after_another():
    leaves = everybody(30)
    leaves[11] = Leaves.SHARES
    ideal, found, told = both(some(30), [0, 10, 19, 30], leaves, how(), ProtocolSum())
    assert told == [[10], [10, 8], [10, 8, 11]]
    for one, other in zip(ideal, found, strict=True):
        assert np.array_equal(one.total, other.total)


@pytest.mark.parametrize("cipher", Cipher)
@pytest.mark.parametrize("active", [False, True])
def test_with_everybody_there_both_drivers_count_the_same_bytes(active, cipher):
    settings = how(active=active, corrupt=Fraction(0), cipher=cipher)
    ideal, found, _ = both(some(14), [0, 14], everybody(14), settings, ProtocolSum())
    assert settings.parameters(14).neighbours < 13
    assert found[0].bytes_up == ideal[0].bytes_up
    assert found[0].bytes_down == ideal[0].bytes_down
    assert ("consent" in found[0].bytes_up) == active


def closing_phases(monkeypatch: pytest.MonkeyPatch) -> list[ServerState]:
    closed, close = [], Server.close_phase

    def noted(self: Server):
        closed.append(self.state)
        return close(self)

    monkeypatch.setattr(Server, "close_phase", noted)
    return closed


def test_what_the_hook_refuses_is_never_unmasked(monkeypatch):
    closed = closing_phases(monkeypatch)

    def refuse(counts: np.ndarray) -> None:
        raise Abort(f"refused at {counts.tolist()}")

    with pytest.raises(Abort, match=r"refused at \[12\]"):
        ProtocolSum().sums(
            some(12), np.array([0, 12]), everybody(12), how(), Randomness(1), before_reveal=refuse
        )
    assert closed == [ServerState.KEYS, ServerState.SHARES]  # the inputs were never closed


def test_too_few_vectors_abort_once_the_hook_was_told_and_nothing_is_unmasked(monkeypatch):
    closed, told = closing_phases(monkeypatch), []
    leaves = everybody(20)
    leaves[:7] = Leaves.SHARES
    with pytest.raises(Abort, match="13 of the 20 vectors of shard 0 arrived; 14 were promised"):
        ProtocolSum().sums(
            some(20),
            np.array([0, 20]),
            leaves,
            how(),
            Randomness(1),
            before_reveal=lambda counts: told.append(counts.tolist()),
        )
    assert told == [[13]]
    assert ServerState.INPUTS not in closed


def test_too_few_answers_abort():
    leaves = everybody(12)
    leaves[:9] = Leaves.INPUT
    with pytest.raises(Abort, match="gave their share"):
        both(some(12), [0, 12], leaves, how(), ProtocolSum())


def test_an_unseeded_run_needs_no_seed():
    ideal, found, _ = both(some(8), [0, 8], everybody(8), how(), ProtocolSum(), Randomness())
    assert np.array_equal(found[0].total, ideal[0].total)


def test_runs_of_one_round_have_names_of_their_own(monkeypatch):
    names = []
    settings = how()
    parameters = SumSettings.parameters

    def noted(self, clients, run=b""):
        names.append(self.round_id + run)
        return parameters(self, clients, run)

    monkeypatch.setattr(SumSettings, "parameters", noted)
    rng = Randomness(1)
    for _ in range(2):
        ProtocolSum().sums(
            some(20), np.array([0, 10, 20]), everybody(20), settings, rng, before_reveal=lambda _: None
        )
    assert len(set(names)) == len(names) == 4


@pytest.mark.parametrize("active", [False, True])
def test_processes_give_the_same_sums_and_are_kept(active):
    clients, shards = 40, [0, 25, 40]
    leaves = everybody(clients)
    leaves[[2, 9, 30]] = [Leaves.NOTHING, Leaves.SHARES, Leaves.INPUT]
    settings = how(active=active, corrupt=Fraction(0))
    before, staff = set(multiprocessing.active_children()), []
    with ProtocolSum(workers=2) as driver:
        for number in range(2):
            vectors = some(clients, number=number)
            ideal, found, told = both(vectors, shards, leaves, settings, driver)
            for one, other in zip(ideal, found, strict=True):
                assert np.array_equal(one.total, other.total)
                assert np.array_equal(one.included, other.included)
            assert told == [[23], [23, 15]]
            staff.append(set(multiprocessing.active_children()) - before)
        assert len(staff[0]) == 2
        assert staff[1] == staff[0], "the processes of the first sum are kept"
    assert not any(process.is_alive() for process in staff[0])


def test_a_driver_needs_a_worker():
    with pytest.raises(ParameterError, match="workers must be"):
        ProtocolSum(workers=0)


def test_a_shard_too_small_for_any_graph_is_refused():
    with pytest.raises(ParameterError, match="clients must be 3 or more, got 2"):
        both(some(2), [0, 2], everybody(2), how(), ProtocolSum())
