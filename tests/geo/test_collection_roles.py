"""Roles of rows: no row has two, days and users keep their order, tables of few days say so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.geo.collection_roles import collection_roles, user_days
from mapveil.geo.measurements import LAT, LON, Measurements
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

DAY = 86_400_000_000


def table(days: int = 10, users: int = 6, rows: int = 1200, seed: int = 1) -> Measurements:
    draw = np.random.default_rng(seed)
    place = np.column_stack([35.5 + 0.01 * draw.random(rows), 24.0 + 0.01 * draw.random(rows)])
    who = np.arange(rows, dtype=np.int64) % users
    time = np.arange(rows, dtype=np.int64) * days // rows * DAY + np.arange(rows) % 1000
    ids = tuple(map(str, range(users)))
    values = np.column_stack([place, draw.normal(-80, 5, rows)])
    return Measurements(values, ("lat", "lon", "rss_dbm"), who, ids, time, np.arange(rows, dtype=np.int64))


@given(st.integers(3, 30), st.integers(2, 9), st.integers(0, 1000))
def test_no_row_has_two_roles_and_periods_follow_each_other(days: int, users: int, seed: int) -> None:
    made = collection_roles(table(days, users, 40 * days, seed), Randomness(seed))
    parts = [made.pilot, made.held_out, made.places, made.later]
    rows = np.concatenate([part.positions for part in parts])
    assert np.unique(rows).size == rows.size
    times = [np.asarray(part.time) // DAY for part in parts]
    assert times[0].max() < min(times[1].min(), times[2].min())
    assert max(times[1].max(), times[2].max()) < times[3].min()
    assert np.unique(made.pilot.users).size == max(round(users / 2), 2)
    assert made.notes == ()


def test_a_pilot_has_two_users_wherever_the_others_stand() -> None:
    rows = table()
    desk = rows.users < 4
    values = np.where(desk[:, None] & (np.arange(3) < 2), [35.501, 24.001, 0.0], rows.rows)
    pilots = [collection_roles(rows.with_rows(values), Randomness(seed)).pilot for seed in range(20)]
    assert min(np.unique(each.users).size for each in pilots) == 2


def test_held_out_places_are_in_no_other_role_of_those_days() -> None:
    made = collection_roles(table(), Randomness(3), block_m=200.0)

    def squares(part: Measurements) -> set[tuple[int, int]]:
        lat, lon = part.rows[:, LAT] * 111_195, part.rows[:, LON] * 111_195
        east = lon * np.cos(np.radians(table().rows[:, LAT].mean()))
        return set(zip((lat // 200).astype(int).tolist(), (east // 200).astype(int).tolist(), strict=True))

    assert squares(made.places).isdisjoint(squares(made.held_out) | squares(made.pilot))


@pytest.mark.parametrize("time", [None, np.zeros(1200, dtype=np.int64)])
def test_a_table_of_one_day_has_no_later_days_and_a_pilot_of_other_users(time: np.ndarray | None) -> None:
    made = collection_roles(replace(table(), time=time), Randomness(1))
    assert len(made.later) == 0
    assert set(made.pilot.users).isdisjoint(made.held_out.users)
    assert made.notes[0].startswith("later days are not measured")


def test_user_days_part_users_and_days() -> None:
    given_rows = table(days=3, users=2, rows=12)
    codes = user_days(given_rows)
    pairs = list(zip(given_rows.users.tolist(), (np.asarray(given_rows.time) // DAY).tolist(), strict=True))
    assert len(set(zip(codes.tolist(), pairs, strict=True))) == len(set(pairs)) == np.unique(codes).size == 6
    assert user_days(replace(given_rows, time=None)).tolist() == given_rows.users.tolist()


def test_impossible_roles_are_refused() -> None:
    with pytest.raises(InputError, match="one user only"):
        collection_roles(table(users=1), Randomness(1))
    with pytest.raises(ParameterError, match=r"later must be below 0\.4"):
        collection_roles(table(), Randomness(1), pilot=0.6, later=0.5)
