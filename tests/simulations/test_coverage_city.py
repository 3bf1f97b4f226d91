"""The simulated city: the stated shadowing, the same people on other days, rows inside."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.geo.region import Region
from simulations.coverage.city import City
from simulations.coverage.command import judge


def test_shadowing_has_the_stated_deviation_and_length() -> None:
    # Without path loss the field is the shadowing of one station.
    fields = [
        City(side_m=3000, stations=1, exponent=1e-9, length_m=100, seed=seed).field() + 15
        for seed in range(6)
    ]
    assert float(np.std(fields)) == pytest.approx(8, rel=0.12)
    apart = [np.mean(each[:, :-5] * each[:, 5:]) / np.mean(each**2) for each in fields]  # 100 m
    assert float(np.mean(apart)) == pytest.approx(np.exp(-1), abs=0.1)


def test_the_same_people_go_elsewhere_on_other_days() -> None:
    city = City(side_m=2000, seed=3)
    one, other = city.measure(20, 2, seed=5), city.measure(20, 2, first_day=4, seed=5)
    assert one.user_ids == other.user_ids
    assert np.unique(one.users).size == 20
    assert np.asarray(one.time).max() < np.asarray(other.time).min()
    region = Region.from_bbox(*city.box)
    assert region.contains(one.rows[:, 1], one.rows[:, 0]).all()
    np.testing.assert_array_equal(one.rows, city.measure(20, 2, seed=5).rows)


@pytest.mark.parametrize("epsilon", [8.0])
def test_many_phones_gain_and_intervals_cover_the_field(epsilon: float) -> None:
    (found,) = judge(7, 1500, [epsilon], "central")
    assert found.gain_db > 0.3
    assert 0.9 < found.covered < 0.995


def test_the_fields_squares_are_where_phones_measure_them() -> None:
    city = City(side_m=2000, seed=3, phone_db=0, fading_db=0)
    (lat, lon, strength), rows = city.squares(), city.measure(20, 1).rows
    nearest = np.argmin(np.hypot(lat - rows[:, :1], 0.77 * (lon - rows[:, 1:2])), axis=1)
    off = np.abs(strength[nearest] - rows[:, 2])
    assert (off < 0.51).mean() > 0.97  # rounded; a row at an edge may have another square
