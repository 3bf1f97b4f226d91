"""The local model: each report alone keeps the promise, and the sum pays for it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import mapveil as mv
from mapveil.mechanisms.local_laplace import LocalLaplace
from mapveil.privacy.claim import Adversary, Assumes, Neighbouring
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.trust.queries import Execution, Query, Raster, Setting
from mapveil.trust.secure_aggregation.model import SecureAggregation, WholeNoise
from mapveil_client.contribution import Devices, client_report
from mapveil_client.encodings import NodeEncoding
from mapveil_client.errors import ParameterError
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness

CERTAIN = 1e-9
REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=1)


def collection(model, devices, depth=5):
    raster = Raster.of(mv.Quadtree(REGION, depth=depth).lattice())
    return model.answerer(devices, TILING, raster, Execution(Randomness(seed=1)))


def setting_of(devices, depth=5, scale=1):
    return Setting(depth, np.ones(4**depth, dtype=np.int64), devices, 1, Fraction(1), scale)


def test_every_device_adds_a_whole_variable():
    asked = collection(WholeNoise(scale=1, tolerated_dropout=0.5), Devices(np.arange(100)), 4)
    assert asked.setting.alpha == 1
    assert asked.setting.noise_terms == 100
    # A mechanism that shares the noise is told otherwise by the same collection.
    shared = SecureAggregation(scale=1, tolerated_dropout=0.5)
    assert collection(shared, Devices(np.arange(100))).setting.alpha == Fraction(1, 45)


def test_one_report_is_discrete_laplace_around_its_place():
    # The law of one coordinate of one report, from many: the ratio of two places' reports is then exp(2 epsilon)
    # at most, exp(epsilon) at either coordinate.
    epsilon, repeats = Fraction(1), 40_000
    query = Query("where", NodeEncoding(PrefixTree.uniform(1, 1)), epsilon)
    report = client_report(
        Devices(np.full(repeats, 2)), query, Fraction(1), 1, "largest-remainder", Randomness(seed=2)
    )
    totals = np.zeros((repeats, 4), dtype=int)
    np.add.at(totals, (report.client, report.position), report.value)
    totals[:, 2] -= 1

    def fits(q):
        size = 6
        law = (1 - q) / (1 + q) * q ** np.abs(np.arange(-size, size + 1))
        law[[0, -1]] += q ** (size + 1) / (1 + q)
        seen = np.bincount(np.clip(totals.ravel(), -size, size) + size, minlength=law.size)
        return stats.chisquare(seen, law * totals.size).pvalue

    assert fits(math.exp(-1)) > CERTAIN
    assert fits(math.exp(-1 / 0.7)) < CERTAIN
    assert fits(math.exp(-1 / 1.3)) < CERTAIN


def test_the_sum_is_as_noisy_as_all_devices_together():
    devices = Devices(np.full(500, -1))
    asked = collection(WholeNoise(scale=1), devices)
    query = Query("where", NodeEncoding(PrefixTree.uniform(6, 6)), Fraction(1))
    sums = asked.answer(query)
    assert sums.variance == pytest.approx(500 * laplace_variance(Fraction(1), 1))
    assert (
        abs(np.mean(sums.values**2) / sums.variance - 1) < 0.15
    )  # 4,096 coordinates: 2.2 % is one deviation
    shared = collection(SecureAggregation(scale=1), devices).answer(query)
    assert sums.variance > 400 * shared.variance


@pytest.mark.parametrize(
    ("devices", "epsilon", "level"),
    [(10_000, 1, 3), (100, 1, 1), (1, 1, 0), (10**6, 1, 4), (10**4, 100, 5), (100, "0.01", 0)],
)
def test_the_level_follows_its_rule(devices, epsilon, level):
    mechanism = LocalLaplace(epsilon=epsilon)
    sigma = math.sqrt(devices * laplace_variance(mechanism.budget, 1))
    finest = max(each for each in range(6) if each == 0 or devices / 4**each >= sigma)
    assert mechanism.level_for(setting_of(devices)) == finest == level


def test_the_scale_of_a_table_does_not_change_the_level():
    mechanism = LocalLaplace(epsilon=1)
    assert mechanism.level_for(setting_of(10_000, scale=1024)) == mechanism.level_for(setting_of(10_000))


def test_without_noise_it_is_the_plain_map(play, crowd):
    people = crowd(4, 1000)
    made = play(LocalLaplace(epsilon=10**6), people)
    np.testing.assert_allclose(made.made.values, people)
    assert [(query.epsilon, query.encoding.length) for query in made.queries] == [(10**6, 256)]


@pytest.mark.parametrize("level", [0, 2, 4])
def test_a_level_is_asked_where_it_is_wanted(play, crowd, level):
    people = crowd(4, 1000)
    made = play(LocalLaplace(epsilon=1, level=level), people, seed=1)
    size = 4 ** (4 - level)
    assert made.queries[0].encoding.length == 4**level
    np.testing.assert_allclose(made.made.values, np.maximum(made.answers[0].values, 0).repeat(size) / size)


def test_what_would_take_too_long_is_refused_before_it_is_asked():
    server = LocalLaplace(epsilon=1, level=10).plan(setting_of(100_000, depth=10))
    with pytest.raises(ParameterError, match=r"noise events.*level 10.*expected"):
        next(server)
    # The rule never asks for it.
    assert LocalLaplace(epsilon=5).level_for(setting_of(10**9, depth=8)) < 8
    with pytest.raises(ParameterError, match="level must be from 0 to 5 on this map, got 6"):
        next(LocalLaplace(epsilon=1, level=6).plan(setting_of(10)))


def test_the_guarantee_trusts_nobody():
    counts = mv.Counts(np.full(64, 4), mv.Quadtree(REGION, depth=3))
    heat = LocalLaplace(epsilon=1).release(counts, rng=1)
    promise = heat.guarantee
    assert {each.kind for each in promise.assumptions} >= {Assumes.CLIENT_ALONE}
    assert not {each.kind for each in promise.assumptions} & {Assumes.DROPOUT, Assumes.SECURE_SUM}
    assert promise.adversary is Adversary.REPORTS
    assert promise.neighbours is Neighbouring.ZERO_OUT  # between two locations: exp(2 epsilon)
    assert sum(share.epsilon for share in promise.shares) == 1


def test_senseless_parameters_are_refused():
    with pytest.raises(ParameterError, match="level"):
        LocalLaplace(epsilon=1, level=-1)
