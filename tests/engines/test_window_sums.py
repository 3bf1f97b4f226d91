"""Sums of users in windows: against a plain loop over rows, and the L1 norm of any one user, exactly."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines import UNIT, user_sums
from mapveil.geo.windowed_points import Parts, windowed

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=2)
DAYS = 6
WINDOWS = mv.Windows(every="1d", start="2026-01-05", until="2026-01-11")
FIRST = np.datetime64("2026-01-05")
PARTS = [None, Parts(3), Parts(1), Parts(1, 1), Parts(1, 2)]

rows = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(-1, DAYS),  # one before and one after the windows
        st.sampled_from([-74.02, -73.97, -73.93, -73.5]),
        st.sampled_from([40.7, 40.75, 40.82]),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=30,
)


def sums(table: list[tuple], parts: Parts | None, *, weighted: bool = True, key: str = "k") -> np.ndarray:
    user, day, lon, lat, weight = (np.array(column) for column in zip(*table, strict=True))
    given_weight = weight.astype(float) if weighted else None
    points = mv.Points.from_arrays(user, lon, lat, time=FIRST + day, weight=given_weight)
    return user_sums(windowed(points, WINDOWS, parts), TILING, key=key).sums


def slowly(table: list[tuple], parts: Parts | None) -> np.ndarray:
    """The definition, row by row, without a limit of windows."""
    user, day, lon, lat, weight = zip(*table, strict=True)
    cells = TILING.locate(np.array(lon), np.array(lat))
    made, total = np.zeros((DAYS, TILING.size), dtype=np.int64), defaultdict(int)
    for add in (False, True):
        for row in range(len(user)):
            if cells[row] < 0 or not 0 <= day[row] < DAYS:
                continue
            key = user[row], 0 if parts is None else day[row] // parts.length
            if add:
                made[day[row], cells[row]] += weight[row] * 10**6 * UNIT // total[key]
            else:
                total[key] += weight[row] * 10**6
    return made


@settings(max_examples=8, deadline=None)
@given(rows, st.sampled_from([None, Parts(3), Parts(1)]))
def test_sums_are_those_of_a_plain_loop(table: list[tuple], parts: Parts | None) -> None:
    np.testing.assert_array_equal(sums(table, parts), slowly(table, parts))


@settings(max_examples=8, deadline=None)
@given(rows, st.sampled_from(PARTS), st.booleans(), st.text("abc", max_size=2))
def test_no_user_moves_the_sums_by_more_than_the_bound(
    table: list[tuple], parts: Parts | None, weighted: bool, key: str
) -> None:
    most = 1 if parts is None else (parts.most or -(-DAYS // parts.length))
    for user in {row[0] for row in table}:
        others = [row for row in table if row[0] != user]
        before = sums(others, parts, weighted=weighted, key=key) if others else 0
        moved = sums(table, parts, weighted=weighted, key=key) - before
        assert (moved >= 0).all(), "another user's windows were chosen by this user's rows"
        assert moved.sum() <= most * UNIT
        if parts is not None:
            each = np.add.reduceat(moved.sum(axis=1), np.arange(0, DAYS, parts.length))
            assert each.max() <= UNIT
            assert parts.most is None or (each > 0).sum() <= parts.most


@pytest.mark.parametrize("most", [1, 3])
def test_ten_thousand_users_in_all_windows_count_as_often_as_they_may(most: int) -> None:
    users, generator = 10_000, np.random.default_rng(3)
    user, day = np.repeat(np.arange(users), DAYS), np.tile(np.arange(DAYS), users)
    lon, lat = generator.uniform(-74.02, -73.91, user.size), generator.uniform(40.7, 40.82, user.size)
    points = mv.Points.from_arrays(user, lon, lat, time=FIRST + day)
    by_window = user_sums(windowed(points, WINDOWS, Parts(1, most)), TILING, key="x").sums.sum(axis=1)
    assert by_window.sum() == most * users * UNIT
    # The keyed hash prefers no window: 6 deviations of a binomial.
    even = users * most / DAYS
    assert np.abs(by_window / UNIT - even).max() < 6 * np.sqrt(even)


def test_another_key_chooses_other_windows() -> None:
    table = [(user, day, -73.97, 40.75, 1) for user in range(4) for day in range(DAYS)]
    one = sums(table, Parts(1, 2))
    assert any(not np.array_equal(sums(table, Parts(1, 2), key=str(key)), one) for key in range(9))
