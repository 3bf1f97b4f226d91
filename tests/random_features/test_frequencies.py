"""A device's frequencies and offset: their laws, and that they are drawn once."""

from __future__ import annotations

import numpy as np
from scipy import stats

from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.frequencies import KeptFrequencies, offsets, unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.randomness.random import Randomness

POLICY = Policy((100.0, 100.0), features=3)


def test_a_million_devices_draw_what_one_does():
    many = unit_frequencies(50_000, 2, Gaussian(), 2, Randomness(1))
    assert many.shape == (2, 50_000, 2)
    assert stats.kstest(many.ravel(), stats.norm().cdf).pvalue > 1e-9
    # No device has a frequency of another.
    assert np.unique(many[0]).size == many[0].size


def test_the_same_frequencies_are_taken_every_time():
    kept = KeptFrequencies.draw(POLICY, 20.0, Randomness())
    first = kept.take(3)
    assert first.units.shape == (2, 1, 3)
    assert first.offset.shape == (2, 1)
    assert first.offset.any()
    again = KeptFrequencies.from_record(kept.to_record()).take(3)
    np.testing.assert_array_equal(again.units, first.units)
    np.testing.assert_array_equal(again.offset, first.offset)
    kept.take(3).units[:] = 0  # a caller cannot change them
    np.testing.assert_array_equal(kept.take(3).units, first.units)


def test_two_devices_draw_different_ones():
    first, second = (KeptFrequencies.draw(POLICY, 0.0, Randomness()).take(3).units for _ in range(2))
    assert not np.intersect1d(first, second).size


def test_offsets_have_their_spread_and_leave_time_alone():
    drawn = offsets(100_000, 3, 25.0, Randomness(2))
    assert stats.kstest(drawn[:2].ravel(), stats.norm(scale=25.0).cdf).pvalue > 1e-9
    assert stats.kstest(drawn[:2].ravel(), stats.norm(scale=32.5).cdf).pvalue < 1e-9
    assert not drawn[2].any()
    assert not offsets(10, 2, 0.0, Randomness(2)).any()
