"""Filters of rows and bad rows: what is kept, what is refused, and what is said of it."""

from __future__ import annotations

import contextlib
import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapveil as mv
from mapveil_client.errors import CuratorWarning, InputError

TABLE = pa.table(
    {
        "user_id": ["ann", "ann", "bob", "cem"],
        "lon": [-73.9, -74.0, -74.0, -73.95],
        "lat": [40.7, 40.8, 40.7, 40.75],
        "hour_of_day": [9, 15, 11, 23],
        "kind": ["home", "work", "home", None],
        "day": [datetime.date(2025, 1, at) for at in range(1, 5)],
    }
)
CSV = "user_id,lon,lat,visits,time\nann,-73.9,40.7,3,2025-01-01 09:00\nann,-74,40.8,4,2025-01-01 15:00\n"


def users(points: mv.Points) -> int:
    return len(points.arrays().users)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("hour_of_day < 12", 2),
        ("kind = 'home' OR hour_of_day > 20", 3),
        ("kind <> 'home'", 1),  # null is not kept
        ("kind IS NULL -- a comment", 1),
        ("hour_of_day BETWEEN 10 AND 20 AND user_id IN ('ann', 'bob')", 2),
        ("CASE WHEN kind = 'home' THEN lat > 40.6 ELSE FALSE END", 2),
        ("(1) = (1) OR (FALSE", 4),
        ("day > '2025-01-02' AND lat < '40.72'", 1),
        ("FALSE", 0),
    ],
)
def test_the_rows_of_a_filter_count(where: str, rows: int) -> None:
    if where.count("(") != where.count(")"):
        with pytest.raises(InputError, match="syntax error"):
            mv.read_points(TABLE, where=where)
        return
    points = mv.read_points(TABLE, where=where)
    points.check()
    assert points.where == where
    assert users(points) == rows


REFUSED = {
    "TRUE; SELECT 1": "syntax error",
    "TRUE) UNION SELECT (TRUE": "more than one condition",
    "TRUE) FROM read_csv('/etc/passwd') WHERE (TRUE": "more than one condition",
    "TRUE), (FALSE": "more than one condition",
    "EXISTS (SELECT 1)": "a subquery cannot be used, since each row is kept or left out by itself",
    "user_id IN (SELECT 'ann')": "a subquery cannot be used",
    "lon = ANY (SELECT 1)": "a subquery cannot be used",
    "COUNT(*) > 1": "function count_star cannot be used|function count cannot be used",
    "SUM(lon) > 1": "function sum cannot be used",
    "ROW_NUMBER() OVER () = 1": "a window cannot be used",
    "random() < 0.5": "function random cannot be used",
    "COLUMNS(*) > 1": "a star cannot be used",
    "*": "a star cannot be used",
    "hour_of_day = ?": "a parameter cannot be used",
    "no_such_column > 3": "no column 'no_such_column'; its columns are user_id, lon",
    "hour_of_day": "is of type bigint; expected one SQL condition",
    "hour(kind) < 12": "'kind' is text in Table: write kind::TIMESTAMP or kind::DOUBLE",
    "no_such_function(lon)": "function no_such_function cannot be used",
    "lat = 'x'": "Could not convert string 'x' to DOUBLE",
    "day > 'bad'": 'invalid date field format: "bad"',
    "kind = 'home' AND hour_of_day IN (1, 'noon')": "Could not convert string 'noon' to INT64",
    "day BETWEEN '2020-01-01' AND '2020-13-01'": 'date field value out of range: "2020-13-01"',
    "day > 'bad'::DATE": 'invalid date field format: "bad"',
    "": "is of type tuple; expected one SQL condition",
}


