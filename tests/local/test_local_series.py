"""Series of randomized reports: each client draws its windows, and one epsilon covers all of its reports."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.local.local_series import LocalSeries
from mapveil.local.reported_cells import cells_in_windows
from mapveil.maps.measurement import EstimatedUsers
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=3)
WEEKS = mv.Windows(every="1w", start="2026-01-05", until="2026-02-02")


def visits(users: int = 4000, *, weeks: tuple[int, ...] = (0, 1, 2, 3)) -> mv.Points:
    """A row of each user in each week; in the last everybody is in the south-west."""
    rng = np.random.default_rng(1)
    user, week = np.repeat(np.arange(users), len(weeks)), np.tile(weeks, users)
    west, south, east, north = REGION.bbox
    lon, lat = rng.uniform(west, east, user.size), rng.uniform(south, north, user.size)
    lon = np.where(week == 3, (lon + 3 * west) / 4, lon)
    lat = np.where(week == 3, (lat + 3 * south) / 4, lat)
    return mv.Points.from_arrays(user, lon, lat, time=np.datetime64("2026-01-05") + 7 * week)


def release(points: mv.Points | None = None, **given: object) -> mv.SeriesMap:
    given = {"epsilon": 2, "trust": "local", "account": None, "rng": 3, **given}
    return mv.release_series(points or visits(), WEEKS, TILING, **given)


@pytest.fixture(scope="module")
def series() -> mv.SeriesMap:
    return release()


def test_one_epsilon_is_promised_for_all_reports(series: mv.SeriesMap) -> None:
    promise = series.guarantee
    assert (promise.model, promise.epsilon, promise.simulated) == ("local", 2, True)
    assert promise.bound is not None
    assert promise.bound.value == 1
    assert Assumes.PARTICIPATION_PUBLIC() in promise.assumptions
    assert series.values.sum() == pytest.approx(4000)
    np.testing.assert_allclose(series.by_window.sum(axis=0), series.values)


def test_clients_of_two_windows_halve_the_epsilon_of_a_report() -> None:
    made = LocalSeries(epsilon=1, windows=WEEKS, windows_per_user=2, outside="nearest")
    assert made.of_report.budget == Fraction(1, 2)
    assert made.of_report.on(Domain(TILING)).exact_epsilon() <= 0.5
    promise = made.guarantee()
    assert (promise.epsilon, promise.bound and promise.bound.value) == (1, 2)
    # A client without a row in a drawn window has none that could be the nearest.
    assert Assumes.PARTICIPATION_PUBLIC() in promise.assumptions
    assert release(windows_per_user=2).values.sum() == pytest.approx(8000)


def test_a_week_in_which_people_went_elsewhere_is_seen(series: mv.SeriesMap) -> None:
    row, col = TILING.lattice().row, TILING.lattice().col
    corner = (row >= row.max() * 3 // 4) & (col <= col.max() // 4)
    shares = series.by_window[:, corner].sum(axis=1) / series.by_window.sum(axis=1)
    assert shares[3] > 0.6
    assert shares[:3].max() < 0.3


def test_a_window_answers_questions_and_changes_are_called(series: mv.SeriesMap, tmp_path: Path) -> None:
    import shapely

    series.save(tmp_path / "series.parquet")
    read = mv.read_map(tmp_path / "series.parquet")
    assert isinstance(read, mv.SeriesMap)
    west, east = shapely.box(-74.03, 40.69, -73.965, 40.83), shapely.box(-73.965, 40.69, -73.90, 40.83)
    for each in (series, read):
        low, high = each.window("2026-W05").total(west).interval()
        assert low <= each.by_window[3].sum() <= high
        assert mv.changes(each.window(0), each.window(3), [west, east]).changed.tolist() == [True, True]
        assert not mv.changes(each.window(0), each.window(1), [west, east]).changed.any()
    for before, after in zip(series.window(1).measurements, read.window(1).measurements, strict=True):
        assert isinstance(before, EstimatedUsers)
        assert before.half_width(0.05) == after.half_width(0.05)
        np.testing.assert_array_equal(before.noisy, after.noisy)


def test_intervals_of_a_window_hold() -> None:
    import shapely

    west, missed = shapely.box(-74.03, 40.69, -73.965, 40.83), 0
    numbered = LocalSeries(epsilon=1, windows=WEEKS).numbered(visits(800))
    for seed in range(5):
        # The reports' cells are drawn first of a seed's stream, as in a release.
        truth = cells_in_windows(numbered, Domain(TILING), "most-visited", "drop", 1, Randomness(seed))
        made = LocalSeries(epsilon=1, windows=WEEKS).release(numbered, TILING, rng=seed, account=None)
        there = TILING.centres(truth.cells).lon < -73.965
        for window in range(4):
            low, high = made.window(window).total(west).interval()
            missed += not low <= (there & (truth.windows == window)).sum() <= high
    # Of 20 intervals of 95 % no more than 5 miss, but three times in ten thousand tests.
    assert missed <= 5


def test_the_windows_of_a_client_do_not_follow_from_its_data() -> None:
    """A client reports where it has a row in the window it drew: in a fourth of the cases whichever week that is."""
    for week in range(4):
        numbered = LocalSeries(epsilon=1, windows=WEEKS).numbered(visits(4000, weeks=(week,)))
        found = cells_in_windows(numbered, Domain(TILING), "random", "drop", 1, Randomness(5))
        assert set(found.windows) == {week}
        assert found.cells.size == pytest.approx(1000, abs=4.5 * 27.4)


def test_nobody_at_all_is_a_series_of_nobody() -> None:
    later = mv.Windows(every="1w", start="2031-01-06", until="2031-01-20")
    made = mv.release_series(
        visits(50), later, TILING, epsilon=1, trust="local", account=None, rng=1, options={"growth": 2}
    )
    assert made.by_window.tolist() == np.zeros((2, TILING.size)).tolist()
    assert any("nobody reported" in note for note in made.notes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"windows_per_user": 5}, "windows_per_user must be a whole number from 1 to 4"),
        ({"per": "user-week"}, r"per \(--per\) must be user under trust local"),
        ({"options": {"estimator": "simplex"}}, "estimator must be smoothed-em for a series"),
        ({"secure_sum": "protocol"}, "secure_sum"),
        (
            {"trust": "random-features"},
            r"trust \(--trust\) must be one of central, distributed, operators, local",
        ),
    ],
)
def test_what_cannot_be_released_is_said(given: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        release(**given)


def test_a_table_whose_windows_are_not_numbered_is_refused() -> None:
    with pytest.raises(InputError, match="windows are numbered"):
        LocalSeries(epsilon=1, windows=WEEKS).release(visits(20), TILING, account=None)


@pytest.mark.parametrize("users", [40, 400])
def test_fine_cells_and_few_reports_are_answered_with_bounds_as_wide_as_they_are(users: int) -> None:
    import shapely

    fine, quarter = mv.Quadtree(REGION, depth=5), shapely.box(-74.03, 40.69, -73.965, 40.76)
    points = visits(users, weeks=(0, 1, 3))
    made = mv.release_series(points, WEEKS, fine, epsilon=1, trust="local", account=None, rng=3)
    for week in (0, 1, 3):
        low, high = made.window(week).total(quarter).interval()
        assert high - low > made.by_window[week].sum()  # the reports tell no more than that
    assert made.window(2).total(quarter).interval() == (
        0,
        0,
    )  # who drew it has no row there, and sent nothing
    assert not mv.changes(made.window(0), made.window(2), [quarter]).changed.any()


def test_totals_of_all_windows_and_of_one_do_not_mix(series: mv.SeriesMap) -> None:
    """They are of the same reports; windows are of other clients each, so theirs do."""
    west, south, east, north = REGION.bbox
    zone = shapely.box(west, south, (west + east) / 2, north)
    whole, windows = series.total(zone), [series.window(at).total(zone) for at in (0, 1, 0)]
    for one, two in ((whole, windows[0]), (windows[1], whole)):
        with pytest.raises(InputError, match="of the same reports"):
            one - two
    both = windows[0] + windows[1]
    assert both.deviation**2 == pytest.approx(sum(each.deviation**2 for each in windows[:2]))
    assert (windows[0] + windows[2]).deviation == pytest.approx(2 * windows[0].deviation)
