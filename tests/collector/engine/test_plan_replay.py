"""A plan replayed on stored sums asks and answers what it would have without a stop."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.plan_replay import (
    DoneRound,
    announce,
    check_feasible,
    replay,
    round_terms,
    shard_sizes,
)
from mapveil.collector.rounds.specification import read_specification
from mapveil.mechanisms.methods import METHODS
from mapveil.trust.queries import Query, Raster, Setting, run
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.contribution import Devices, client_report
from mapveil_client.errors import ParameterError, PromiseError
from mapveil_client.randomness.random import Randomness
from tests.authority import AUTHORITY

ID = "0123456789abcdef" * 2
NAMES = [method.name for method in METHODS if method.trust == "distributed" and not method.labels]


def terms_of(make_spec, **changes):
    spec = make_spec("distributed", devices=40, options={"shard_size": 20}, tiling="quadtree:4", epsilon="4")
    return read_specification({**spec, **changes}, ID, AUTHORITY).terms


def sums(announced, sites, seed):
    """What the secure sums of everybody's reports would be, added in the clear."""
    made = client_report(
        Devices(sites),
        announced.query,
        announced.alpha,
        announced.scale,
        announced.rounding,
        Randomness(seed).child(announced.purpose),
    )
    total = np.zeros(announced.length, dtype=np.int64)
    np.add.at(total, made.position, made.value)
    return total


@pytest.mark.parametrize("method", NAMES)
def test_every_method_goes_on_from_what_was_stored(make_spec, method):
    terms = terms_of(make_spec, method=method)
    mechanism = Offer(terms).sums
    sizes = shard_sizes(40, Offer(terms).model)
    sites = np.random.default_rng(1).integers(0, 256, 40)
    done = []
    while isinstance(wanted := replay(terms, sizes, done), Query):
        told = announce(terms, wanted, len(done) + 1, "ab" * 16, sizes)
        announced = RoundAnnouncement.decode(told.encode())  # as the store and the devices have it
        assert announced == told
        done.append(DoneRound(announced, sums(announced, sites, 5), 40, {}))
        assert len(done) < 20

    # The same without ever stopping.
    lattice = terms.cells.lattice()
    setting = Setting(
        lattice.depth,
        Raster.of(lattice).members,
        40,
        sizes.size,
        done[0].announcement.alpha,
        done[0].announcement.scale,
    )
    answers = iter(done)

    def ask(query):
        each = next(answers)
        assert query.encoding.to_dict() == each.announcement.query.encoding.to_dict()
        return round_terms(each.announcement).noisy_sums(each.units, 40)

    straight = run(mechanism.plan(setting), ask)
    assert np.array_equal(straight.values, wanted.values)
    assert sum((each.announcement.epsilon for each in done), Fraction(0)) <= 4


def test_stored_rounds_of_another_code_stop_the_collection(make_spec):
    terms = terms_of(make_spec, method="uniform")
    sizes = shard_sizes(40, Offer(terms).model)
    first = announce(terms, replay(terms, sizes, []), 1, "ab" * 16, sizes)
    for changed in (
        dataclasses.replace(first, purpose="something else"),
        dataclasses.replace(first, epsilon=Fraction(1)),
    ):
        with pytest.raises(PromiseError, match="cannot go on"):
            replay(terms, sizes, [DoneRound(changed, np.zeros(first.length, dtype=np.int64), 40, {})])


def test_shards_are_provisioned_for_the_smallest(make_spec):
    terms = terms_of(make_spec, options={"shard_size": 15, "tolerated_dropout": 0.2, "corrupt": 0.1})
    sizes = shard_sizes(40, Offer(terms).model)
    assert sizes.tolist() == [13, 13, 14]
    told = announce(terms, replay(terms, sizes, []), 1, "ab" * 16, sizes)
    assert told.alpha == Fraction(1, 13 - 2 - 1)
    assert (told.dropout, told.corrupt) == (Fraction(1, 5), Fraction(1, 10))


def test_a_mechanism_with_whole_noise_is_not_divided(make_spec):
    terms = terms_of(make_spec, method="local-laplace")
    sizes = shard_sizes(40, Offer(terms).model)
    assert announce(terms, replay(terms, sizes, []), 1, "ab" * 16, sizes).alpha == 1


def test_shards_of_fewer_than_three_are_refused(make_spec):
    terms = terms_of(make_spec)
    with pytest.raises(PromiseError, match="at least 3"):
        shard_sizes(2, Offer(terms).model)
    with pytest.raises(ParameterError):
        check_feasible(read_specification(make_spec("local"), ID).terms)
    check_feasible(terms)
