"""One round: exact sums, noise of the stated law, honest dropouts, and nothing told before it may be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.privacy.claim import Share
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.secure_sum.drivers import IdealSum
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.trust.queries import Execution, Query, Raster
from mapveil.trust.secure_aggregation import simulation
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.contribution import Devices, sensitivity
from mapveil_client.encodings import NodeEncoding
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.level_encoding import LevelEncoding
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import Abort
from mapveil_client.secure_sum.vectors import Leaves

TILING = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=1)
MUCH = 10**9  # an epsilon that leaves no noise


class Watched:
    """A driver that keeps what it was given and what it answered."""

    def __init__(self, driver=None):
        self.driver = driver or IdealSum()
        self.asked, self.found = [], []

    def sums(self, vectors, shards, leaves, settings, rng, *, before_reveal):
        self.asked.append((vectors, shards, leaves, settings))
        found = self.driver.sums(vectors, shards, leaves, settings, rng, before_reveal=before_reveal)
        self.found.append(found)
        return found


def collection(devices, *, seed=1, secure_sum=None, dropout=0.0, told=None, scale=1, **parameters):
    model = SecureAggregation(**{"tolerated_dropout": 0, "corrupt": 0, "scale": scale, **parameters})
    execution = Execution(
        Randomness(seed=seed) if isinstance(seed, int) else seed, secure_sum=secure_sum, dropout=dropout
    )
    if told is not None:
        execution = execution._replace(before_reveal=told.append if isinstance(told, list) else told)
    return model.answerer(devices, TILING, Raster.of(TILING.lattice()), execution)


def query(depth, epsilon=MUCH, purpose="where"):
    return Query(purpose, NodeEncoding(PrefixTree.uniform(depth, depth)), Fraction(epsilon))


def one_on_each(depth):
    """As many devices as sites, each on its own: who is in a sum can be read off."""
    return Devices(np.arange(4**depth))


@pytest.mark.parametrize(
    "parameters", [{}, {"shard_size": 7}, {"shard_size": 1}, {"corrupt": 0.2, "tolerated_dropout": 0.3}]
)
@pytest.mark.parametrize("scale", [1, 5])
def test_without_noise_the_sums_are_plain_counts(parameters, scale):
    site = np.random.default_rng(1).integers(-1, 16, 200)
    made = collection(Devices(site), scale=scale, **parameters).answer(query(2))
    np.testing.assert_array_equal(made.values, np.bincount(site[site >= 0], minlength=16))
    assert made.clients == 200
    assert made.variance < 1e-12


def test_many_places_are_divided_and_those_outside_do_not_count():
    devices = Devices(np.array([0, 1, -1, 5, -1]), np.array([0, 2, 3, 5]), np.array([3, 1, 1, 1, 7]))
    made = collection(devices, scale=1000).answer(query(2))
    assert made.values[[0, 1, 5]].tolist() == [0.75, 0.25, 1.0]
    assert made.values.sum() == 2  # the second device is nowhere


CASES = {
    "one shard": {},
    "shards": {"shard_size": 100},
    "provided for": {"shard_size": 100, "tolerated_dropout": 0.3, "corrupt": 0.2},
    "dropped out": {"shard_size": 100, "tolerated_dropout": 0.5, "dropout": 0.4},
    "whole units": {"scale": 20},
    "stochastic": {"rounding": "stochastic"},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_noise_is_as_wide_as_is_said(case):
    # 16,384 coordinates: the variance of the sample is within 2 % of its own; 12 % cannot happen, 30 % cannot hide.
    depth, epsilon = 7, Fraction(1, 2)
    asked = query(depth, epsilon)
    made = collection(Devices(np.full(300, -1)), **case).answer(asked)
    spread = np.mean(made.values**2)
    assert abs(spread / made.variance - 1) < 0.12
    assert abs(made.values.mean()) < 6 * np.sqrt(made.variance / made.values.size)
    # And what is said is the theory's: alpha of each device that stayed.
    scale, rounding = case.get("scale", 1), case.get("rounding", "largest-remainder")
    stayed = 300 - 3 * 40 * ("dropout" in case)
    honest = 1 - case.get("tolerated_dropout", 0) - case.get("corrupt", 0)
    terms = stayed / (honest * case.get("shard_size", 300))
    moves = sensitivity(asked.encoding, scale, rounding)
    assert made.clients == stayed
    assert made.terms == pytest.approx(terms)
    assert made.sensitivity == moves
    assert made.variance == pytest.approx(terms * laplace_variance(epsilon, moves) / scale**2)


def test_noise_differs_from_shard_to_shard_and_round_to_round():
    made = Watched()
    asked = collection(Devices(np.full(40, -1)), shard_size=20, secure_sum=made)
    first, second = asked.answer(query(5, 1)).values, asked.answer(query(5, 1)).values
    assert not np.array_equal(first, second)
    shards = [each.total for found in made.found for each in found]
    assert len(shards) == 4
    assert not any(np.array_equal(shards[i], shards[j]) for i in range(4) for j in range(i))


def test_a_device_that_dropped_out_adds_nothing():
    made = Watched()
    asked = collection(
        one_on_each(4), shard_size=64, tolerated_dropout=0.25, dropout=0.25, secure_sum=made, seed=3
    )
    sums = asked.answer(query(4))
    ((_, shards, leaves, _),) = made.asked
    gone = leaves < Leaves.INPUT
    assert (
        np.add.reduceat(gone, shards[:-1]).tolist() == [16] * 4
    )  # the part of every shard, at random within it
    assert set(leaves[gone].tolist()) == {Leaves.NOTHING, Leaves.KEYS, Leaves.SHARES}
    assert sums.clients == 192
    assert np.bincount(sums.values.astype(int)).tolist() == [64, 192]
    assert asked.costs[0].devices == 256
    assert asked.costs[0].included == 192


@pytest.mark.parametrize("secure_sum", [IdealSum(), ProtocolSum()], ids=repr)
def test_too_many_dropouts_and_nothing_is_told(secure_sum):
    told, made = [], Watched(secure_sum)
    asked = collection(one_on_each(3), tolerated_dropout=0.1, dropout=0.3, told=told, secure_sum=made)
    with pytest.raises(Abort, match=r"round 1 \(where\): .*58 .* promised.*nothing is spent"):
        asked.answer(query(3))
    assert told == asked.revealed == asked.costs == made.found == []


def test_what_was_known_before_an_abort_stays_spent():
    told = []
    asked = collection(one_on_each(3), tolerated_dropout=0.1, told=told)
    asked.answer(query(3, 2, "first"))
    asked._dropout = 0.5
    with pytest.raises(Abort, match=r"round 2 \(second\).*epsilon 2 stays spent"):
        asked.answer(query(3, 3, "second"))
    assert told == asked.revealed == [Share("first", Fraction(2))]
    assert len(asked.costs) == 1


def test_one_shard_below_its_promise_is_enough():
    # 30 devices in shards of 3: with a tolerance of 0.3 nobody may leave a shard of three.
    told = []
    asked = collection(Devices(np.zeros(30, dtype=int)), shard_size=3, tolerated_dropout=0.3, told=told)
    leaves = asked._leaves
    asked._leaves = lambda sizes: np.where(np.arange(int(sizes.sum())) == 29, 0, leaves(sizes)).astype(
        np.int8
    )
    with pytest.raises(Abort, match=r"2 of the 3 .* shard 10 .*3 were promised"):
        asked.answer(query(1))
    assert told == []


@pytest.mark.parametrize("secure_sum", [IdealSum(), ProtocolSum()], ids=repr)
def test_the_hook_is_told_once_a_round_before_anything_is_known(secure_sum):
    made = Watched(secure_sum)
    told = []
    asked = collection(
        Devices(np.zeros(9, dtype=int)),
        shard_size=3,
        secure_sum=made,
        told=lambda share: told.append((share, len(made.found))),
    )
    for number in range(2):
        asked.answer(query(1, 1 + number, f"round {number}"))
    assert told == [(Share("round 0", Fraction(1)), 0), (Share("round 1", Fraction(2)), 1)]
    assert asked.revealed == [share for share, _ in told]


@pytest.mark.parametrize("secure_sum", [IdealSum(), ProtocolSum()], ids=repr)
def test_a_hook_that_refuses_leaves_nothing(secure_sum):
    made = Watched(secure_sum)

    def refuse(share):
        raise ZeroDivisionError("the ledger says no")

    asked = collection(Devices(np.zeros(6, dtype=int)), shard_size=3, secure_sum=made, told=refuse)
    with pytest.raises(ZeroDivisionError, match="the ledger says no"):
        asked.answer(query(1, 1))
    assert made.found == asked.revealed == asked.costs == []


def test_batches_of_shards_change_nothing_but_memory(monkeypatch):
    site = np.random.default_rng(2).integers(0, 64, 500)
    truth = np.bincount(site, minlength=64)
    for entries, batches in ((1 << 22, 1), (1, 50)):
        monkeypatch.setattr(simulation, "_ENTRIES", entries)
        told, made = [], Watched()
        asked = collection(Devices(site), shard_size=10, told=told, secure_sum=made)
        sums = asked.answer(query(3))
        np.testing.assert_array_equal(sums.values, truth)
        assert len(made.asked) == batches
        assert len(told) == 1
        assert asked.costs[0].included == 500


@given(asked=st.integers(1, 5000), shard_size=st.integers(1, 600))
def test_shards_are_disjoint_even_and_no_larger_than_allowed(asked, shard_size):
    made = collection(Devices(np.full(asked, -1)), shard_size=shard_size)
    boundaries = made.boundaries
    assert (boundaries[0], boundaries[-1]) == (0, asked)
    sizes = np.diff(boundaries)
    assert 1 <= sizes.min() <= sizes.max() <= min(sizes.min() + 1, shard_size)
    assert sizes.size == -(-asked // shard_size)
    # The smallest shard of those who stay carries at least one whole variable.
    assert made.setting.alpha * int(sizes.min()) >= 1
    assert made.setting.shards == sizes.size


@pytest.mark.parametrize("redraw", [False, True])
def test_a_sample_is_drawn_once_or_for_every_round(redraw):
    asked = collection(one_on_each(4), sample=40, redraw=redraw)
    first, second = (set(np.flatnonzero(asked.answer(query(4)).values).tolist()) for _ in range(2))
    assert len(first) == len(second) == 40
    assert (first == second) != redraw
    assert [each.devices for each in asked.costs] == [40, 40]


def test_samples_are_fair():
    # Each of 64 devices is among the 16 asked a quarter of the time.
    chosen = np.zeros(64)
    for seed in range(400):
        chosen += collection(one_on_each(3), sample=16, seed=seed).answer(query(3)).values
    assert abs(chosen - 100).max() < 6.5 * np.sqrt(400 * 0.25 * 0.75)


def test_a_sample_larger_than_all_is_all():
    assert collection(one_on_each(2), sample=100).answer(query(2)).clients == 16


def test_a_seed_repeats_and_two_collections_of_one_stream_differ():
    values = [collection(one_on_each(3), sample=20, seed=9).answer(query(3, 1)).values for _ in range(2)]
    np.testing.assert_array_equal(*values)
    stream = Randomness(seed=9)
    made = [collection(one_on_each(3), sample=20, seed=stream).answer(query(3, 1)).values for _ in range(2)]
    assert not np.array_equal(*made)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_protocol_gives_the_sums_of_the_ideal(dropout):
    encoding = LevelEncoding.of_members(2, (1, 2), np.ones(16, dtype=np.int64))
    devices = Devices(
        np.random.default_rng(4).integers(-1, 16, 75),
        np.arange(26) * 3,
        np.random.default_rng(5).integers(1, 9, 75),
    )
    found, costs = [], []
    for secure_sum in (IdealSum(), ProtocolSum()):
        asked = collection(
            devices, shard_size=13, scale=50, tolerated_dropout=0.25, dropout=dropout, secure_sum=secure_sum
        )
        found.append([asked.answer(Query("levels", encoding, Fraction(1, 2))) for _ in range(2)])
        costs.append(asked.costs)
    for ideal, real in zip(*found, strict=True):
        np.testing.assert_array_equal(ideal.values, real.values)
        assert ideal._replace(values=None) == real._replace(values=None)
    for ideal, real in zip(*costs, strict=True):
        assert ideal._replace(bytes_up={}, bytes_down={}) == real._replace(bytes_up={}, bytes_down={})
        assert set(real.bytes_up) <= set(ideal.bytes_up)
        assert all(real.bytes_up[phase] <= ideal.bytes_up[phase] for phase in real.bytes_up)


def test_the_cost_of_a_round_is_recorded():
    asked = collection(one_on_each(3), shard_size=20)
    asked.answer(query(3, 1))
    (cost,) = asked.costs
    assert (cost.purpose, cost.length, cost.devices, cost.included, cost.shards) == ("where", 64, 64, 64, 4)
    assert cost.bits == 7  # 16 devices of a shard, and noise of up to 32 either way
    # A masked input is the coordinates, packed, and little more.
    assert 64 * cost.bits / 8 <= cost.bytes_up["masked_input"] <= 64 * cost.bits / 8 + 200


def test_too_small_a_modulus_is_refused_and_may_be_tried():
    site = np.zeros(100, dtype=int)
    told = []
    with pytest.raises(ParameterError, match="bits must be from 7 to 64 for these sums, got 5"):
        collection(Devices(site), bits=5, told=told).answer(query(1))
    assert told == []
    assert collection(Devices(site), bits=20).answer(query(1)).values[0] == 100
    wrapped = collection(Devices(site), bits=5, overflow="wrap").answer(query(1)).values[0]
    assert wrapped != 100
    assert wrapped % 32 == 100 % 32


def test_nobody_to_ask_is_refused():
    with pytest.raises(InputError, match="no device"):
        collection(Devices(np.zeros(0, dtype=np.int64)))
