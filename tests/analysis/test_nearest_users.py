"""The nearest users of places, against lists written out one user after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.analysis import nearest_users as module
from mapveil.analysis.nearest_users import nearest_users
from mapveil_client.errors import ParameterError

ROW = mv.Grid(mv.Region.without_georeference(4, 1), rows=1, columns=4)
CITY = mv.Grid(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), rows=5, columns=6)


def one_by_one(users, tiling, k, place):
    """The slow, obvious way: walk outwards cell by cell, and note who is passed at each half."""
    plane = np.stack(tiling.region.metric_projection.project(*tiling.centres()), axis=1)
    far = np.hypot(*(plane - plane[place]).T)
    left = np.maximum(np.array(users, dtype=float), 0)
    left[place] = max(left[place] - 1, 0)
    total, cells, metres = 0.0, [], []
    for cell in sorted(range(tiling.size), key=lambda at: (round(far[at] * 1000), at)):
        total += left[cell]
        while len(cells) < k and len(cells) + 0.5 < total:
            cells.append(cell)
            metres.append(far[cell])
    missing = k - len(cells)
    return cells + [-1] * missing, metres + [np.nan] * missing


@given(
    users=st.lists(st.integers(-8, 40).map(lambda q: q / 4), min_size=30, max_size=30),
    k=st.integers(1, 12),
)
@settings(max_examples=30, deadline=None)
def test_lists_are_those_of_the_slow_way(users: list[float], k: int) -> None:
    found = nearest_users(users, CITY, k)
    for place in range(CITY.size):
        cells, metres = one_by_one(users, CITY, k, place)
        assert found.cell[place].tolist() == cells
        np.testing.assert_allclose(found.distance_m[place], metres, atol=1e-3)


def test_whole_users_are_counted_one_by_one() -> None:
    # 1, 0, 2 and 5 users in a row: who asks from the second cell has one neighbour on either side first.
    found = nearest_users([1, 0, 2, 5], ROW, 6, places=[1])
    assert found.cell[0].tolist() == [0, 2, 2, 3, 3, 3]
    np.testing.assert_allclose(found.distance_m[0], [1, 1, 1, 2, 2, 2])
    assert found.radius_m.tolist() == [pytest.approx(2)]


def test_who_asks_is_no_neighbour_of_themselves() -> None:
    assert nearest_users([1, 0, 2, 5], ROW, 2, places=[0]).cell[0].tolist() == [2, 2]


def test_a_map_of_too_few_ends_early() -> None:
    found = nearest_users([0, 2, 0, 0], ROW, 4, places=[0, 1])
    assert found.cell.tolist() == [[1, 1, -1, -1], [1, -1, -1, -1]]
    assert np.isinf(found.radius_m).all()
    assert (nearest_users(np.zeros(4), ROW, 1).cell == -1).all()


def test_small_steps_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    users = np.random.default_rng(0).gamma(0.3, 2, CITY.size)
    whole = nearest_users(users, CITY, 9)
    monkeypatch.setattr(module, "_FIRST_REACH", 2)
    monkeypatch.setattr(module, "_CHUNK_ENTRIES", 8)
    parts = nearest_users(users, CITY, 9)
    np.testing.assert_array_equal(whole.cell, parts.cell)
    np.testing.assert_array_equal(whole.distance_m, parts.distance_m)


@given(k=st.integers(1, 20), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_lists_go_outwards_and_longer_lists_begin_alike(k: int, seed: int) -> None:
    users = np.random.default_rng(seed).gamma(0.5, 3, CITY.size)
    found, longer = nearest_users(users, CITY, k), nearest_users(users, CITY, k + 5)
    listed = np.where(np.isnan(longer.distance_m), np.inf, longer.distance_m)
    assert (listed[:, 1:] >= listed[:, :-1] - 1e-3).all()
    np.testing.assert_array_equal(found.cell, longer.cell[:, :k])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"k": 0}, "k must be"),
        ({"users": [1, 2, 3]}, r"shape \(3,\)"),
        ({"users": [1, np.nan, 1, 1]}, "finite"),
        ({"users": [1, np.inf, 1, 1]}, "finite"),
        ({"places": [4]}, "no cell"),
        ({"places": [-1]}, "no cell"),
    ],
)
def test_what_is_refused(changed: dict, said: str) -> None:
    arguments = {"users": [1, 0, 2, 5], "k": 1, **changed}
    with pytest.raises(ParameterError, match=said):
        nearest_users(arguments.pop("users"), ROW, arguments.pop("k"), **arguments)
