"""Windows of hours where clocks change: Python and DuckDB against a walk through time by the minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.geo.windowed_points import windowed
from mapveil.geo.windows import Windows
from mapveil.mechanisms.multiscale_series import MultiscaleSeries

MINUTE = timedelta(minutes=1)
CHANGES = [  # days on which a clock changes: by an hour at 01:00 to 03:00 or at midnight, by half an hour, by two
    ("Europe/Paris", "2026-03-29"),
    ("Europe/Paris", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("America/Havana", "2026-11-01"),
    ("Antarctica/Troll", "2026-10-25"),
    ("Asia/Kathmandu", "2026-10-25"),
]


def walked(zone: str, start: datetime, until: datetime, hours: int) -> list[datetime]:
    """Edges of the windows: the moments at which a clock that is watched every minute shows one, or is set past it."""
    clock, step = ZoneInfo(zone), timedelta(hours=hours)
    moment, end = (
        day.replace(tzinfo=UTC) + shift for day, shift in ((start, -15 * step / hours), (until, step))
    )
    shown, edges = moment.astimezone(clock).replace(tzinfo=None), {}
    while moment < end + timedelta(hours=15):
        moment += MINUTE
        before, shown = shown + MINUTE, moment.astimezone(clock).replace(tzinfo=None)
        passed = [before + k * MINUTE for k in range((shown - before) // MINUTE)]
        for reading in (*passed, shown):
            on_edge = start <= reading <= until and not (reading - start) % step
            if on_edge and (reading not in edges or moment - edges[reading][-1] >= step):
                edges.setdefault(reading, []).append(moment)
    first, last = edges[start][0], edges[until][0]
    return sorted({moment for each in edges.values() for moment in each if first <= moment <= last})


def sql_numbers(windows: Windows, times: object) -> list[int]:
    """The window of each row of a table, -1 for none."""
    size = len(times)
    points = mv.Points.from_arrays(np.arange(size), np.zeros(size), np.zeros(size), time=times)
    with windowed(points, windows).held_once() as held, duckdb.connect() as opened:
        found = dict(opened.execute(f"SELECT user_id, label FROM ({held.scan(opened)})").fetchall())
    return [found.get(user, -1) for user in range(size)]


@settings(max_examples=25, deadline=None)
@given(
    change=st.sampled_from(CHANGES),
    hours=st.sampled_from([1, 2, 3, 6, 12]),
    before=st.integers(0, 1),
    groups=st.sampled_from([None, "weekday"]),
    seed=st.integers(0, 99),
)
@example(("Europe/Paris", "2026-10-25"), 1, 0, None, 0)
@example(("Australia/Lord_Howe", "2026-10-04"), 1, 0, None, 0)
def test_windows_of_hours_are_those_of_a_clock_that_is_watched(
    change: tuple[str, str], hours: int, before: int, groups: str | None, seed: int
) -> None:
    zone, day = change[0], datetime.fromisoformat(change[1])
    start, until = day - timedelta(days=before), day + timedelta(days=1)
    windows = Windows(
        every=f"{hours}h", start=f"{start:%Y-%m-%d}", until=f"{until:%Y-%m-%d}", zone=zone, by=groups
    )
    edges = walked(zone, start, until, hours)
    each = 1 if groups is None else 7
    assert windows.count == each * (len(edges) - 1)
    assert len(set(windows.names)) == windows.count
    assert [windows.ends(each * at) for at in range(len(edges) - 1)] == [
        edge.timestamp() for edge in edges[1:]
    ]
    drawn = np.random.default_rng(seed).integers(-7200, 60 * 3600, 40) + int(edges[0].timestamp())
    moments = np.unique([*drawn, *(int(edge.timestamp()) + shift for edge in edges for shift in (-1, 0, 1))])
    clock = ZoneInfo(zone)
    expected = []
    for moment in moments.tolist():
        inside = [
            at
            for at, (low, high) in enumerate(pairwise(edges))
            if low.timestamp() <= moment < high.timestamp()
        ]
        group = datetime.fromtimestamp(moment, clock).weekday() if groups else 0
        expected.append(each * inside[0] + group if inside else -1)
    assert windows.numbers(moments.astype(float)).tolist() == expected
    texts = [datetime.fromtimestamp(moment, UTC).isoformat() for moment in moments.tolist()]
    assert sql_numbers(windows, texts) == expected


@pytest.mark.parametrize(
    ("day", "count", "names"),
    [
        ("2026-03-29", 23, ["2026-03-29T01:00", "2026-03-29T03:00", "2026-03-29T04:00"]),
        ("2026-10-25", 25, ["2026-10-25T01:00", "2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00"]),
        ("2026-10-26", 24, ["2026-10-26T01:00", "2026-10-26T02:00", "2026-10-26T03:00"]),
    ],
)
def test_every_hour_of_a_day_is_one_window_of_one_name(day: str, count: int, names: list[str]) -> None:
    until = datetime.fromisoformat(day) + timedelta(days=1)
    hours = Windows(every="1h", start=day, until=f"{until:%Y-%m-%d}", zone="Europe/Paris")
    assert hours.count == count
    assert list(hours.names[1:4]) == names
    assert set(np.diff([hours.ends(at) for at in range(count)])) == {3600.0}
    if count == 25:
        assert hours.title(2).endswith(": 25 October 2026 02:00+02:00 to 02:00+01:00, Europe/Paris")


def test_times_without_an_offset_are_in_the_second_of_two_hours() -> None:
    back = Windows(every="1h", start="2026-10-25", until="2026-10-26", zone="Europe/Paris")
    texts = ["2026-10-25 01:59", "2026-10-25 02:00", "2026-10-25 02:59", "2026-10-25 03:00"]
    assert sql_numbers(back, texts) == [1, 3, 3, 4]
    on = Windows(every="1h", start="2026-03-29", until="2026-03-30", zone="Europe/Paris")
    assert sql_numbers(on, ["2026-03-29 01:30", "2026-03-29 02:30", "2026-03-29 03:30"]) == [1, 2, 2]


def test_hours_that_a_clock_repeats_are_noted() -> None:
    hours = {"every": "1h", "zone": "America/New_York"}
    autumn = Windows(start="2010-11-07", until="2010-11-08", **hours)
    (note,) = autumn.clock_notes
    assert note.startswith("the clock of America/New_York repeats 2010-11-07T01:00: two windows")
    for quiet in (
        Windows(start="2010-03-14", until="2010-03-15", **hours),
        Windows(every="1d", start="2010-11-07", until="2010-11-08", zone="America/New_York"),
        Windows(by="hour", zone="America/New_York"),
        Windows(every="3h", start="2010-11-07", until="2010-11-08", zone="America/New_York"),
    ):
        assert quiet.clock_notes == ()
    region = mv.Region.from_bbox(0, 0, 1, 1)
    times = ["2010-11-07 03:30", "2010-11-07 05:00"]
    points = mv.Points.from_arrays([1, 2], [0.5, 0.5], [0.5, 0.5], time=times)
    series = mv.release_series(points, autumn, mv.Quadtree(region, depth=2), epsilon=1, account=None, rng=1)
    assert note in series.notes


def test_a_repeated_hour_is_in_the_same_hour_of_the_week() -> None:
    profile = Windows(by="hour-of-week", zone="Europe/Paris")
    texts = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]
    sunday = 6 * 24
    assert sql_numbers(profile, texts) == [sunday + 2, sunday + 2, sunday + 1, sunday + 3]


def test_weeks_of_hours_are_those_of_the_clock() -> None:
    """A user counts 1 in each week by the clock, also after a week of 167 or 169 hours."""
    year = Windows(every="1h", start="2026-03-23", until="2026-04-13", zone="Europe/Paris")
    assert np.bincount(year.week_of).tolist() == [167, 168, 168]
    series = MultiscaleSeries(windows=year, per="user-week", epsilon=1)
    assert series.parts is not None
    with duckdb.connect() as opened:
        sql = f"SELECT {series.parts.sql} FROM range({year.count}) AS labels(label) ORDER BY label"
        assert [part for (part,) in opened.execute(sql).fetchall()] == year.week_of.tolist()
