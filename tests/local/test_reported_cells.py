"""One place for every user."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.geo.counts import Counts
from mapveil.local.reported_cells import cells_of_users
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(0.0, 0.0, 4.0, 1.0)
TILING = mv.Grid(REGION, rows=1, columns=4)
DOMAIN = Domain(TILING)


def points(users, lons, lats=None, weights=None) -> mv.Points:
    return mv.Points.from_arrays(users, lons, [0.5] * len(lons) if lats is None else lats, weight=weights)


def cells(source, choice="most-visited", outside="drop", seed=1) -> list[int]:
    return cells_of_users(source, DOMAIN, choice, outside, Randomness(seed)).tolist()


def test_each_user_reports_the_cell_of_most_rows() -> None:
    table = points(["a", "a", "a", "b", "c", "c"], [0.5, 2.5, 2.6, 3.5, 1.5, 0.5])
    assert cells(table) == [2, 3, 0]  # of equal ones the first


def test_weights_count() -> None:
    assert cells(points(["a", "a", "a"], [0.5, 0.6, 3.5], weights=[1.0, 1.5, 4.0])) == [3]


def test_a_random_row_comes_in_proportion_to_weights() -> None:
    users = [f"u{i}" for i in range(20_000) for _ in range(3)]
    lons = [0.5, 1.5, 1.6] * 20_000
    found = np.bincount(cells(points(users, lons), "random"), minlength=4)
    # Two rows of three: a deviation of 67 at 6.1 standard deviations is 409.
    assert abs(found[1] - 40_000 / 3) < 409
    assert found[0] + found[1] == 20_000
    weighted = points(users, lons, weights=[1.0, 0.5, 0.5] * 20_000)
    assert abs(np.bincount(cells(weighted, "random"), minlength=4)[1] - 10_000) < 432


def test_a_user_outside_is_silent_moved_or_refused() -> None:
    table = points(["in", "out", "both", "both"], [2.5, 9.0, -3.0, 1.5])
    assert sorted(cells(table)) == [1, 2]
    assert len(cells(table, outside="nearest")) == 3
    assert cells(points(["out"], [9.0]), outside="nearest") == [3]
    with pytest.raises(InputError, match="outside"):
        cells(table, outside="refuse")
    assert cells(points(["in"], [2.5]), outside="refuse") == [2]


def test_nobody_inside_reports_nothing() -> None:
    assert cells(points(["a"], [9.0])) == []


def test_counts_are_one_user_each() -> None:
    source = Counts(np.array([2, 0, 1, 3]), TILING)
    assert cells(source) == [0, 0, 2, 3, 3, 3]
    other = Counts(np.zeros(5, dtype=np.int64), mv.Grid(REGION, rows=1, columns=5))
    with pytest.raises(InputError, match="counts must be on the cells of"):
        cells(other)


def test_a_table_of_many_users_agrees_with_plain_python() -> None:
    generator = np.random.default_rng(2)
    users, lon = generator.integers(0, 300, 5000), generator.uniform(0, 4, 5000)
    got = cells(points(users, lon))
    expected = []
    for user in np.unique(users):
        counted = np.bincount(lon[users == user].astype(int), minlength=4)
        expected.append(int(np.argmax(counted)))
    assert sorted(got) == sorted(expected)
