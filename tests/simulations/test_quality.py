"""Levenshtein distances against a slow oracle, and the means of a comparison by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.navigation.road_graph import Routes
from simulations.traffic.drive import Drives
from simulations.traffic.quality import edit_distances, route_quality

words = st.lists(st.integers(0, 4), max_size=9)


def slow_levenshtein(first: list[int], second: list[int]) -> int:
    if not first or not second:
        return len(first) + len(second)
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for row in range(len(first) + 1):
        for column in range(len(second) + 1):
            if row == 0 or column == 0:
                table[row][column] = row + column
                continue
            table[row][column] = min(
                table[row - 1][column] + 1,
                table[row][column - 1] + 1,
                table[row - 1][column - 1] + (first[row - 1] != second[column - 1]),
            )
    return table[-1][-1]


def routes_of(lists: list[list[int]]) -> Routes:
    start = np.concatenate([[0], np.cumsum([len(each) for each in lists], dtype=np.int64)])
    return Routes(start.astype(np.int64), np.array([node for each in lists for node in each], dtype=np.int64))


@given(st.lists(st.tuples(words, words), max_size=12))
def test_distances_are_those_of_the_slow_table(pairs: list[tuple[list[int], list[int]]]) -> None:
    first, second = (routes_of([pair[side] for pair in pairs]) for side in (0, 1))
    assert edit_distances(first, second).tolist() == [slow_levenshtein(*pair) for pair in pairs]


@given(words, words, words)
def test_it_is_a_metric(a: list[int], b: list[int], c: list[int]) -> None:
    ab, ba, bc, ac, aa = edit_distances(routes_of([a, b, b, a, a]), routes_of([b, a, c, c, a])).tolist()
    assert aa == 0
    assert ab == ba
    assert (ab == 0) == (a == b)
    assert ac <= ab + bc


def test_the_means_are_those_by_hand() -> None:
    def drives(lists, minutes, updates) -> Drives:
        seconds = 60 * np.array(minutes, dtype=float)
        return Drives(routes_of(lists), seconds, np.array(updates), np.array(updates))

    exact = drives([[0, 1, 2, 3], [5, 6]], [10, 4], [0, 0])
    private = drives([[0, 9, 2, 3], [5, 7, 6]], [8, 7], [1, 3])
    made = route_quality(exact, private, epsilon=0.5)
    assert made.relative_levenshtein == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert made.time_deviation_min == pytest.approx(2.5)
    assert made.minutes_longer == pytest.approx(0.5)
    assert made.updates == 2
    assert made.most_updates == 3
    assert made.total_epsilon == pytest.approx(1.0)


def test_the_same_drives_differ_in_nothing() -> None:
    drive = Drives(routes_of([[0, 1, 2]]), np.array([60.0]), np.array([0]), np.array([0]))
    assert route_quality(drive, drive, 2.0) == (0.0, 0.0, 0.0, 0.0, 0, 0.0)
