"""Measurements: splits that part rows as they say, and runs of one user in order of time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.geo.measurements import Measurements
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness


def table(rows: int, users: int = 4, seed: int = 1, *, timed: bool = True) -> Measurements:
    rng = np.random.default_rng(seed)
    return Measurements(
        rng.normal(size=(rows, 3)),
        ("lat", "lon", "rss_dbm"),
        rng.integers(users, size=rows),
        tuple(map(str, range(users))),
        rng.permutation(rows) if timed else None,
        np.arange(rows),
    )


@given(st.integers(2, 60), st.floats(0.05, 0.95), st.integers(0, 99))
def test_a_random_split_parts_the_rows(rows: int, part: float, seed: int) -> None:
    whole = table(rows)
    pilot, held_out = whole.split("random", Randomness(seed), pilot=part)
    assert len(pilot) == round(part * rows)
    both = np.concatenate([pilot.positions, held_out.positions])
    assert sorted(both) == list(range(rows))
    assert (whole.rows[pilot.positions] == pilot.rows).all()
    assert (whole.users[held_out.positions] == held_out.users).all()


@given(st.integers(2, 60), st.floats(0.05, 0.95))
def test_a_split_by_time_puts_the_early_rows_first(rows: int, part: float) -> None:
    pilot, held_out = table(rows).split("time", Randomness(1), pilot=part)
    assert len(pilot) + len(held_out) == rows
    if len(pilot) and len(held_out):
        assert pilot.time is not None
        assert held_out.time is not None
        assert pilot.time.max() < held_out.time.min()


@given(st.integers(2, 30), st.floats(0.05, 0.95), st.integers(0, 99))
def test_a_split_by_user_has_nobody_on_both_sides(users: int, part: float, seed: int) -> None:
    whole = table(200, users)
    pilot, held_out = whole.split("user", Randomness(seed), pilot=part)
    assert not set(pilot.users) & set(held_out.users)
    assert len(pilot) + len(held_out) == 200
    assert len(pilot)
    assert len(held_out)


@given(st.integers(1, 80), st.integers(1, 9), st.booleans())
def test_sequences_are_runs_of_one_user_in_order(rows: int, length: int, timed: bool) -> None:
    whole = table(rows, timed=timed)
    runs = whole.sequences(length)
    time = np.arange(rows) if whole.time is None else whole.time
    # The slow, obvious oracle: sort each user's rows and cut them up.
    expected = []
    for user in range(4):
        own = sorted(np.flatnonzero(whole.users == user).tolist(), key=lambda at: time[at])
        expected += [own[at : at + length] for at in range(0, len(own) - length + 1, length)]
    assert runs.tolist() == expected


def test_what_cannot_be_split_is_named() -> None:
    with pytest.raises(ParameterError, match=r"pilot must be a fraction between 0 and 1.* got 1\.5"):
        table(9).split("random", Randomness(1), pilot=1.5)
    with pytest.raises(InputError, match="no column of times"):
        table(9, timed=False).split("time", Randomness(1))
    with pytest.raises(InputError, match="one user only; a split by user"):
        table(9, users=1).split("user", Randomness(1))
    with pytest.raises(InputError, match="1 rows; at least two"):
        table(1).split("random", Randomness(1))
    with pytest.raises(ParameterError, match="length must be at least 1, got 0"):
        table(9).sequences(0)


def test_shapes_and_values_are_checked() -> None:
    good = table(4)
    with pytest.raises(InputError, match=r"rows of shape \(4, 2\); expected \(4, 3\)"):
        good.with_rows(good.rows[:, :2])
    with pytest.raises(InputError, match="missing or not finite"):
        good.with_rows(np.full((4, 3), np.nan))
    assert repr(good) == "Measurements(measurements: lat, lon, rss_dbm)"
    assert good.features == 3
