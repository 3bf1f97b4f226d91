"""The certified bounds: they hold around the exact distance, and they meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mapveil.inference.heatmap import heatmap
from mapveil.metrics import emd_bounds as module
from mapveil.metrics.beckmann import lipschitz_minorant
from mapveil.metrics.emd import emd
from mapveil.metrics.emd_bounds import emd_bounds, emd_within
from mapveil_client.errors import ParameterError

CELLS = [None, (1.0, 1.0), (3.0, 1.0), (0.2, 1.7)]
RASTERS = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(
        *[arrays(np.float64, shape, elements=st.one_of(st.just(0.0), st.integers(1, 9).map(float)))] * 2
    )
)


@settings(max_examples=60, deadline=None)
@given(RASTERS, st.sampled_from(CELLS), st.sampled_from([1, 7, 5000]))
def test_hold_around_the_exact_distance_and_meet(pair, cell, iterations):
    p, q = pair
    exact = emd(p, q, cell=cell)
    bounds = emd_bounds(p, q, cell=cell, tolerance=1e-4, iterations=iterations)
    allowed = 1e-4 * exact + 1e-12  # the exact solver's own rounding of lengths
    assert bounds.lower <= exact + allowed
    assert bounds.upper >= exact - allowed
    assert bounds.lower <= bounds.middle <= bounds.upper
    if iterations == 5000:
        assert bounds.upper - bounds.lower <= 1.01e-4 * bounds.upper + 1e-12


def some_maps(side):
    rng = np.random.default_rng(side)
    where = rng.normal(side / 2, side / 8, (2, 300)).clip(0, side - 1).astype(int)
    counts = np.zeros((side, side))
    np.add.at(counts, tuple(where), 1)
    noisy = np.maximum(counts + rng.laplace(0, 1, counts.shape), 0)
    yield heatmap(counts, sigma_cells=side / 32), heatmap(noisy, sigma_cells=side / 32)
    yield counts, noisy
    yield counts, counts[::-1]
    yield rng.random((side, side)), rng.random((side, side))
    yield np.eye(side), np.eye(side)[::-1]


@pytest.mark.parametrize("case", range(5))
def test_hold_on_maps_of_every_kind(case):
    p, q = list(some_maps(64))[case]
    exact = emd(p, q)
    bounds = emd_bounds(p, q, tolerance=1e-5)
    assert bounds.lower - 1e-8 <= exact <= bounds.upper + 1e-8
    assert bounds.upper - bounds.lower <= 1.01e-5 * exact
    assert emd_within(p, q) == pytest.approx(exact, rel=5.1e-5)


def test_hold_when_blocks_are_summed(monkeypatch):
    for p, q in some_maps(48):
        exact = emd(p, q)
        for side in (40, 16, 5):
            monkeypatch.setattr(module, "LARGEST_SIDE", side)
            bounds = emd_bounds(p, q)
            assert bounds.lower <= exact <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper + 2 * 2 / side + 1e-9


def test_a_point_mass_in_a_large_raster():
    p, q = np.zeros((2, 3000, 2000))
    p[10, 20], q[110, 1020] = 1, 1
    assert emd_bounds(p, q, cell=(1, 1)).lower == pytest.approx(1100, rel=1e-3)
    assert emd_bounds(p, q, cell=(1, 1)).upper == pytest.approx(1100, rel=1e-2)


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(-9, 9)),
    st.floats(0.1, 3),
    st.floats(0.1, 3),
)
def test_the_minorant_is_the_least_over_all_places(u, width, height):
    rows, columns = np.indices(u.shape)
    expected = np.empty(u.shape)
    for place in np.ndindex(u.shape):
        away = np.abs(rows - place[0]) * height + np.abs(columns - place[1]) * width
        expected[place] = (u + away).min()
    assert np.allclose(lipschitz_minorant(u, width, height), expected, atol=1e-12)


def test_equal_maps_are_at_no_distance():
    p = np.random.default_rng(1).random((30, 30))
    assert emd_bounds(p, 7 * p) == (0, 0)
    assert emd_within(np.zeros((3, 3)), np.ones((3, 3))) == 0


def test_the_exact_distance_takes_over_where_the_bounds_do_not_meet(monkeypatch):
    p, q = np.random.default_rng(2).random((2, 12, 12))
    monkeypatch.setattr(module, "emd_bounds", lambda *_, **__: module.EmdBounds(0.0, 1.0))
    assert emd_within(p, q) == emd(p, q)


@pytest.mark.parametrize(("name", "value"), [("tolerance", 0), ("tolerance", np.nan), ("iterations", 0)])
def test_unusable_settings_are_refused(name, value):
    with pytest.raises(ParameterError, match=name):
        emd_bounds(np.ones((2, 2)), np.eye(2), **{name: value})
