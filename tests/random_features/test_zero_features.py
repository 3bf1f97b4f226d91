"""Zero features: a flat map of as many users as answered."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.random_features.zero_features import ZeroFeatures

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@pytest.mark.parametrize("tiling", [mv.Grid(REGION, 6, 5), mv.Hexagons(REGION, 7)], ids=["grid", "hexagons"])
def test_the_map_is_flat_and_counts_who_answered(tiling):
    city = mv.synthetic.city(users=300, seed=1, region=REGION)
    heat = ZeroFeatures().release(city, tiling)
    assert heat.values.sum() == pytest.approx(300)
    density = heat.values / tiling.area_m2()
    assert np.ptp(density) < 1e-9 * density.mean()


def test_it_depends_on_nothing_but_the_number_of_devices():
    tiling = mv.Grid(REGION, 6, 5)
    here, there = (
        ZeroFeatures().release(mv.Points.from_arrays([1, 2], [lon] * 2, [40.76] * 2), tiling)
        for lon in (-74.0, -73.92)
    )
    np.testing.assert_array_equal(here.values, there.values)
    assert here.metadata_json() == there.metadata_json()


def test_the_error_is_that_of_a_server_that_knows_the_region():
    tiling = mv.Grid(REGION, 6, 5)
    (measured,) = (
        ZeroFeatures().release(mv.Points.from_arrays([1], [-74.0], [40.76]), tiling).guarantee.measured
    )
    x, y = np.random.default_rng(1).uniform(0, 1, (2, 200_000))
    away = np.hypot((x - 0.5) * REGION.width_m, (y - 0.5) * REGION.height_m)
    assert measured.value == pytest.approx(away.mean(), rel=0.01)
    assert measured.unit == "m"
