"""The ideal driver adds exactly what it should, however the shards and batches are cut."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.secure_sum import drivers
from mapveil.secure_sum.drivers import IdealSum
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.states import Abort
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

ANY = Fraction(99, 100)


def how(length: int, bits: int, dropout: Fraction = ANY) -> SumSettings:
    return SumSettings(length=length, bits=bits, dropout=dropout, round_id=b"round")


@st.composite
def shards_of_vectors(draw):
    sizes = draw(st.lists(st.integers(1, 5), max_size=5))
    clients, length = sum(sizes), draw(st.integers(1, 6))
    entry = st.tuples(
        st.integers(0, max(clients - 1, 0)), st.integers(0, length - 1), st.integers(-(2**62), 2**62)
    )
    entries = draw(st.lists(entry, max_size=30 if clients else 0))
    columns = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    leaves = draw(st.lists(st.sampled_from(Leaves), min_size=clients, max_size=clients))
    return (
        SparseVectors(clients, length, *columns),
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64),
        np.array(leaves, dtype=np.int8),
        entries,
    )


@settings(max_examples=150)
@given(shards_of_vectors(), st.integers(1, 64))
def test_sums_are_those_of_whole_numbers(made, bits):
    vectors, shards, leaves, entries = made
    told: list[np.ndarray] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drivers, "_BATCH", 4)
        patch.setattr(drivers, "check_promised", lambda *_: None)
        found = IdealSum().sums(
            vectors, shards, leaves, how(vectors.length, bits), Randomness(1), before_reveal=told.append
        )
    assert len(found) == shards.size - 1
    assert len(told) == 1
    for i, each in enumerate(found):
        members = range(shards[i], shards[i + 1])
        wanted = [0] * vectors.length
        for client, position, value in entries:
            if client in members and leaves[client] >= Leaves.INPUT:
                wanted[position] += value
        assert each.total.dtype == np.uint64
        assert each.total.tolist() == [value % 2**bits for value in wanted]
        assert each.included.tolist() == [bool(leaves[j] >= Leaves.INPUT) for j in members]
        assert told[0][i] == np.count_nonzero(each.included)


def some(clients: int, entries: int, length: int) -> SparseVectors:
    generator = np.random.default_rng(clients)
    return SparseVectors(
        clients,
        length,
        generator.integers(0, clients, entries),
        generator.integers(0, length, entries),
        generator.integers(-1_000, 1_000, entries),
    )


def test_many_batches_give_what_one_gives():
    vectors = some(3_000, 400_000, 50)
    shards = np.array([0, 1_000, 3_000])
    leaves = np.full(3_000, Leaves.NEVER, dtype=np.int8)
    found = IdealSum().sums(vectors, shards, leaves, how(50, 64), Randomness(1), before_reveal=lambda _: None)
    for first, last, each in zip(shards[:-1], shards[1:], found, strict=True):
        wanted = vectors.between(int(first), int(last)).sum().view(np.uint64)
        assert np.array_equal(each.total, wanted)


def test_what_the_hook_refuses_is_not_answered():
    def refuse(counts: np.ndarray) -> None:
        assert counts.tolist() == [2, 3]
        raise Abort("no")

    vectors, leaves = some(5, 10, 3), np.full(5, Leaves.NEVER, dtype=np.int8)
    with pytest.raises(Abort, match="no"):
        IdealSum().sums(vectors, np.array([0, 2, 5]), leaves, how(3, 20), Randomness(1), before_reveal=refuse)


def test_fewer_vectors_than_promised_abort_after_the_hook_was_told():
    told: list[np.ndarray] = []
    leaves = np.full(20, Leaves.NEVER, dtype=np.int8)
    leaves[[3, 12, 15]] = [Leaves.NOTHING, Leaves.SHARES, Leaves.KEYS]
    arguments = (some(20, 10, 3), np.array([0, 10, 20]), leaves, how(3, 20, Fraction(1, 10)))
    with pytest.raises(Abort, match="8 of the 10 vectors of shard 1 arrived; 9 were promised"):
        IdealSum().sums(*arguments, Randomness(1), before_reveal=told.append)
    assert [counts.tolist() for counts in told] == [[9, 8]]


def test_shards_too_small_for_the_protocol_are_added_and_cost_nothing():
    leaves = np.full(1, Leaves.NEVER, dtype=np.int8)
    (found,) = IdealSum().sums(
        some(1, 4, 3), np.array([0, 1]), leaves, how(3, 20), Randomness(1), before_reveal=lambda _: None
    )
    assert found.bytes_up == found.bytes_down == {}


LEAVES = np.full(4, Leaves.NEVER, dtype=np.int8)


@pytest.mark.parametrize(
    ("vectors", "shards", "leaves", "message"),
    [
        (some(4, 5, 2), [0, 4], LEAVES, "must have length 3, got 2"),
        (some(4, 5, 3), [0, 3], LEAVES, "ascending bounds from 0 to 4"),
        (some(4, 5, 3), [1, 4], LEAVES, "ascending bounds from 0 to 4"),
        (some(4, 5, 3), [0, 3, 2, 4], LEAVES, "ascending bounds from 0 to 4"),
        (some(4, 5, 3), [0, 4], LEAVES[:3], r"got shape \(3,\)"),
        (some(4, 5, 3), [0, 4], LEAVES + 1, r"got shape \(4,\)"),
        (
            SparseVectors(4, 3, np.array([4]), np.array([0]), np.array([1])),
            [0, 4],
            LEAVES,
            "inside 4 vectors",
        ),
        (SparseVectors(4, 3, np.array([0]), np.array([3]), np.array([1])), [0, 4], LEAVES, "of length 3"),
        (SparseVectors(4, 3, np.array([-1]), np.array([0]), np.array([1])), [0, 4], LEAVES, "inside"),
    ],
)
def test_arguments_that_disagree_are_refused(vectors, shards, leaves, message):
    with pytest.raises(ParameterError, match=message):
        IdealSum().sums(
            vectors, np.array(shards), leaves, how(3, 20), Randomness(1), before_reveal=lambda _: None
        )
