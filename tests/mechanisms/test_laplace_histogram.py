from __future__ import annotations

import numpy as np
import pytest

from mapveil.mechanisms.laplace_histogram import LaplaceHistogram


def test_without_noise_it_is_the_plain_map(play, crowd):
    people = crowd(4, 1000)
    made = play(LaplaceHistogram(epsilon=1), people)
    np.testing.assert_array_equal(made.made.values, people)
    (query,) = made.queries
    assert query.epsilon == 1
    assert query.encoding.length == 256


def test_only_sites_that_can_hold_somebody_are_asked_about(play, crowd):
    members = (np.arange(256) % 3 == 0).astype(np.int64) * 2
    people = crowd(4, 500, members=members)
    made = play(LaplaceHistogram(epsilon=1), people, members, seed=1)
    assert made.queries[0].encoding.length == np.count_nonzero(members)
    assert not made.made.values[members == 0].any()
    (measured,) = made.made.measurements
    assert (measured.groups[members == 0] == -1).all()
    np.testing.assert_array_equal(measured.noisy[measured.groups[members > 0]], made.answers[0].values)


@pytest.mark.parametrize("clip", [True, False])
def test_negative_sums_are_clipped_where_asked(play, clip):
    made = play(LaplaceHistogram(epsilon=1, clip=clip), np.zeros(256, dtype=np.int64), seed=2, devices=10)
    raw = made.answers[0].values
    assert raw.min() < 0
    np.testing.assert_array_equal(made.made.values, np.maximum(raw, 0) if clip else raw)


def test_its_measurement_is_the_raw_sum(play, crowd):
    made = play(LaplaceHistogram(epsilon=1), crowd(3, 50), seed=3)
    np.testing.assert_array_equal(made.made.measurements[0].noisy, made.answers[0].values)
