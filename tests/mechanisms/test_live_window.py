"""Windows of a live series: who counts in them, and how often, whatever their ids look like."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UNIT
from mapveil_client.errors import CuratorWarning

from .city_series import NAMES, started, visits

# A window whose users have all run out has no rows, of which the curator is told.
pytestmark = pytest.mark.filterwarnings("ignore::mapveil_client.errors.CuratorWarning")


def test_a_user_counts_in_their_first_windows_and_in_no_later_one(tmp_path: Path, sums: list) -> None:
    series = started(tmp_path / "city.series")
    regular, others = np.arange(40), np.arange(100, 120)
    for week, users in enumerate(
        (regular, np.concatenate([regular, others]), regular, np.append(others, 500))
    ):
        series.add(visits(users, week, seed=week))
    people = [round(each.sum() / UNIT) for each in sums]
    assert people == [40, 60, 0, 21]


def test_leaving_a_user_out_moves_all_windows_together_by_two_at_most(tmp_path: Path, sums: list) -> None:
    users = np.repeat(np.arange(10), 3)  # in each week, three rows of each user
    for name, without in (("with", None), ("without", 0)):
        series = started(tmp_path / f"{name}.series")
        for week in range(3):
            series.add(visits(users, week, seed=week, without=without))
    moved = np.abs(np.array(sums[:3]) - np.array(sums[3:])).sum()
    assert 1.99 * UNIT < moved <= 2 * UNIT


def test_each_window_costs_its_part_and_promises_the_whole(tmp_path: Path) -> None:
    series = started(tmp_path / "city.series")
    heat = series.add(visits(np.arange(300), 0))
    assert sum(share.epsilon for share in heat.guarantee.shares) == 1
    assert heat.guarantee.epsilon == 2
    once = started(tmp_path / "once.series", epsilon=1, windows_per_user=1).add(visits(np.arange(300), 0))
    assert heat.guarantee.delta == 2 * once.guarantee.delta > 0  # a user moves two maps of four
    assert heat.guarantee.bound is not None
    assert heat.guarantee.bound.value == 2
    assert heat.title == f"{NAMES[0]}: 5 to 11 January 2026, UTC"
    status = series.status()
    assert (status.released, status.next, status.each) == (NAMES[:1], NAMES[1], 1)


def test_rows_of_other_windows_and_ids_of_other_types_are_the_same_people(tmp_path: Path, sums: list) -> None:
    series = started(tmp_path / "city.series", windows_per_user=1)
    series.add(visits(np.arange(10), 0))
    texts = visits(np.arange(10).astype(str), 1)
    series.add(texts)
    series.add(visits(np.arange(20, 30), 1), NAMES[2], nobody=True)
    assert [round(each.sum() / UNIT) for each in sums] == [10, 0, 0]


def spelled(spell: Callable[[int], object], week: int, people: int = 30) -> mv.Points:
    drawn = visits(np.arange(people), week).arrays()
    day = np.datetime64("2026-01-05") + np.full(drawn.users.size, 7 * week)
    ids = [spell(int(user)) for user in drawn.users]
    return mv.Points.from_arrays(ids, drawn.lon, drawn.lat, time=day)


@pytest.mark.parametrize(
    "spellings",
    [
        (
            lambda i: f"ab{i:05d}",
            lambda i: f"AB{i:05d}",
            lambda i: f" ab{i:05d} ",
            lambda i: f"aB\u200b{i:05d}",
        ),
        (lambda i: i, lambda i: f"{i}.0", lambda i: f"{i:05d}", lambda i: f"+{i} "),
        (lambda i: f"Å{i}", lambda i: f"A\u030a{i}", lambda i: f"å{i}", lambda i: f"Å{i}\u00a0"),
    ],
    ids=["case and spaces", "numbers", "Unicode"],
)
@pytest.mark.parametrize("charged", [False, True], ids=["without a ledger", "with a ledger"])
def test_an_id_that_is_written_otherwise_is_the_same_person_as_in_the_ledger(
    tmp_path: Path, sums: list, spellings: tuple, charged: bool
) -> None:
    ledger = {"ledger": mv.Ledger(tmp_path / "ledger.sqlite")} if charged else {}
    series = started(tmp_path / "city.series", windows_per_user=1, **ledger)
    for week, spell in enumerate(spellings):
        series.add(spelled(spell, week), **ledger)
    assert [round(each.sum() / UNIT) for each in sums] == [30, 0, 0, 0]


def test_ids_that_are_written_in_two_ways_in_one_window_are_one_user(tmp_path: Path, sums: list) -> None:
    series = started(tmp_path / "city.series")
    both = ["ab", "AB", "7", "07"]
    day = np.full(4, np.datetime64("2026-01-05"))
    series.add(mv.Points.from_arrays(both, np.full(4, -74.0), np.full(4, 40.7), time=day))
    assert round(sums[0].sum() / UNIT) == 2


def test_a_series_of_an_earlier_version_takes_ids_as_they_are_written_and_says_so(
    tmp_path: Path, sums: list
) -> None:
    series = started(tmp_path / "city.series", windows_per_user=1)
    with closing(sqlite3.connect(tmp_path / "city.series")) as opened, opened:
        (record,) = opened.execute("SELECT record FROM series").fetchone()
        older = {name: value for name, value in json.loads(record).items() if name != "ids"}
        opened.execute("UPDATE series SET record = ?", (json.dumps(older, sort_keys=True),))
    for week, spell in enumerate((lambda i: f"ab{i}", lambda i: f"ab{i}", lambda i: f"AB{i}")):
        with pytest.warns(CuratorWarning, match="write the ids of every table alike"):
            series.add(spelled(spell, week))
    assert [round(each.sum() / UNIT) for each in sums] == [30, 0, 30]


def test_epsilon_is_divided_exactly(tmp_path: Path) -> None:
    series = started(tmp_path / "city.series", epsilon=Fraction(1, 3), windows_per_user=None)
    assert series.status().each == Fraction(1, 12)
