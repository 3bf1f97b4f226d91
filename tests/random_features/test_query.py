"""Grids and queries: what can be asked at all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.random_features.query import EvenGrid, Query

QUERY = Query((150.0, 150.0), (0.0, 0.0), (10_000.0, 12_000.0))
steps = st.floats(0.01, 1000) | st.floats(-1000, -0.01)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), steps, st.integers(1, 7)), min_size=1, max_size=3))
def test_points_are_start_plus_index_times_step(axes):
    start, step, count = (tuple(part) for part in zip(*axes, strict=True))
    grid = EvenGrid(start, step, count)
    points = grid.points()
    assert points.shape == (len(axes), grid.size)
    index = np.indices(count).reshape(len(axes), -1)
    wanted = np.asarray(start)[:, None] + index * np.asarray(step)[:, None]
    np.testing.assert_allclose(points, wanted, rtol=1e-12, atol=1e-9)
    middle = np.ravel_multi_index([n // 2 for n in count], count)
    assert tuple(points[:, middle]) == grid.middle  # exactly: no phase has to be shifted


@pytest.mark.parametrize(
    ("start", "step", "count"),
    [
        ((), (), ()),
        ((0.0,) * 4, (1.0,) * 4, (2,) * 4),
        ((0.0,), (1.0, 1.0), (2,)),
        ((0.0,), (0.0,), (2,)),
        ((np.nan,), (1.0,), (2,)),
        ((0.0,), (np.inf,), (2,)),
        ((0.0,), (1.0,), (0,)),
    ],
)
def test_senseless_grids_are_refused(start, step, count):
    with pytest.raises(ParameterError):
        EvenGrid(start, step, count)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": (0.0, 150.0)}, "above 0"),
        ({"bandwidth": (150.0, -1.0)}, "above 0"),
        ({"bandwidth": (np.nan, 150.0)}, "above 0"),
        ({"bandwidth": (np.inf, 150.0)}, "above 0"),
        ({"bandwidth": (150.0,)}, "one to three axes"),
        ({"features": 0}, "at least 1"),
        ({"features": 1.5}, "whole number"),
        ({"features": True}, "whole number"),
        ({"kernel": "box"}, "kernel must be one of"),
        ({"high": (0.0, 12_000.0)}, "low must be below high"),
        ({"low": (np.nan, 0.0)}, "low must be below high"),
        ({"grid": EvenGrid((0.0,), (1.0,), (4,))}, "must have 2 axes, got 1"),
    ],
)
def test_senseless_queries_are_refused(change, message):
    with pytest.raises(ParameterError, match=message):
        dataclasses.replace(QUERY, **change)


def test_phases_count_from_the_middle():
    assert QUERY.origin == (5000.0, 6000.0)
    grid = EvenGrid((10.0, 20.0), (2.0, -3.0), (5, 8))
    assert dataclasses.replace(QUERY, grid=grid).origin == grid.middle == (14.0, 8.0)
