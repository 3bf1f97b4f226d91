"""Trajectory recovery: people who stay or return are recovered from raw counts, and not from private ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import entropy

import mapveil as mv
from mapveil.attacks.membership import Publishing
from mapveil.attacks.trajectory_recovery import _information_gain, attack_windows, people_in_windows
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness

TILING = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=6)
RAW = Publishing("raw")


def commuters(people: int, days: int, *, hours: int = 6) -> np.ndarray[Any, Any]:
    """Everybody has a home and, half of the day, another place next to it; shape (people, windows)."""
    draw = np.random.default_rng(1)
    home = draw.choice(TILING.size // 4, people, replace=False) * 4
    day = np.repeat([0, 1], 12 // hours)
    return home[:, None] + np.tile(day, days)[None, :]


def table(truth: np.ndarray[Any, Any], hours: float) -> mv.Points:
    lon, lat = TILING.centres(truth.ravel())
    user, window = (each.ravel() for each in np.indices(truth.shape))
    time = np.datetime64("2025-01-06") + (window * hours * 3600 + 60).astype("timedelta64[s]")
    return mv.Points.from_arrays(user, lon, lat, time=time)


def test_commuters_are_recovered_from_raw_counts() -> None:
    truth = commuters(40, 4)
    raw = attack_windows(truth, TILING, 6, RAW, Randomness(1))
    chance = attack_windows(truth, TILING, 6, None, Randomness(1))
    assert raw.right.value > 0.95
    assert raw.unique > 0.95
    assert chance.right.high < 0.4
    assert chance.unique < 0.1


def test_suppressed_and_private_counts_do_not_give_them_away() -> None:
    truth = commuters(40, 4)
    for way in (Publishing("least", least=5), Publishing("private", LaplaceHistogram(epsilon=1))):
        found = attack_windows(truth, TILING, 6, way, Randomness(1))
        assert found.right.high < 0.1
        assert found.unique < 0.1
    # A hundred a window is as good as no noise.
    loud = Publishing("loud", LaplaceHistogram(epsilon=100 * truth.shape[1]))
    assert attack_windows(truth, TILING, 6, loud, Randomness(1)).right.value > 0.9


def test_a_map_of_nobody_on_millions_of_cells_is_an_even_guess() -> None:
    fine = mv.Quadtree(TILING.region, depth=11)
    truth = np.tile(np.arange(87)[:, None] * 1000, (1, 2))
    found = attack_windows(truth, fine, 24, Publishing("least", least=5), Randomness(1))
    assert found.right.value < 0.05
    assert attack_windows(truth, fine, 24, RAW, Randomness(1)).right.value == 1.0


def test_days_are_linked_by_the_places_of_each_person() -> None:
    draw = np.random.default_rng(2)
    first, second = (draw.integers(0, 5, (7, each)) for each in (4, 3))
    gain = _information_gain(first, second)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            p, q = (np.bincount(each, minlength=5) / each.size for each in (a, b))
            expected = entropy((p + q) / 2, base=2) - entropy(p, base=2) / 2 - entropy(q, base=2) / 2
            assert gain[i, j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("hours", [0.5, 6.0, 24.0])
def test_a_table_becomes_cells_in_windows(hours: float) -> None:
    truth = commuters(12, 2)
    found = people_in_windows(
        table(truth, hours), TILING, hours, truth.shape[1], 12, np.random.default_rng(0)
    )
    assert found.tolist() == truth.tolist()


def test_a_person_unseen_is_where_they_were_seen_last_and_the_rarely_seen_are_left_out() -> None:
    truth = np.array([[4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]])
    rows = table(truth, 24)
    arrays = rows.arrays()
    seen = np.ones(truth.shape, dtype=bool)
    seen[0, [0, 2]] = False
    seen[2, 1:] = False
    kept = seen.ravel()
    time = np.datetime64("2025-01-06") + np.tile(np.arange(4), 3)[kept]
    order = np.argsort(arrays.users, kind="stable")
    lon, lat = TILING.centres(truth.ravel())
    assert order.size == lon.size
    points = mv.Points.from_arrays(np.repeat(np.arange(3), 4)[kept], lon[kept], lat[kept], time=time)
    found = people_in_windows(points, TILING, 24, 4, 9, np.random.default_rng(0))
    assert found.tolist() == [[5, 5, 5, 7], [8, 9, 10, 11]]


def test_bad_input_is_named() -> None:
    draw = np.random.default_rng(0)
    city = mv.synthetic.city(users=20, seed=1)
    rows = city.arrays()
    timeless = mv.Points.from_arrays(rows.users, rows.lon, rows.lat)
    words = mv.Points.from_arrays(["a", "b"], [0.5, 0.5], [0.5, 0.5], time=["now", "then"])
    for points, hours, windows, message in (
        (timeless, 24.0, 14, "need a column of times"),
        (words, 24.0, 14, "every row needs a time"),
        (city, 24.0, 1, "windows must be at least 2, got 1"),
        (city, 0.0, 14, "window_hours must be a number of hours from 1/60, got 0.0"),
        (city, 1.0, 14, "use longer windows"),
    ):
        tiling = TILING if points is words else mv.Quadtree(city.region, depth=4)
        with pytest.raises(InputError, match=message):
            people_in_windows(points, tiling, hours, windows, 100, draw)


def test_the_report_has_them_where_the_table_has_times() -> None:
    city = mv.synthetic.city(users=200, seed=1)
    tiling = mv.Quadtree(city.region, depth=5)
    given: dict[str, Any] = {"methods": ["laplace"], "groups": 8}
    report = mv.attack_membership(city, tiling, **given)
    found = {row.published: row.right for row in report.recoveries}
    assert list(found) == ["positions linked at random", *(row.published for row in report.memberships)]
    assert found["people per cell"].value > found["positions linked at random"].high
    assert found["people per cell"].low > found["laplace, epsilon 1"].high
    short = mv.attack_membership(city, tiling, window_hours=0.5, **given)
    assert not short.recoveries
    assert "use longer windows" in short.notes[0]
    with pytest.raises(InputError, match="use longer windows"):
        mv.attack_membership(city, tiling, windows=14, window_hours=0.5, **given)