@pytest.mark.parametrize(("where", "expected"), REFUSED.items(), ids=REFUSED)
def test_a_filter_that_is_no_condition_on_a_row_is_refused(where: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        mv.read_points(TABLE, where=where)
    assert "\n" not in str(caught.value)


def test_a_filter_works_on_files_and_sql(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(CSV)
    assert users(mv.read_points(path, where="hour(time::TIMESTAMP) < 12")) == 1
    assert users(mv.read_points(f"SELECT * FROM '{path}'", where="visits > 3")) == 1
    with pytest.raises(InputError, match=r"column 'visits' is text.*: write visits::DOUBLE"):
        mv.read_points(path, where="visits > 3")


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("age < '9'", "write age::DOUBLE"),
        ("'9' >= age", "write age::DOUBLE"),
        ("day > '2026-01-09'", "write day::TIMESTAMP"),
        ("lat::DOUBLE > 0 AND day BETWEEN '2026-01-01' AND '2026-02-01'", "write day::TIMESTAMP"),
    ],
)
def test_text_is_not_ordered_by_its_letters(where: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "user_id,lon,lat,age,day\nann,-73.9,40.7,10 years,5.1.2026\nbob,-74,40.8,9 years,10.1.2026\n"
    )
    with pytest.raises(InputError, match=hint):
        mv.read_points(path, where=where)
    assert users(mv.read_points(path, where="age = '9 years' AND day < 'x'")) == 1


def test_bad_rows_do_not_depend_on_the_filter() -> None:
    frame = TABLE.set_column(2, "lat", pa.array([40.7, None, 40.7, 99.0]))
    for where in ("hour_of_day IN (9, 11)", "FALSE"):
        with pytest.raises(InputError, match="row 2, column 'lat' is missing"):
            mv.read_points(frame, where=where).check()


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    "fails",
    [
        "kind::INTEGER = 1",
        "hour_of_day::TINYINT * hour_of_day::TINYINT * hour_of_day::TINYINT > 0",
        "regexp_matches('a', kind || '(')",
    ],
)
def test_a_filter_that_fails_on_a_row_leaves_it_out(fails: str, *, held: bool) -> None:
    # An error would tell, without noise and at no charge, that there is such a row.
    where = f"CASE WHEN user_id = 'ann' THEN {fails} ELSE TRUE END"
    points = mv.read_points(TABLE, where=where)
    with points.held_once() if held else contextlib.nullcontext(points) as table:
        assert users(table) == 2


@pytest.mark.parametrize("drop", [False, True])
def test_nan_in_a_file_is_found_though_its_statistics_leave_it_out(tmp_path: Path, *, drop: bool) -> None:
    lat = np.full(5000, 40.7)
    lat[77] = np.nan
    pq.write_table(
        pa.table({"user": np.arange(5000), "lon": np.full(5000, -74.0), "lat": lat}), tmp_path / "a.parquet"
    )
    points = mv.read_points(tmp_path / "a.parquet", on_bad_rows="drop" if drop else "fail")
    assert points.bad_rows()[0] == 1
    if drop:
        assert users(points) == 4999
        with pytest.warns(CuratorWarning), points.held_once() as held:
            assert users(held) == 4999
    else:
        with pytest.raises(InputError, match="row 78, column 'lat' is 'nan'"), points.held_once():
            pass


