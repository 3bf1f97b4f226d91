"""A table without a row in the region: an answer like any other, since an error would tell without noise."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import user_sums
from mapveil.mechanisms.methods import METHODS
from mapveil_client.errors import CuratorWarning, InputError

TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), 3)
ELSEWHERE = mv.Points.from_arrays([1, 2, 3], [40.7, 40.75, 10.0], [-74.0, -73.95, 50.0])
NOTHING = mv.Points.from_arrays([], [], [])


@pytest.mark.parametrize("table", [ELSEWHERE, NOTHING], ids=["elsewhere", "no rows"])
@pytest.mark.parametrize("method", [row.name for row in METHODS if row.trust == "central"])
def test_a_curators_release_of_an_empty_region_is_noise(method: str, table: mv.Points) -> None:
    with pytest.warns(CuratorWarning, match="has no rows in the cells"):
        heat = mv.release(table, TILING, epsilon=1, method=method)
    assert np.isfinite(heat.values).all()
    assert heat.guarantee.epsilon == 1


def test_a_secure_sum_of_clients_elsewhere_is_noise() -> None:
    many = mv.Points.from_arrays(np.arange(200), np.full(200, 10.0), np.full(200, 50.0))
    assert np.isfinite(mv.release(many, TILING, epsilon=1, trust="distributed").values).all()


def test_the_sums_check_the_rows() -> None:
    points = mv.Points.from_arrays([1, 2], [-74.0, float("nan")], [40.7, 40.7])
    with pytest.raises(InputError, match="row 2, column 'lon'"):
        user_sums(points, TILING)
