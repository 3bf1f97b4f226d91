"""Errors of maps of windows, where they are known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.series_error import errors


def test_errors_are_of_fractions_of_each_window() -> None:
    truth = np.zeros((3, 4096), dtype=np.int64)
    truth[0, 0], truth[1, :16] = 8, 1
    half = np.zeros((3, 4096))
    half[0, 0], half[0, 4095], half[1, :16] = 3, 3, 5
    found = errors(half, truth)  # the third window has nobody and does not count
    assert found.coarse == found.fine == pytest.approx(0.25)
    assert 0 < found.ranges < 0.5
    assert errors(truth * 2.0, truth).ranges == 0
