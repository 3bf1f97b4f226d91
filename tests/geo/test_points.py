"""Points: the scan, the check, the fingerprint, and nothing said about the rows."""

from __future__ import annotations

import hashlib
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    assert points.columns == ("user", "lon", "lat", None, None, None)
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
    "swapped": ({"lon": [40.7, 40.8, 40.9], "lat": [139.7, 139.8, 139.9]}, "are lat and lon swapped\\?$"),
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


def test_the_first_bad_row_of_many_is_named() -> None:
    lon = np.zeros(500_000)
    lon[[300_000, 450_000]] = np.nan
    with pytest.raises(InputError, match="row 300001,"):
        Points.from_arrays(np.arange(lon.size), lon, np.zeros(lon.size)).check()


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


degrees = st.integers(-900_000_000, 900_000_000)
row = st.tuples(st.sampled_from(["ann", "bob", "it's|1"]), degrees, degrees, st.integers(0, 10**6))


def oracle(rows: list[tuple[str, int, int, int]]) -> bytes:
    """The same digest in plain integers, so that a table has one fingerprint whatever the engine."""

    def remainder(value: int, modulus: int) -> int:  # SQL's sign: that of the value
        return abs(value) % modulus * (1 if value >= 0 else -1)

    p, q = 2147483647, 2147483629
    users: dict[str, list[int]] = {}
    for user, x, y, w in rows:
        sums = users.setdefault(user, [0, 0, 0])
        sums[0] += 1
        sums[1] += remainder(x * 2654435761 + y, p) * remainder(y * 2246822519 + x + w, q)
        sums[2] += remainder(x * 3266489917 + w, p) * remainder(y * 668265263 - x, q)
    lower = upper = 0
    for user, (n, a, b) in users.items():
        digest = hashlib.md5(f"{n}|{a}|{b}|{user}".encode(), usedforsecurity=False).digest()
        halves = [int.from_bytes(digest[8:], "little"), int.from_bytes(digest[:8], "little")]
        lower, upper = lower + halves[0], upper + halves[1]
    return hashlib.sha256(f"mapveil points 1 {(len(rows), len(users), lower, upper)}".encode()).digest()


def of_integers(rows: list[tuple[str, int, int, int]]) -> Points:
    user, x, y, w = zip(*rows, strict=True)
    return Points.from_arrays(user, np.array(x) / 1e7, np.array(y) / 1e7, weight=np.array(w) / 1e6)


@settings(deadline=None, max_examples=25)
@given(st.lists(row, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_fingerprint_is_that_of_the_multiset(rows: list[tuple[str, int, int, int]], random: Any) -> None:
    first = of_integers(rows).fingerprint()
    assert first == oracle(rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert of_integers(shuffled).fingerprint() == first


def test_the_fingerprint_sees_every_change() -> None:
    base = table().fingerprint()
    assert len(base) == 32
    changes: list[dict[str, Any]] = [
        {"user": ["a", "b", "b"]},
        {"user": ["a", "b", "A"]},
        {"lon": [-73.9000001, 180.0, -180.0]},
        {"lat": [40.7000001, 90.0, -90.0]},
        {"lon": [180.0, -73.9, -180.0]},
        {"weight": [1, 1, 2]},
    ]
    assert len({base, *(table(**change).fingerprint() for change in changes)}) == len(changes) + 1
    assert table(weight=[1, 1, 1], source="else").fingerprint() == base
    doubled = {name: values * 2 for name, values in GOOD.items()}
    assert Points.from_arrays(**doubled).fingerprint() != base
