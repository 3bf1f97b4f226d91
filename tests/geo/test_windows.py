"""Windows: the calendar, clocks that change, and what cannot be a window."""

from __future__ import annotations

import dataclasses
import re
import warnings
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mapveil as mv
from mapveil.geo.windowed_points import check_times, windowed, windows_of_rows
from mapveil.geo.windows import Windows
from mapveil_client.errors import CuratorWarning, InputError, ParameterError

# Rows before, between and after the windows are what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*rows lie in no window")


def numbers(windows: Windows, time: object, **columns: object) -> list[int]:
    """The window of each row that is in one, in the order of the users 0, 1, ...; -1 for a row in none."""
    time = np.asarray(time)
    place = np.zeros(time.size)
    points = mv.Points.from_arrays(np.arange(time.size), place, place, time=time, **columns)
    made = windowed(points, windows)
    check_times(made)
    with made.held_once() as held, duckdb.connect() as opened:
        found = dict(opened.execute(f"SELECT user_id, label FROM ({held.scan(opened)})").fetchall())
    return [found.get(user, -1) for user in range(time.size)]


def hours(first: str, last: str) -> list[str]:
    """Every whole hour of UTC, as text that says so."""
    step = np.timedelta64(1, "h")
    return [
        f"{instant}:00:00Z"
        for instant in np.arange(np.datetime64(first, "h"), np.datetime64(last, "h"), step)
    ]


def test_calendar_weeks_have_iso_names_across_a_new_year() -> None:
    weeks = Windows(every="1w", start="2020-12-21", until="2021-01-18")
    assert weeks.names == ("2020-W52", "2020-W53", "2021-W01", "2021-W02")
    assert Windows(every="1w", start="2026-01-07", until="2026-01-21").names == ("2026-01-07", "2026-01-14")


def test_months_are_as_long_as_they_are() -> None:
    months = Windows(every="1mo", start="2024-01-01", until="2024-04-01")
    assert months.names == ("2024-01", "2024-02", "2024-03")
    days = ["2024-01-01", "2024-01-31", "2024-02-01", "2024-02-29", "2024-03-31", "2024-04-01"]
    assert numbers(months, np.array(days, "M8[D]")) == [0, 0, 1, 1, 2, -1]
    quarters = Windows(every="3mo", start="2024-01-01", until="2025-01-01")
    assert numbers(quarters, np.array(["2024-03-31", "2024-04-01", "2024-12-31"], "M8[D]")) == [0, 1, 3]


def test_days_of_a_clock_that_changes_have_23_and_25_hours() -> None:
    # Paris: 2026-03-29 02:00 becomes 03:00; 2026-10-25 03:00 becomes 02:00.
    spring = Windows(every="1d", start="2026-03-29", until="2026-03-31", zone="Europe/Paris")
    assert numbers(spring, hours("2026-03-28T20", "2026-03-30T22")) == [-1] * 3 + [0] * 23 + [1] * 24
    autumn = Windows(every="1w", start="2026-10-19", until="2026-10-26", zone="Europe/Paris")
    assert numbers(autumn, hours("2026-10-18T20", "2026-10-26T01")) == [-1] * 2 + [0] * 169 + [-1] * 2


def test_recurring_times_follow_the_clock_of_the_zone() -> None:
    # Sunday 23:30 UTC is Monday morning in Paris.
    instant = ["2026-01-04T23:30:00+00:00"]
    assert numbers(Windows(by="hour-of-week"), instant) == [6 * 24 + 23]
    assert numbers(Windows(by="hour-of-week", zone="Europe/Paris"), instant) == [0]
    assert numbers(Windows(by="weekend"), instant) == [1]
    assert numbers(Windows(by="weekday", zone="Europe/Paris"), instant) == [0]
    assert Windows(by="hour-of-week").count == 168


def test_periods_and_categories_are_every_pair() -> None:
    both = Windows(every="1d", start="2026-01-05", until="2026-01-07", by="label", values=("in", "out"))
    assert both.names == ("2026-01-05 in", "2026-01-05 out", "2026-01-06 in", "2026-01-06 out")
    days = np.array(["2026-01-05", "2026-01-06", "2026-01-06", "2026-01-06"], "M8[D]")
    with pytest.warns(CuratorWarning, match="1 of 4 rows hold a value of column 'label' that is not listed"):
        assert numbers(both, days, label=["out", "in", "out", "else"]) == [1, 2, 3, -1]
    assert Windows.from_dict(both.to_dict()) == both


def test_texts_of_days_and_clocks_are_read() -> None:
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07")
    assert numbers(days, ["2026-01-05", "2026-01-06"]) == [0, 1]
    here = Windows(every="1d", start="2026-01-05", until="2026-01-07", zone="Asia/Tokyo")
    assert numbers(here, ["2026-01-05 23:59:59", "2026-01-06T00:00:00"]) == [0, 1]


