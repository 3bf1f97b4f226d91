"""Shrinkage over time: windows add up, a quiet time axis shrinks away, and a change that noise cannot explain stays."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.inference.window_shrinkage import WindowSums, shrink_windows


def measured(truth: np.ndarray, deviation: float, seed: int = 0) -> WindowSums:
    """Blocks of four sites each, in every window."""
    exact = truth.reshape(truth.shape[0], -1, 4).sum(axis=2)
    noise = np.random.default_rng(seed).laplace(0, deviation / np.sqrt(2), exact.shape)
    return WindowSums(exact + noise, deviation**2, 1.0, np.repeat(np.arange(exact.shape[1]), 4))


def a_map(sites: int = 256, users: float = 4000, seed: int = 1) -> np.ndarray:
    weights = np.random.default_rng(seed).pareto(1.0, sites)
    return users * weights / weights.sum()


@pytest.mark.parametrize("windows", [1, 2, 3, 7, 16])
def test_windows_add_up_to_the_map_of_all(windows: int) -> None:
    pooled = a_map()
    truth = np.repeat(pooled[None] / windows, windows, axis=0)
    found = shrink_windows(measured(truth, 3.0), pooled)
    assert found.shape == (windows, 256)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=0), pooled, rtol=1e-9)


def test_a_quiet_time_axis_shrinks_away() -> None:
    pooled, windows = a_map(), 8
    truth = np.repeat(pooled[None] / windows, windows, axis=0)
    sums = measured(truth, 6.0)
    found = shrink_windows(sums, pooled)
    raw = np.abs(sums.values - truth.reshape(windows, -1, 4).sum(axis=2)).sum()
    assert np.abs(found - truth).sum() < 0.25 * raw


def test_a_change_that_noise_cannot_explain_stays_where_and_when_it_was() -> None:
    pooled = np.full(256, 10.0)
    truth = np.repeat(pooled[None] / 8, 8, axis=0)
    truth[:, 64:128] = 0.0
    truth[5, 64:128] = 10.0  # a quarter of the map is visited in one window only
    found = shrink_windows(measured(truth, 2.0), pooled)
    assert found[5, 64:128].sum() == pytest.approx(640, rel=0.1)
    assert np.abs(found - truth).sum() < 0.12 * truth.sum()


def test_without_noise_the_blocks_are_what_was_measured() -> None:
    truth = np.random.default_rng(2).gamma(0.5, 2.0, (6, 64))
    found = shrink_windows(measured(truth, 1e-7), truth.sum(axis=0))
    blocks = found.reshape(6, -1, 4).sum(axis=2)
    np.testing.assert_allclose(blocks, truth.reshape(6, -1, 4).sum(axis=2), rtol=1e-3, atol=1e-3)


def test_where_nobody_can_be_there_is_nobody() -> None:
    pooled = a_map(64)
    pooled[32:] = 0.0
    sums = measured(np.repeat(pooled[None] / 4, 4, axis=0), 5.0)
    block = sums.block.copy()
    block[32:] = -1
    found = shrink_windows(sums._replace(values=sums.values[:, :8], block=block), pooled)
    assert not found[:, 32:].any()


def test_nobody_at_all_is_nobody_in_every_window() -> None:
    found = shrink_windows(measured(np.zeros((3, 64)), 2.0), np.zeros(64))
    assert not found.any()
