"""Errors of maps of windows, where they are known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.series_error import errors
from benchmarks.series_workloads import _ranges, workload_errors
from mapveil_client.morton import interleave


def test_errors_are_of_fractions_of_each_window() -> None:
    truth = np.zeros((3, 4096), dtype=np.int64)
    truth[0, 0], truth[1, :16] = 8, 1
    half = np.zeros((3, 4096))
    half[0, 0], half[0, 4095], half[1, :16] = 3, 3, 5
    found = errors(half, truth)  # the third window has nobody and does not count
    assert found.coarse == found.fine == pytest.approx(0.25)
    assert 0 < found.ranges < 0.5
    assert errors(truth * 2.0, truth).ranges == 0


def test_true_maps_answer_ranges_and_hot_spots_without_error() -> None:
    truth = np.random.default_rng(1).poisson(0.5, (8, 256)).astype(float)
    found = workload_errors(truth, truth)
    assert (found.ranges, found.distance, found.regret) == (0, 0, 0)
    assert 0 < found.forecast < 2


def test_a_stream_that_stays_is_forecast_and_a_map_of_nobody_is_far_off() -> None:
    truth = np.tile(np.random.default_rng(2).poisson(2.0, 256), (8, 1)).astype(float)
    assert workload_errors(truth, truth).forecast == 0
    nothing = workload_errors(np.zeros(truth.shape), truth)
    assert nothing.forecast == pytest.approx(2)
    assert nothing.regret > 0.3
    assert nothing.distance > 0.2
    assert 0.5 < nothing.ranges <= 1


def test_ranges_are_sums_over_boxes() -> None:
    truth, one = np.zeros((3, 16)), np.zeros((3, 16))
    truth[1, interleave(np.array([2]), np.array([3]))] = 1.0
    # A user in another window is in some of the boxes that the first is not in, and the other way round.
    one[2] = truth[1]
    assert _ranges(truth, truth) == 0
    assert _ranges(one, truth) > 1