@pytest.mark.parametrize(
    ("time", "zone", "message"),
    [
        (["2026-01-05 10:00:00"], None, "state no time zone"),
        (np.array(["2026-01-05T10"], "M8[us]"), None, "state no time zone"),
        (["2026-01-05 10:00:00", "2026-01-05T10:00:00Z"], "UTC", "some do not"),
        (["2026-01-05", "2026-01-05T10:00:00Z"], "UTC", "some do not"),
        ([1767607200], None, "expected dates or times"),
        (
            ["2026-01-05", "yesterday"],
            None,
            "row 2, column 'time' is 'yesterday'; expected a date or time such as",
        ),
        (["2026-01-05 10:00:00 UTC", "2026-01-05 10:00:00"], "UTC", "some do not"),
    ],
)
def test_times_that_tell_no_window_are_refused(time: object, zone: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        numbers(Windows(every="1d", start="2026-01-05", until="2026-01-07", zone=zone), time)


@pytest.mark.parametrize(
    "time",
    [
        "31/01/2026 08:30",
        "01/31/2026 8:30",
        "23.01.2026",
        "05 Jan 2026",
        "2026-01-05 08:30 PM",
        "2026-01-05 08:30 Europe/Paris",
        "1767607200",
        "20260105T080000",
    ],
)
def test_times_of_other_formats_are_shown_before_a_time_zone_is_asked_for(time: str) -> None:
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07")
    message = (
        rf"column 'time' is '{re.escape(time)}'; expected a date or time such as 2026-01-31 08:30; 2 of 2"
    )
    with pytest.raises(InputError, match=message):
        numbers(days, [time, time])


@pytest.mark.parametrize(
    "time", ["2026-01-05T08:30", "2026/01/05 08:30:01.5", " 2026-1-5 8:30 ", "2026-01-05"]
)
def test_dates_and_times_of_iso_8601_are_read(time: str) -> None:
    assert numbers(Windows(every="1d", start="2026-01-05", until="2026-01-07", zone="UTC"), [time]) == [0]


def test_dropped_rows_are_those_without_a_time_and_those_whose_time_is_not_read(tmp_path: Path) -> None:
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07")
    path = tmp_path / "visits.csv"
    path.write_text("user,lon,lat,time\n1,0,0,2026-01-05\n2,0,0,\n3,0,0,yesterday\n")
    numbered = windowed(mv.read_points(path, on_bad_rows="drop"), days)
    with pytest.warns(CuratorWarning, match="dropped 2 of 3 rows"), numbered.held_once() as held:
        assert held.arrays().users.size == 1


def test_a_table_of_which_every_row_would_be_dropped_is_refused_before_the_charge(tmp_path: Path) -> None:
    account = mv.Account("people", tmp_path / "ledger.sqlite")
    region = mv.Region.from_bbox(0, 0, 1, 1)
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07")
    for time, lon in (("01/05/2026", 0.5), ("2026-01-05", 500.0)):
        points = mv.Points.from_arrays([1, 2], [lon, lon], [0.5, 0.5], time=[time, time])
        dropping = dataclasses.replace(points, on_bad_rows="drop")
        with pytest.raises(InputError, match="2 of 2 rows cannot be used") as caught:
            mv.release_series(dropping, days, mv.Quadtree(region, depth=2), epsilon=1, account=account)
        assert "on_bad_rows" not in str(caught.value)
    assert mv.Ledger(tmp_path / "ledger.sqlite").entries() == ()


@pytest.mark.parametrize("name", ["UTC", " UTC", "GMT", " gmt", "Z", " Z", " z "])
def test_a_text_that_names_utc_is_read_by_the_clock_of_the_windows(name: str) -> None:
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07", zone="Europe/Paris")
    assert numbers(days, [f"2026-01-05 22:30:00{name}", f"2026-01-05 23:30:00.5{name}"]) == [0, 1]
    assert numbers(Windows(by="hour"), [f"2026-01-05T22:30{name}"]) == [22]


def test_zoned_nanoseconds_are_moments() -> None:
    moments = np.array(["2026-01-05T22:30:00.000000001", "2026-01-05T23:30"], "datetime64[ns]")
    time = pa.array(moments, pa.timestamp("ns", "UTC"))
    table = pa.table({"user": [0, 1], "lon": [0.0, 0.0], "lat": [0.0, 0.0], "time": time})
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07", zone="Europe/Paris")
    with windowed(mv.read_points(table), days).held_once() as held, duckdb.connect() as opened:
        found = opened.execute(f"SELECT user_id, label FROM ({held.scan(opened)}) ORDER BY 1").fetchall()
    assert found == [(0, 0), (1, 1)]


def test_an_offset_that_no_clock_has_is_no_time() -> None:
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07")
    with pytest.raises(InputError, match=r"is '2026-01-05T10:00:00\+99:99'; expected a date or time"):
        numbers(days, ["2026-01-05T10:00:00+99:99"])


@pytest.mark.parametrize("name", ["America/New_York", "EST", "Etc/GMT", "CEST", "GMT+05", "PM UTC"])
@pytest.mark.parametrize("other", ["2026-01-05 20:30:00 UTC", "2026-01-05 20:30:00"])
def test_other_names_of_zones_are_no_times(name: str, other: str) -> None:
    days = Windows(every="1d", start="2026-01-05", until="2026-01-07", zone="Europe/Paris")
    with pytest.raises(InputError):
        numbers(days, [other, f"2026-01-05 20:30:00 {name}"])


@pytest.mark.parametrize("zone", ["posix/Europe/Paris", "right/Europe/Paris", "localtime"])
def test_a_zone_that_reads_no_times_of_tables_is_refused(zone: str) -> None:
    try:
        windows = Windows(every="1d", start="2026-01-05", until="2026-01-07", zone=zone)
    except ParameterError:
        pytest.skip("the machine has no such zone")
    with pytest.raises(ParameterError, match="by which no times of a table can be read"):
        numbers(windows, ["2026-01-05"])


def category(values: tuple[str, ...], kind: object) -> list[int]:
    size = len(kind)
    frame = pd.DataFrame({"user": range(size), "lon": 0.0, "lat": 0.0, "kind": kind})
    made = windowed(mv.read_points(frame), Windows(by="kind", values=values))
    with made.held_once() as held, duckdb.connect() as opened:
        found = dict(opened.execute(f"SELECT user_id, label FROM ({held.scan(opened)})").fetchall())
    return [found.get(user, -1) for user in range(size)]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (("1", "2"), np.array([1.0, 2.0, 3.0]), [0, 1, -1]),
        (("1.0", "2.0"), np.array([1, 2, 3]), [0, 1, -1]),
        (("0.5", "1e3"), np.array([0.5, 1000.0, np.nan]), [0, 1, -1]),
        (("1.6", "2"), np.array([2, 1]), [1, -1]),
        (("True", "False"), np.array([True, False]), [0, 1]),
        (("FALSE", "true"), np.array([True, False]), [1, 0]),
        (("1", "0"), np.array([True, False]), [0, 1]),
        (("1", "other"), np.array([1.0, 7.0]), [0, -1]),
        (("work", "play"), ["play", "work"], [1, 0]),
    ],
)
def test_a_category_is_compared_as_the_type_of_its_column(
    values: tuple[str, ...], kind: object, expected: list[int]
) -> None:
    assert category(values, kind) == expected


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (("work", "play"), np.array([1.0, 2.0]), "type double, and none of the values 'work', 'play'"),
        (("ja", "nein"), np.array([True]), "type boolean, and none of the values"),
        (("1", "1.0"), np.array([1.0, 2.0]), "are one; give each once"),
        (("True", "1"), np.array([True]), "are one; give each once"),
    ],
)
def test_values_that_no_row_can_have_are_refused(values: tuple[str, ...], kind: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        category(values, kind)


def test_days_tell_no_hours_and_no_column_tells_nothing() -> None:
    with pytest.raises(InputError, match="windows of hours need times"):
        numbers(Windows(by="hour"), np.array(["2026-01-05"], "M8[D]"))
    with pytest.raises(InputError, match="no column of times"):
        windowed(mv.Points.from_arrays([1], [0.0], [0.0]), Windows(by="hour"))
    with pytest.raises(InputError, match="no column 'kind'"):
        windowed(mv.Points.from_arrays([1], [0.0], [0.0]), Windows(by="kind", values=("a",)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "every or by is required"),
        ({"every": "1w"}, "would tell when somebody was there"),
        ({"every": "7", "start": "2026-01-05", "until": "2026-01-12"}, "a length such as"),
        ({"every": "1w", "start": "2026-01-05", "until": "2026-01-15"}, "2026-01-12 or 2026-01-19"),
        ({"every": "1w", "start": "2026-01-05", "until": "2026-01-08"}, "such as 2026-01-12; got 2026-01-08"),
        ({"every": "1w", "start": "2026-01-05", "until": "2026-01-05"}, "after start 2026-01-05"),
        ({"every": "1w", "start": "5.1.2026", "until": "2026-01-12"}, "dates such as"),
        ({"every": "1d", "start": "2026-01-05T06:00", "until": "2026-01-06"}, "must be days"),
        ({"every": "1mo", "start": "2026-01-05", "until": "2026-02-05"}, "first of a month"),
        ({"every": "1h", "start": "2020-01-01", "until": "2026-01-01"}, "window"),
        ({"every": "9999w", "start": "2026-01-05", "until": "9999-01-01"}, "end before the year 10000"),
        (
            {"every": "5mo", "start": "9990-01-01", "until": "9999-12-01"},
            "one of 5mo from 9999-08-01 does not",
        ),
        ({"by": "hour", "start": "2026-01-05"}, "start and until are of periods: give every=LENGTH too"),
        ({"by": "kind"}, "a public list"),
        ({"by": "kind", "values": ("a", "a")}, "different texts, got 'a, a'"),
        ({"by": "kind", "values": "work"}, "a list of texts, such as .*, got 'work'"),
        ({"by": "kind", "values": [1, 2]}, r"a list of texts, such as .*, got \[1, 2\]"),
        ({"by": "kind", "values": ("a", "a ")}, "different texts"),
        ({"by": "hour", "values": ("a",)}, "left out"),
        ({"by": "hour", "zone": "Mars/Olympus"}, "a name such as Europe/Paris"),
    ],
)
def test_what_cannot_be_windows_is_said(given: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Windows(**given)


def test_only_windows_that_divide_a_week_lie_in_weeks() -> None:
    assert Windows(every="1d", start="2026-01-05", until="2026-01-19").week_of.tolist() == [0] * 7 + [1] * 7
    for refused in (Windows(every="2w", start="2026-01-05", until="2026-02-02"), Windows(by="weekend")):
        with pytest.raises(ParameterError, match="do not divide a week"):
            _ = refused.week_of


def test_an_unknown_window_is_refused_with_the_names_that_there_are() -> None:
    for count, names in ((4, "a, b, c, d"), (5, "a, b, c, ..., e")):
        with pytest.raises(ParameterError, match=f"window must be one of {names}; got 'z'"):
            Windows(by="kind", values=tuple("abcde"[:count])).index("z")


def test_days_beside_times_are_counted_at_midnight_and_the_curator_is_told() -> None:
    texts = ["2026-01-05", "2026-01-05 08:30", "2026-01-05", "2026-01-05 09:00"]
    table = pd.DataFrame({"user_id": range(4), "lon": -74.0, "lat": 40.7, "time": texts})
    hours = Windows(every="1h", start="2026-01-05", until="2026-01-06", zone="UTC")
    with pytest.warns(
        CuratorWarning, match="2 of 4 times in column 'time' are days alone.*at 00:00; keep this private"
    ):
        assert windows_of_rows(windowed(mv.read_points(table, time="time"), hours)) == (0, 8, 9)


@pytest.mark.parametrize(
    "zone", ["America/Vancouver", "Africa/Casablanca", "Europe/Chisinau", "Europe/Paris"]
)
def test_hours_of_a_clock_of_which_two_databases_differ_are_refused(zone: str) -> None:
    """Python's edges and DuckDB's readings: rows of half past eight are in the hour from eight, or refused."""
    table = pd.DataFrame({"user_id": [1], "lon": -74.0, "lat": 40.7, "time": ["2026-12-01 08:30"]})
    hours = Windows(every="1h", start="2026-12-01", until="2026-12-02", zone=zone)
    refused = ""
    try:
        found = windows_of_rows(windowed(mv.read_points(table, time="time"), hours))
    except ParameterError as error:
        refused = str(error)
    if zone == "Europe/Paris" or not refused:
        assert [hours.names[at] for at in found] == ["2026-12-01T08:00"]
    else:
        assert "windows of hours need one clock" in refused


@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        (
            0,
            1200,
            r"none of its 1,200 rows lies in a window: they are from 2009-10-19 to 2009-10-19, so a map .*nobody",
        ),
        (8, 2, "2 of its 10 rows lie in no window: they are from 2009-10-19 to 2026-01-06"),
        (9, 1, None),
        (0, 0, None),
    ],
)
def test_rows_that_lie_in_no_window_are_counted_for_the_curator(
    inside: int, outside: int, message: str | None
) -> None:
    kept = inside + outside
    when = ["2026-01-06T08:00Z"] * inside + ["2009-10-19T08:00Z"] * outside + ["2009-10-18T08:00Z"] * 5
    frame = pd.DataFrame({"user": range(kept + 5), "lon": 0.0, "lat": 0.0, "time": when, "kind": "a"})
    points = mv.read_points(frame, where=f"user < {kept}")  # rows that the filter leaves out are in no count
    for by in ({}, {"by": "hour"}, {"by": "kind", "values": ("a",)}):
        weeks = Windows(every="1w", start="2026-01-05", until="2026-01-12", **by)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            check_times(windowed(points, weeks))
        said = [str(each.message) for each in told if each.category is CuratorWarning]
        assert len([each for each in said if "window:" in each]) == (message is not None)
        assert message is None or re.search(message, said[0]), said
    assert windows_of_rows(windowed(points, weeks)) == ((0,) if inside else ())
