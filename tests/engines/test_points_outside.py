"""A table none of whose rows lies in the region: said in one line, with a guess why."""

from __future__ import annotations

import re

import pytest

import mapveil as mv
from mapveil.engines import user_sums
from mapveil_client.errors import InputError

TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), 3)


def test_swapped_coordinates_that_are_places_are_suspected() -> None:
    points = mv.Points.from_arrays([1, 2, 3], [40.7, 40.75, 10.0], [-74.0, -73.95, 50.0], source="a.csv")
    points.check()  # nothing is wrong with the numbers
    with pytest.raises(
        InputError, match=r"a\.csv: no row lies inside the region .*; are lat and lon swapped\?$"
    ):
        user_sums(points, TILING)


def test_points_elsewhere_are_not_called_swapped() -> None:
    points = mv.Points.from_arrays([1, 2], [10.0, 11.0], [50.0, 51.0])
    with pytest.raises(InputError, match=r"no row lies inside") as caught:
        user_sums(points, TILING)
    assert not re.search("swapped", str(caught.value))


def test_the_sums_check_the_rows_first() -> None:
    points = mv.Points.from_arrays([1, 2], [-74.0, float("nan")], [40.7, 40.7])
    with pytest.raises(InputError, match="row 2, column 'lon'"):
        user_sums(points, TILING)