@pytest.mark.parametrize("lat", ["", "40,7,1", "north", "99", "nan"])
def test_bad_rows_are_dropped_where_that_is_asked_for(lat: str, tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(f'{CSV}bob,-73.95,"{lat}",1,2025-01-01 09:00\n')
    with pytest.raises(InputError, match="row 3, column 'lat' is"):
        mv.read_points(path).check()
    points = mv.read_points(path, on_bad_rows="drop")
    with pytest.warns(CuratorWarning, match=r"visits\.csv: dropped 1 of 3 rows, which cannot be used"):
        points.check()
    assert users(points) == 2


@pytest.mark.filterwarnings("ignore::mapveil_client.errors.CuratorWarning")
def test_a_dropped_row_changes_nothing_that_is_released() -> None:
    region = mv.Region.from_bbox(-74.03, 40.69, -73.88, 40.83)
    bad = pa.concat_tables([TABLE, pa.table({**TABLE.slice(0, 1).to_pydict(), "lat": [None]}, TABLE.schema)])
    first, second = (
        mv.release(points, "grid:4x4", region=region, epsilon=1, rng=3)
        for points in (mv.read_points(TABLE), mv.read_points(bad, on_bad_rows="drop"))
    )
    np.testing.assert_array_equal(first.values, second.values)
    assert first.metadata_json() == second.metadata_json()


def test_another_treatment_of_bad_rows_is_refused() -> None:
    other: Any = "keep"
    with pytest.raises(InputError, match="on_bad_rows must be fail or drop, got 'keep'"):
        mv.read_points(TABLE, on_bad_rows=other)


@pytest.mark.parametrize("accounted", [True, False])
@pytest.mark.parametrize("trust", ["central", "distributed", "local", "random-features"])
def test_bad_rows_are_refused_under_every_trust(trust: str, accounted: bool, tmp_path: Path) -> None:
    bad = pa.concat_tables([TABLE, pa.table({**TABLE.slice(0, 1).to_pydict(), "lat": [None]}, TABLE.schema)])
    region = mv.Region.from_bbox(-74.03, 40.69, -73.88, 40.83)
    account = mv.Account(ledger=tmp_path / "ledger.sqlite") if accounted else None
    epsilon = None if trust == "random-features" else 1
    with pytest.raises(InputError, match="column 'lat' is"):
        mv.release(
            mv.read_points(bad), "grid:4x4", region=region, epsilon=epsilon, trust=trust, account=account
        )
    if accounted:
        assert mv.Ledger(tmp_path / "ledger.sqlite").accounts() == ()


def test_a_table_of_nobody_is_said_to_its_curator_and_charged() -> None:
    region = mv.Region.from_bbox(-74.03, 40.69, -73.88, 40.83)
    with pytest.warns(CuratorWarning, match="has no rows in the cells .* so the map is about nobody"):
        heat = mv.release(mv.read_points(TABLE.slice(0, 0)), "grid:4x4", region=region, epsilon=1)
    assert heat.guarantee.account.after == 1


def test_rows_of_which_none_lies_in_the_region_are_said_to_their_curator() -> None:
    region = mv.Region.from_bbox(-74.03, 40.69, -73.88, 40.83)
    swapped = {"lon": TABLE["lat"], "lat": TABLE["lon"]}
    points = mv.read_points(
        TABLE.drop_columns(["lon", "lat"])
        .append_column("lon", swapped["lon"])
        .append_column("lat", swapped["lat"])
    )
    with pytest.warns(CuratorWarning, match="latitude and longitude swapped"):
        mv.release(points, "grid:4x4", region=region, epsilon=1, account=None)


_COUNTED = """
import sys, mapveil as mv
from mapveil.engines import user_sums
region = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
points = mv.read_points(sys.argv[1], where="hour(time) < 6 AND time < '2026-03-08'")
print(user_sums(points, mv.Quadtree(region, depth=2)).sums.sum() >> 28)
"""


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_filter_on_instants_keeps_the_same_rows_in_every_time_zone(tmp_path: Path, zone: str) -> None:
    moments = np.datetime64("2026-03-06T00:00:00", "us") + np.arange(72).astype("timedelta64[h]")
    users = np.arange(72)
    table = pa.table({"user_id": users, "lon": np.full(72, -73.95), "lat": np.full(72, 40.75)})
    time = pa.array(moments).cast(pa.timestamp("us", "UTC"))
    pq.write_table(table.append_column("time", time), tmp_path / "t.parquet")
    command = [sys.executable, "-c", _COUNTED, str(tmp_path / "t.parquet")]
    done = subprocess.run(command, env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["12"]  # the first six hours of two days in UTC


@pytest.mark.parametrize(
    "where",
    [
        *("accuracy > 100", "NOT (accuracy <= 100)", "accuracy <= 10", "accuracy = 5", "accuracy <> 5"),
        *("isnan(accuracy)", "NOT isnan(accuracy)", "abs(accuracy) > 100", "parts.accuracy > 100"),
        "accuracy BETWEEN 4 AND 6 OR lat < 0",
    ],
)
def test_a_row_of_one_user_does_not_decide_about_rows_of_others_by_the_statistics_of_a_file(
    tmp_path: Path, where: str
) -> None:
    """Those of a Parquet file leave NaN out, which DuckDB orders above every number."""
    accuracy = [float("nan") if at % 2 else 5.0 for at in range(100)] + [150.0]
    table = pa.table(
        {
            "user_id": range(101),
            "lon": [-74.0] * 101,
            "lat": [40.7] * 101,
            "accuracy": accuracy,
            "parts": [{"accuracy": each} for each in accuracy],
        }
    )
    kept = []
    for users_there in (100, 101):
        path = tmp_path / f"{users_there}.parquet"
        pq.write_table(table.slice(0, users_there), path)
        points = mv.read_points(path, where=where)
        with points.held_once() as held:
            kept.append((users(points), users(held)))
        assert kept[-1] == (users(mv.read_points(table.slice(0, users_there), where=where)),) * 2
    assert kept[1][0] - kept[0][0] in (0, 1)
