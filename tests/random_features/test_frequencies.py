"""A device's frequencies and offset: their laws, and that they are drawn once."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.frequencies import KeptFrequencies, offsets, unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import Query
from mapveil_client.randomness.random import Randomness

POLICY = Policy((100.0, 100.0), features=3)
QUERY = Query((100.0, 100.0), (0.0, 0.0), (9000.0, 9000.0))


def test_a_million_devices_draw_what_one_does():
    many = unit_frequencies(50_000, 2, Gaussian(), 2, Randomness(1))
    assert many.shape == (2, 50_000, 2)
    assert stats.kstest(many.ravel(), stats.norm().cdf).pvalue > 1e-9
    # No device has a frequency of another.
    assert np.unique(many[0]).size == many[0].size


def test_the_same_frequencies_are_taken_every_time():
    kept = KeptFrequencies.draw(POLICY, QUERY, 20.0, Randomness())
    first, place = kept.take(3), np.array([[4321.0], [1234.0]])
    assert first.shape == (2, 1, 3)
    again = KeptFrequencies.from_record(json.loads(json.dumps(kept.to_record())))
    np.testing.assert_array_equal(again.take(3), first)
    np.testing.assert_array_equal(again.moved(place), kept.moved(place))
    assert not np.array_equal(kept.moved(place), place)
    kept.take(3)[:] = 0  # a caller cannot change them
    np.testing.assert_array_equal(kept.take(3), first)


def test_a_kept_record_of_another_shape_is_refused():
    record = KeptFrequencies.draw(POLICY, QUERY, 20.0, Randomness()).to_record()
    for change in ({"key": "00"}, {"units": [[1.0, 2.0, 3.0]]}, {"pin": record["pin"] | {"low": [0.0]}}):
        with pytest.raises(ValueError, match="another shape"):
            KeptFrequencies.from_record(record | change)


def test_two_devices_draw_different_ones():
    first, second = (KeptFrequencies.draw(POLICY, QUERY, 0.0, Randomness()).take(3) for _ in range(2))
    assert not np.intersect1d(first, second).size


def test_offsets_have_their_spread_and_leave_time_alone():
    drawn = offsets(100_000, 3, 25.0, Randomness(2))
    assert stats.kstest(drawn[:2].ravel(), stats.norm(scale=25.0).cdf).pvalue > 1e-9
    assert stats.kstest(drawn[:2].ravel(), stats.norm(scale=32.5).cdf).pvalue < 1e-9
    assert not drawn[2].any()
    assert not offsets(10, 2, 0.0, Randomness(2)).any()
