from __future__ import annotations

import inspect
import typing
from fractions import Fraction

import numpy as np
import pytest

from mapveil.mechanisms.methods import METHODS
from mapveil.privacy.claim import Share
from mapveil.trust.queries import Estimate, NoisySums, Plan, Query, Setting
from mapveil_client.encodings import NodeEncoding
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.noise_shares import noise_shares
from mapveil_client.randomness.random import Randomness


def test_a_query_says_what_it_costs():
    query = Query("where", NodeEncoding(PrefixTree.uniform(2, 1)), Fraction(1, 3))
    assert query.share == Share("where", Fraction(1, 3))


@pytest.mark.parametrize(
    ("devices", "alpha"), [(100, Fraction(1, 100)), (950, Fraction(1, 90)), (0, Fraction(1))]
)
def test_the_least_noise_is_that_of_all_devices(devices, alpha):
    setting = Setting(1, np.ones(4, dtype=np.int64), devices, 3, alpha, 1)
    assert setting.noise_terms == pytest.approx(devices / alpha.denominator)


@pytest.mark.parametrize(("terms", "sensitivity", "scale"), [(1.0, 1, 1), (1.2, 6, 3), (25.0, 20, 2)])
def test_a_measurement_knows_how_far_its_sums_are_off(terms, sensitivity, scale):
    # Half widths must hold at the noise's own law, and not at 0.7 of their length: terms, sensitivity and scale
    # all travel.
    count, alpha, epsilon = 20_000, 0.1, Fraction(1, 2)
    drawn = noise_shares(
        1, count, terms, epsilon, sensitivity, Randomness(seed=5)
    )  # the shapes of shares add up
    noise = np.bincount(drawn.position, drawn.value, count) / scale
    sums = NoisySums(noise, 0.0, terms, epsilon, sensitivity, scale, 10)
    half = sums.measurement(np.arange(count)).half_width(alpha)
    missed = np.mean(np.abs(noise) > half)
    assert missed < alpha + 6 * np.sqrt(alpha / count)
    assert np.mean(np.abs(noise) > 0.7 * half) > alpha + 6 * np.sqrt(alpha / count)


def test_a_measurement_of_some_of_the_sums():
    sums = NoisySums(np.arange(5.0), 1.0, 1.0, Fraction(1), 4, 2, 10)
    made = sums.measurement(np.array([0, -1, 1]), sums.values[2:4])
    assert made.noisy.tolist() == [2.0, 3.0]
    assert made.groups.tolist() == [0, -1, 1]
    assert (made.sensitivity, made.unit, made.terms) == (4, 2, 1.0)


ROWS = [method for method in METHODS if method.trust == "distributed"]
OF_MECHANISM = pytest.mark.parametrize("method", ROWS, ids=lambda each: each.name)


@OF_MECHANISM
def test_a_plan_is_never_given_devices(method):
    # Its only argument is the public setting, and all it is sent are noisy sums.
    plan = method.load().plan
    assert list(inspect.signature(plan).parameters) == ["self", "setting"]
    hints = typing.get_type_hints(plan)
    assert hints["setting"] is Setting
    assert hints["return"] == Plan
    held = [*typing.get_type_hints(Setting).values(), *typing.get_type_hints(NoisySums).values()]
    assert not any("Devices" in str(hint) or "Points" in str(hint) for hint in held)


@OF_MECHANISM
def test_a_plan_is_rebuilt_from_its_replies(method, play, crowd):
    # No hidden state, no randomness: the same sums again give the same queries and the same estimate.
    if method.labels:
        return  # its sums are by label: its own tests replay it
    made = play(method.make(1), crowd(4, 500), seed=1)
    setting = Setting(4, np.ones(256, dtype=np.int64), 500, 1, Fraction(1, 500), 1)
    server = method.make(1).plan(setting)
    asked = [next(server), *(server.send(answer) for answer in made.answers[:-1])]
    with pytest.raises(StopIteration) as end:
        server.send(made.answers[-1])
    again: Estimate = end.value.value
    assert [each.encoding.to_dict() for each in asked] == [each.encoding.to_dict() for each in made.queries]
    assert [each.share for each in asked] == [each.share for each in made.queries]
    np.testing.assert_array_equal(again.values, made.made.values)
