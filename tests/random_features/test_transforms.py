"""The transforms against sums written out, sorted or not, on one thread or several."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mapveil.random_features import transforms as module
from mapveil.random_features.transforms import to_grid, to_points, to_points_from_grid

COUNTS = [(7,), (8,), (6, 9), (4, 5, 6)]


def modes_of(count):
    return np.array(list(itertools.product(*(np.arange(-(n // 2), (n + 1) // 2) for n in count)))).T


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("cached", [0, 1 << 30])
def test_all_three_types_are_the_sums_they_name(monkeypatch, count, cached):
    monkeypatch.setattr(module, "_CACHED", cached)
    rng = np.random.default_rng(1)
    angles = rng.uniform(-np.pi, np.pi, (len(count), 40))
    strengths = rng.normal(size=40) + 1j * rng.normal(size=40)
    k = modes_of(count)
    wanted = np.exp(-1j * (k.T @ angles)) @ strengths
    found = to_grid(list(angles), strengths, count, tolerance=1e-10)
    np.testing.assert_allclose(found.ravel(), wanted, atol=1e-7)
    modes = rng.normal(size=count) + 0j
    back = to_points_from_grid(list(angles), modes, tolerance=1e-10)
    np.testing.assert_allclose(back, np.exp(1j * (k.T @ angles)).T @ modes.ravel(), atol=1e-7)
    places = rng.uniform(-30, 30, (len(count), 17))
    anywhere = to_points(list(angles), strengths, list(places), tolerance=1e-10)
    np.testing.assert_allclose(anywhere, np.exp(-1j * (places.T @ angles)) @ strengths, atol=1e-7)


def test_sorting_and_threads_change_nothing_but_the_time(monkeypatch):
    rng = np.random.default_rng(2)
    angles, strengths = list(rng.normal(0, 0.3, (2, 150_000))), np.exp(1j * rng.uniform(0, 6, 150_000))
    found = []
    for cached, threads in ((0, 1), (1 << 30, 1), (0, 2), (1 << 30, None)):
        monkeypatch.setattr(module, "_CACHED", cached)
        found.append(to_grid(angles, strengths, (64, 48), tolerance=1e-9, threads=threads))
    scale = np.sqrt(150_000)
    for other in found[1:]:
        assert np.abs(other - found[0]).max() < 1e-6 * scale


def test_no_sources_are_nothing():
    none = [np.zeros(0), np.zeros(0)]
    assert not to_grid(none, np.zeros(0, dtype=complex), (4, 5), tolerance=1e-9).any()


def test_what_the_cache_holds_is_where_the_sources_are():
    narrow, wide = np.full(5000, 0.02), np.linspace(-3, 3, 5000)
    assert module._fits_the_cache([narrow, narrow], (1024, 1024))
    assert not module._fits_the_cache([wide, wide], (1024, 1024))
    assert module._fits_the_cache([wide, wide], (64, 64))
