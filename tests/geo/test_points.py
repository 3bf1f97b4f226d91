"""Points: the scan, the check, and nothing said about the rows."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import numpy as np
import pytest

from mapveil.geo.points import Points
from mapveil_client.errors import InputError

GOOD: dict[str, Any] = {"user": ["a", "b", "a"], "lon": [-73.9, 180.0, -180.0], "lat": [40.7, 90.0, -90.0]}


def table(**changes: Any) -> Points:
    return Points.from_arrays(**{**GOOD, **changes})


def test_the_scan_yields_canonical_columns_on_any_connection() -> None:
    points = table(
        weight=[1, 2, 0.5], time=np.array(["2025-01-01"] * 3, dtype="datetime64[D]"), label=list("xyz")
    )
    for _ in range(2):
        with duckdb.connect() as connection:
            for _ in range(2):
                found = connection.sql(points.scan(connection)).to_arrow_table()
                assert found.column_names == ["user_id", "lon", "lat", "time", "weight", "label"]
                assert found["lon"].to_pylist() == GOOD["lon"]
                assert found["weight"].to_pylist() == [1.0, 2.0, 0.5]


def test_absent_columns_are_absent() -> None:
    points = table()
    assert points.columns == ("user", "lon", "lat", None, None, None, None, None)
    with duckdb.connect() as connection:
        assert connection.sql(points.scan(connection)).to_arrow_table().column_names == [
            "user_id",
            "lon",
            "lat",
        ]


def test_arrays_number_the_users() -> None:
    arrays = table(user=["b", "a", "b"]).arrays()
    order = np.argsort(arrays.lon)
    assert arrays.users[order].tolist() == [1, 1, 0]  # -180: b, -73.9: b, 180: a
    assert arrays.lat[order].tolist() == [-90.0, 40.7, 90.0]


def test_nothing_of_the_rows_is_shown() -> None:
    assert repr(table(source="home")) == "Points(home: user=user, lon=lon, lat=lat, weight=none)"


@pytest.mark.parametrize(
    "user", [["a", "b", "c"], [1, 2, 3], [1.5, 2.5, 3.5], np.array([1, 2, 3], dtype=np.uint8)]
)
def test_a_good_table_passes(user: Any) -> None:
    table(user=user, weight=[1e-6, 1, 1e12]).check()


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "NaN longitude": (
        {"lon": [0, np.nan, 1]},
        "row 2, column 'lon' is 'nan'; expected a longitude from -180 to 180",
    ),
    "infinite latitude": ({"lat": [0, 1, -np.inf]}, "row 3, column 'lat' is '-inf'"),
    "latitude out of range": (
        {"lat": [0, 90.001, 1]},
        r"row 2, column 'lat' is '90\.001'; expected .* degrees; on_bad_rows='drop'",
    ),
    "longitude out of range": ({"lon": [-180.5, 0, 1]}, r"row 1, column 'lon' is '-180\.5'"),
    "swapped": (
        {"lon": [40.7, 40.8, 40.9], "lat": [139.7, 139.8, 139.9]},
        "are lat and lon swapped\\?; 3 of 3 rows",
    ),
    "missing user": (
        {"user": ["a", None, "b"]},
        "row 2, column 'user' is missing .*every row needs a user id",
    ),
    "NaN user": ({"user": [1.0, 2.0, np.nan]}, "row 3, column 'user' is missing"),
    "negative weight": (
        {"weight": [1, 1, -0.5]},
        "row 3, column 'weight' is '-0.5'; expected a number from 1e-06 to 1e\\+12",
    ),
    "zero weight": ({"weight": [1, 0, 1]}, "row 2, column 'weight' is '0.0'; expected a number from 1e-06"),
    "NaN weight": ({"weight": [np.nan, 1, 1]}, "row 1, column 'weight' is 'nan'"),
    "huge weight": ({"weight": [1, 1e13, 1]}, "row 2, column 'weight'"),
}


@pytest.mark.parametrize(("changes", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_row_is_named(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        table(**changes, source="my table").check()
    assert str(caught.value).startswith("my table: ")
    assert "\n" not in str(caught.value)


def test_bad_rows_are_counted_and_the_first_few_named() -> None:
    lon, lat = np.zeros((2, 500_000))
    lon[[300_000, 450_000, 460_000]], lat[440_000] = np.nan, 91
    with pytest.raises(InputError) as caught:
        Points.from_arrays(np.arange(lon.size), lon, lat).check()
    assert re.search(
        r"row 300001, column 'lon' is 'nan'; .*; 4 of 500000 rows cannot be used: next row 440001, column 'lat' is "
        r"'91.0', row 450001, column 'lon' is 'nan'$",
        str(caught.value),
    )


@pytest.mark.parametrize("held", [list, np.array, lambda ids: np.array(ids, dtype=object)])
def test_ids_with_a_null_character_stay_whole(held: Any) -> None:
    """Arrow reads NumPy's texts of a fixed width up to U+0000: two ids of four became one."""
    ids = ["a\0b", "a\0c", "a", "d"]
    points = Points.from_arrays(held(ids), np.zeros(4), np.zeros(4), label=held(ids))
    assert np.unique(points.arrays().users).size == 4
    with duckdb.connect() as opened:
        rows = opened.execute(f"SELECT user_id, label FROM ({points.scan(opened)})").fetchall()
    assert sorted(rows) == sorted(zip(ids, ids, strict=True))


def test_a_list_keeps_the_end_of_its_texts() -> None:
    assert np.unique(Points.from_arrays(["a", "a\0"], [0, 1], [0, 1]).arrays().users).size == 2
    assert np.unique(Points.from_arrays(["1", 1, 2.5], [0, 1, 2], [0, 1, 2]).arrays().users).size == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"lon": [1.0]}, "different lengths"),
        ({"lon": ["west", "east", "north"]}, "not an array of numbers"),
        ({"lat": [[1.0], [2.0], [3.0]]}, "one-dimensional"),
    ],
)
def test_arrays_that_make_no_table(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        table(**changes)
