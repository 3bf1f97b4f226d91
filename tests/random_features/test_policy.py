"""The policy: Lemmas 3 and 4, and refusals that say nothing of the place."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mapveil as mv
from mapveil.random_features.map_points import map_points
from mapveil_client.errors import ParameterError, PromiseError
from mapveil_client.random_features.feature_policy import Policy, largest_bandwidth
from mapveil_client.random_features.kernels import KERNELS, Gaussian, kernel_named
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.randomness.random import Randomness

POLICY = Policy((100.0, 100.0))
QUERY = Query((100.0, 100.0), (0.0, 0.0), (10_000.0, 12_000.0))


@given(st.floats(0.01, 5), st.integers(1, 9), st.floats(10, 1e6))
def test_the_bound_is_lemma_3s(gamma, bands, side):
    wanted = math.sqrt(gamma) * side / (2 * math.pi * bands)
    assert largest_bandwidth(side, bands=bands, gamma=gamma, kernel=Gaussian()) == pytest.approx(wanted)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_at_the_bound_bands_appear_as_often_as_promised_and_no_oftener(kernel, dimension):
    side, bands, gamma, count = 1000.0, 3, 0.4, 200_000
    h = largest_bandwidth(side, bands=bands, gamma=gamma, kernel=kernel, dimension=dimension)
    frequency = kernel.frequencies(count, dimension, Randomness(4)) / h
    period = 2 * math.pi / np.sqrt(np.square(frequency).sum(axis=0))
    too_few = int((bands * period > side).sum())
    assert stats.binomtest(too_few, count, 1 - math.exp(-gamma / 2)).pvalue > 1e-9
    wide = int((bands * period * 1.3 > side).sum())  # 30 % more bandwidth breaks the promise
    assert stats.binomtest(wide, count, 1 - math.exp(-gamma / 2)).pvalue < 1e-9


def test_lemma_4_leaves_every_fifth_band_where_it_was():
    # Bands of h_0 and of 5 h_0 through the same place: each of the latter is one of the former.
    place, omega = 123.4, 2 * math.pi / 40
    coarse = place + np.arange(-5, 6) * (2 * math.pi / (omega / 5))
    np.testing.assert_allclose(np.cos(omega * (coarse - place)), 1.0)
    other = place + np.arange(1, 5) * (2 * math.pi / (omega / 2.5))
    assert (np.cos(omega * (other - place)) < 0.9).any()


@pytest.mark.parametrize("factor", [1, 5, 9, 13])
def test_bandwidths_of_the_ladder_are_answered(factor):
    policy = dataclasses.replace(POLICY, bandwidth=(5.0, 5.0), ladder=True)
    query = dataclasses.replace(QUERY, bandwidth=(5.0 * factor,) * 2)
    policy.check(query)
    assert policy.multiple(query) == factor
    assert dataclasses.replace(policy, ladder=False).multiple(query) == (1 if factor == 1 else None)


def test_several_answers_of_the_ladder_are_held_to_lemma_3_together():
    policy = dataclasses.replace(POLICY, bandwidth=(5.0, 5.0), ladder=True)
    nine = dataclasses.replace(QUERY, bandwidth=(45.0, 45.0))
    assert policy.refusal(nine) is None
    assert policy.refusal(nine, answered=(1, 9)) is None
    assert "got 225 (answers at 1, 5, 9 times 5 say as much)" in str(policy.refusal(nine, answered=(1, 5)))


REFUSED = {
    "features": ({"features": 2}, "features must be at most 1, got 2"),
    "kernel": ({"kernel": "cauchy"}, "kernel must be gaussian, got cauchy"),
    "axes": ({"bandwidth": (100.0,), "low": (0.0,), "high": (9e3,)}, "number of axes must be 2, got 1"),
    "smaller bandwidth": ({"bandwidth": (99.0, 99.0)}, "bandwidth must be 100 exactly, got 99"),
    "a ladder that is off": ({"bandwidth": (500.0, 500.0)}, "bandwidth must be 100 exactly, got 500"),
    "one axis off": ({"bandwidth": (100.0, 500.0)}, "exactly, got 100 and 500"),
    "too small for it": ({"high": (5900.0, 12_000.0)}, "Lemma 3"),
    "small region": ({"high": (900.0, 12_000.0)}, "must be at least 1000 m, got 900 m"),
    "degrees for metres": ({"high": (0.13, 0.14)}, "are its corners degrees"),
    "huge grid": (
        {"grid": EvenGrid((0.0, 0.0), (0.1, 0.1), (10_000, 10_000))},
        "points of the grid must be at most",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_outside_the_policy_is_refused_with_its_rule(name):
    change, message = REFUSED[name]
    query = dataclasses.replace(QUERY, **change)
    with pytest.raises(PromiseError, match="policy refuses the query") as refused:
        POLICY.check(query)
    assert message in str(refused.value)
    POLICY.check(QUERY)


def test_what_the_policy_allows_more_of_is_answered():
    wide = Policy((100.0, 100.0), features=3, kernel="laplace", bands=1, gamma=1.0)
    wide.check(dataclasses.replace(QUERY, features=3, kernel="laplace"))
    wide.check(dataclasses.replace(QUERY, features=1, kernel="laplace"))


def test_a_region_that_is_no_box_counts_with_its_largest_square():
    POLICY.check(QUERY, side=10_000.0)
    with pytest.raises(PromiseError, match="Lemma 3"):
        POLICY.check(QUERY, side=5000.0)


def test_time_is_an_axis_of_its_own():
    policy = Policy((100.0, 100.0, 600.0))
    query = Query((100.0, 100.0, 600.0), (0.0,) * 3, (20_000.0, 20_000.0, 86_400.0))
    policy.check(query)
    with pytest.raises(PromiseError, match=r"at most .* for 3 bands"):
        policy.check(dataclasses.replace(query, high=(20_000.0, 20_000.0, 3600.0)))


REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def test_a_plane_whose_metres_are_no_metres_is_refused():
    where = map_points(mv.Grid(REGION, 8, 8))
    POLICY.check(Query((100.0, 100.0), where.low, where.high, crs=where.crs))
    utm = mv.Region.from_bounds_in("EPSG:32618", 580_000, 4_504_000, 592_000, 4_520_000)
    at = map_points(mv.Grid(utm, 8, 8))
    asked = Query((100.0, 100.0), at.low, at.high, crs=at.crs)
    POLICY.check(asked, plane=mv.geo.projection.projection_of(at.crs))
    with pytest.raises(PromiseError, match="a plane that this device projects"):
        POLICY.check(asked)
    squeezed = REGION.crs.replace(f"lat_ts={REGION.crs.split('lat_ts=')[1].split()[0]}", "lat_ts=85.0")
    x, y = mv.geo.projection.projection_of(squeezed).project(
        np.array([-74.03, -73.90]), np.array([40.69, 40.83])
    )
    query = Query((100.0, 100.0), (x[0], y[0]), (x[1], y[1]), crs=squeezed)
    with pytest.raises(PromiseError, match="one on the ground"):
        dataclasses.replace(POLICY, smallest_side=0.0).check(query)


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth": (0.0, 1.0)},
        {"bandwidth": ()},
        {"features": 0},
        {"bands": 0},
        {"answers": 0},
        {"gamma": 0.0},
        {"gamma": math.inf},
        {"smallest_side": -1.0},
        {"kernel": "box"},
    ],
)
def test_senseless_rules_are_refused(change):
    with pytest.raises(ParameterError):
        dataclasses.replace(POLICY, **change)


def test_the_law_of_a_name_is_used():
    laplace = largest_bandwidth(1000.0, bands=1, gamma=0.5, kernel=kernel_named("laplace"))
    assert laplace != pytest.approx(largest_bandwidth(1000.0, bands=1, gamma=0.5, kernel=Gaussian()))
