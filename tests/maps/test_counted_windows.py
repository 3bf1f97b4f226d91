"""Maps that count users by different rules are not compared, and a window of a live series tells who may be missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.analysis.zone_changes import both_note, changes
from mapveil.formats.geoparquet import write_geoparquet
from mapveil.formats.read_map import read_map
from mapveil.maps.counted_windows import are_one_series, check_counted_alike, exhaustion_note, length_note
from mapveil.maps.density_map import DensityMap
from mapveil.maps.series_map import SeriesMap
from mapveil.mechanisms.live_series import LiveSeries
from mapveil.pictures.release_sheet import inspect
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=3)
SPAN = {"start": "2026-01-05", "until": "2026-02-02"}
WEEKS = mv.Windows(every="1w", **SPAN)
ZONES = [shapely.box(-74.03, 40.69, -73.965, 40.83), shapely.box(-73.965, 40.69, -73.90, 40.83)]


def visits() -> mv.Points:
    """In each of four weeks the same 300 people and 300 others, at the same places."""
    rng = np.random.default_rng(1)
    lon, lat = np.tile(rng.uniform(-74.03, -73.90, 600), 4), np.tile(rng.uniform(40.69, 40.83, 600), 4)
    week, person = np.divmod(np.arange(2400), 600)
    user = np.where(person < 300, person, 1000 * (week + 1) + person)
    return mv.Points.from_arrays(user, lon, lat, time=np.datetime64("2026-01-05") + 7 * week)


def series(windows: mv.Windows = WEEKS, seed: int = 1, **given: object) -> SeriesMap:
    return mv.release_series(visits(), windows, TILING, epsilon=2, account=None, rng=seed, **given)


def live(path: Path, **given: object) -> tuple[LiveSeries, list[DensityMap]]:
    made = LiveSeries.start(path, "city", WEEKS, TILING, epsilon=2, **given)
    return made, [made.add(visits(), name) for name in WEEKS.names]


def test_series_that_count_users_differently_are_not_compared() -> None:
    default = series()
    most, pooled, longer = series(windows_per_user=4), default, series(mv.Windows(every="2w", **SPAN))
    for one, two, message in (
        (
            default.window(1),
            most.window(1),
            "1 divided over 4 windows in one and 1 in each of at most 4 of 4",
        ),
        (default.window(0), longer.window(0), "count users differently"),
        (pooled, default.window(1), "1 over all windows together in one and 1 divided over 4"),
        (pooled, most, "count users differently"),
        (
            series(windows_per_user=1).window(0),
            series(windows_per_user=2).window(0),
            "at most 1 of 4 windows in one and 1 in each of at most 2 of 4",
        ),
        (
            series(per="user-week").window(0),
            series(mv.Windows(every="1d", **SPAN), per="user-week").window(0),
            "different windows: every 1w and every 1d",
        ),
    ):
        with pytest.raises(InputError, match=message):
            changes(one, two, ZONES)
        with pytest.raises(InputError, match=r"users differently|different windows"):
            check_counted_alike(two, one)
    changes(default.window(1), default.window(2), ZONES)
    changes(default.window(1), series(seed=2).window(1), ZONES)
    changes(default, series(seed=2), ZONES)


def test_a_window_beyond_the_windows_of_a_user_says_who_may_be_missing(tmp_path: Path) -> None:
    made, maps = live(tmp_path / "city.series", windows_per_user=2)
    assert [len(exhaustion_note(each)) for each in maps] == [0, 0, 1, 1]
    write_geoparquet(maps[2], tmp_path / "map.parquet")
    for late in (maps[2], made.window(WEEKS.names[2]), read_map(tmp_path / "map.parquet")):
        (note,) = exhaustion_note(late)
        assert "2026-W04 is window 3 of a live series, and a user counts only in the first 2 windows" in note
        assert f"WARNING: {note}" in late.notes
        assert note in changes(maps[1], late, ZONES).zones.notes
    assert "a fall may be exhaustion" in str(inspect(tmp_path / "map.parquet"))
    assert not any("exhaustion" in note for note in changes(maps[0], maps[1], ZONES).zones.notes)


def test_windows_that_are_passed_over_use_up_nobody(tmp_path: Path) -> None:
    made = LiveSeries.start(tmp_path / "city.series", "city", WEEKS, TILING, epsilon=2, windows_per_user=2)
    made.add(visits(), WEEKS.names[0])
    assert exhaustion_note(made.add(visits(), WEEKS.names[3])) == ()


def test_two_windows_of_one_series_cost_its_epsilon_and_of_two_series_both(tmp_path: Path) -> None:
    (_, one), (_, two) = live(tmp_path / "one.series"), live(tmp_path / "two.series")
    assert "of one series, so a user of both is protected by its epsilon 2" in both_note(one[0], one[1])[0]
    assert "epsilon 4, those of both maps together" in both_note(one[0], two[1])[0]
    runs = [each for _, maps in [live(tmp_path / "runs.series", w_event=2)] for each in maps]
    assert are_one_series(runs[0], runs[1])
    said = "its epsilon 2 is for one window-run, and those of several window-runs of one user add up"
    assert said in both_note(runs[0], runs[3])[0]
    assert exhaustion_note(runs[3]) == ()


@pytest.mark.filterwarnings("ignore:.*has no rows in the windows:mapveil_client.errors.CuratorWarning")
def test_windows_of_unequal_length_are_told() -> None:
    def note(windows: mv.Windows, *names: str) -> str:
        maps = [mv.release_series(visits(), windows, TILING, epsilon=2, account=None)] * 2
        one, two = (each.window(name) for each, name in zip(maps, names, strict=True))
        return "".join(length_note(one, two, names))

    paris = mv.Windows(every="1d", start="2026-03-28", until="2026-03-31", zone="Europe/Paris")
    assert "have 24 and 23 hours" in note(paris, "2026-03-28", "2026-03-29")
    assert note(paris, "2026-03-28", "2026-03-30") == ""
    assert "have 5 and 2 days in each week" in note(mv.Windows(by="weekend"), "working day", "weekend")
    months = mv.Windows(every="1mo", start="2026-01-01", until="2026-03-01", by="weekday")
    assert "have 4 and 5 days" in note(months, "2026-01 Monday", "2026-01 Thursday")
    assert note(months, "2026-01 Monday", "2026-02 Monday") == ""


def test_windows_of_one_charged_series_are_of_one_series(tmp_path: Path) -> None:
    ledger = mv.Account(ledger=mv.Ledger(tmp_path / "ledger.sqlite"))
    charged = mv.release_series(visits(), WEEKS, TILING, epsilon=1, account=ledger)
    assert "of one series" in both_note(charged.window(0), charged.window(1))[0]
