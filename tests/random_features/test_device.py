"""A device: the same features wherever it is, and refusals that say nothing of where."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mapveil as mv
from mapveil.random_features.map_points import map_points
from mapveil_client.errors import InputError, MapveilError, PromiseError
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.frequencies import KeptFrequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Device, Visits, client_reports, read_query, write_query
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
WHERE = map_points(mv.Grid(REGION, 64, 64))
QUERY = Query((30.0, 30.0), WHERE.low, WHERE.high, 1, "gaussian", WHERE.grid, WHERE.crs)
POLICY = Policy((30.0, 30.0))
PLACES = {
    "centre": (-73.97, 40.76),
    "edge": (-74.03, 40.69),
    "outside": (-75.5, 40.0),
    "far": (2.35, 48.86),
    "pole": (0.0, 90.0),
}


KEPT = KeptFrequencies.draw(POLICY, QUERY, 0.0, Randomness())


@pytest.fixture
def device():
    return Device(POLICY, KEPT)


def test_an_answer_is_the_client_halfs(device):
    made = device.answer(QUERY, -73.97, 40.76)
    units = KEPT.take(1)
    place = np.array(REGION.project(np.array([-73.97]), np.array([40.76])))
    wanted = client_reports(units, Visits(place), QUERY)
    np.testing.assert_array_equal(made.frequencies, wanted.frequencies)
    np.testing.assert_allclose(made.projections, wanted.projections)


def test_a_moving_device_answers_with_the_same_frequencies(device):
    first, second = device.answer(QUERY, -73.97, 40.76), device.answer(QUERY, -73.95, 40.75)
    np.testing.assert_array_equal(first.frequencies, second.frequencies)
    assert not np.allclose(first.projections, second.projections)


def test_a_wider_query_is_answered_with_the_same_frequencies_rescaled():
    device = Device(dataclasses.replace(POLICY, ladder=True), KEPT)
    plain = dataclasses.replace(QUERY, grid=None)
    wide = dataclasses.replace(plain, bandwidth=(150.0, 150.0))
    np.testing.assert_allclose(
        device.answer(plain, -73.97, 40.76).frequencies, 5 * device.answer(wide, -73.97, 40.76).frequencies
    )


BAD = {
    "features": {"features": 2},
    "bandwidth": {"bandwidth": (40.0, 40.0)},
    "too wide": {"bandwidth": (330.0, 330.0)},
    "kernel": {"kernel": "laplace"},
    "region": {"high": tuple(low + 500.0 for low in WHERE.low), "grid": None},
    "plane": {"crs": REGION.crs.replace("lat_ts=40.76", "lat_ts=86")},
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal_is_the_same_wherever_the_device_is(device, name):
    query = dataclasses.replace(QUERY, **BAD[name])
    said = set()
    for lon, lat in PLACES.values():
        with pytest.raises(PromiseError) as refused:
            device.answer(query, lon, lat)
        said.add(str(refused.value))
    with pytest.raises(PromiseError) as refused:  # even where the place is no number: it was not looked at
        device.answer(query, np.nan, np.nan)
    assert said == {str(refused.value)}


def test_outside_the_region_it_is_silent(device):
    for number, name in enumerate(("outside", "far")):
        assert device.kept.answers == number
        assert device.answer(QUERY, *PLACES[name]) is None
    assert device.answer(QUERY, *PLACES["edge"]) is not None


def test_places_outside_do_not_count_in_a_mean(device):
    several = device.answer(QUERY, [-73.97, -75.0, -73.95], [40.76, 40.0, 40.75], weights=[1.0, 50.0, 3.0])
    inside = device.answer(QUERY, [-73.97, -73.95], [40.76, 40.75], weights=[1.0, 3.0])
    np.testing.assert_allclose(several.projections, inside.projections)
    assert abs(several.projections[0, 0]) < 1


@pytest.mark.parametrize("place", [(np.nan, 40.7), (-73.97, np.inf), (-73.97, None)])
def test_a_place_that_is_no_number_is_not_answered(device, place):
    with pytest.raises((InputError, TypeError)):
        device.answer(QUERY, *place)


def test_senseless_weights_are_refused(device):
    for weights in ([1.0], [1.0, -1.0], [0.0, 1.0], [np.nan, 1.0]):
        with pytest.raises(InputError, match="weights"):
            device.answer(QUERY, [-73.97, -73.95], [40.76, 40.75], weights=weights)


def test_no_error_names_a_place(device):
    for call in (
        lambda: device.answer(dataclasses.replace(QUERY, features=3), -73.987654, 40.712345),
        lambda: device.answer(QUERY, [-73.987654, np.nan], [40.712345, 40.7]),
    ):
        with pytest.raises(MapveilError) as failed:
            call()
        assert "73.98" not in str(failed.value)
        assert "40.71" not in str(failed.value)


def test_time_is_the_third_axis():
    policy = Policy((30.0, 30.0, 600.0))
    query = Query((30.0, 30.0, 600.0), (*WHERE.low, 0.0), (*WHERE.high, 86_400.0), crs=WHERE.crs)
    device = Device(policy, KeptFrequencies.draw(policy, query, 0.0, Randomness()))
    made = device.answer(query, -73.97, 40.76, time_s=3600.0)
    assert made.frequencies.shape == (3, 1, 1)
    later = device.answer(query, -73.97, 40.76, time_s=7200.0)
    turn = np.exp(1j * made.frequencies[2] * 3600.0)
    np.testing.assert_allclose(later.projections, made.projections * turn)
    assert device.answer(query, -73.97, 40.76, time_s=1e6) is None
    with pytest.raises(InputError, match="each axis"):
        device.answer(query, -73.97, 40.76)


def test_a_query_off_the_wire_is_answered_alike(device):
    sent = read_query(write_query(QUERY))
    np.testing.assert_array_equal(
        device.answer(sent, -73.97, 40.76).projections, device.answer(QUERY, -73.97, 40.76).projections
    )
