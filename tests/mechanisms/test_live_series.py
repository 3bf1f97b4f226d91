"""Live series: users run out of windows, nothing is spent twice, and late or repeated windows are refused."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import mapveil as mv
from mapveil.engines import UNIT
from mapveil.mechanisms import live_series
from mapveil.mechanisms.live_series import LiveSeries
from mapveil.privacy import ledger_chain
from mapveil_client.errors import BudgetExceeded, CuratorWarning, InputError, ParameterError, PromiseError

from .city_series import NAMES, TILING, WEEKS, started, visits

# A window whose users have all run out has no rows, of which the curator is told.
pytestmark = pytest.mark.filterwarnings("ignore::mapveil_client.errors.CuratorWarning")


def test_repeated_late_and_unknown_windows_are_refused_with_the_reason(tmp_path: Path) -> None:
    series = started(tmp_path / "city.series")
    series.add(visits(np.arange(30), 1), NAMES[1])
    for window, message in (
        (NAMES[1], "released already"),
        (NAMES[0], "is late"),
        ("2027-W01", "must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            series.add(visits(np.arange(30), 1), window)
    series.add(visits(np.arange(30), 3), NAMES[3])
    with pytest.raises(InputError, match="all 4 windows"):
        series.add(visits(np.arange(30), 3))
    with pytest.raises(InputError, match="was not released"):
        series.window(NAMES[0])


def test_without_a_name_a_window_is_released_only_where_every_row_lies_in_the_next(tmp_path: Path) -> None:
    series = started(tmp_path / "city.series")
    first = visits(np.arange(30), 0)
    series.add(first)
    several = mv.Points.from_arrays(
        np.arange(2),
        [-74.0, -74.0],
        [40.7, 40.7],
        time=np.array(["2026-01-12", "2026-01-20"], "datetime64[D]"),
    )
    outside = visits(np.arange(30), 9)
    for points, message in (
        (
            first,
            "lie in 2026-W02 .released already., but the next window is 2026-W03; to write its map again: mapveil "
            r"series map .*city.series 2026-W02 -o FILE\. .*keep this message private",
        ),
        (several, "lie in 2026-W03, 2026-W04, but the next window is 2026-W03"),
        (visits(np.arange(30), 2), "lie in 2026-W04, but the next .*which passes over 2026-W03 for good"),
        (outside, "lie in no window of the series.* window=2026-W03 and nobody=True. Nothing was released"),
    ):
        with pytest.raises(InputError, match=message):
            series.add(points)
    assert series.status().released == NAMES[:1]
    series.add(several, NAMES[1])
    series.add(outside, NAMES[2], nobody=True)
    assert series.status().released == NAMES[:3]


def test_rows_of_a_window_that_was_passed_over_are_not_advised_to_name_it(tmp_path: Path) -> None:
    series = started(tmp_path / "city.series")
    series.add(visits(np.arange(30), 1), NAMES[1])
    late, lie = visits(np.arange(30), 0), r"rows lie in 2026-W02 \(passed over\)"
    with pytest.raises(
        InputError, match=f"{lie}, but the next window is 2026-W04; no map of a window that was"
    ):
        series.add(late)
    with pytest.raises(InputError, match=f"{lie}; if nobody was there in 2026-W04, say so"):
        series.add(late, NAMES[2])


def test_a_window_without_a_row_is_released_only_as_one_of_nobody(tmp_path: Path) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    series = started(tmp_path / "city.series", ledger=ledger)
    elsewhere, nowhere = visits(np.arange(30), 1), visits(np.arange(30, 60), 9)
    for points, message in (
        (
            elsewhere,
            "no row lies in 2026-W02; its rows lie in 2026-W03; name the window of the rows, or, if nobody",
        ),
        (
            nowhere,
            "its rows lie in no window of the series; if nobody was there in 2026-W02, say so: nobody=True",
        ),
    ):
        with pytest.raises(InputError, match=message):
            series.add(points, NAMES[0], ledger=ledger)
    with pytest.raises(ParameterError, match="nobody needs the window's name"):
        series.add(nowhere, ledger=ledger, nobody=True)
    assert series.status().released == ()
    with pytest.warns(CuratorWarning, match="of window 2026-W02 .* so a map of it is about nobody"):
        series.add(nowhere, NAMES[0], ledger=ledger, nobody=True)
    series.add(elsewhere, NAMES[1], ledger=ledger, nobody=True)
    assert series.status().released == NAMES[:2]
    # Nobody of the other weeks' people was mapped, so that their account is another.
    assert ledger.recognise(nowhere, dataset="others") != ledger.recognise(elsewhere, dataset="city")


def test_the_state_names_what_is_lost_for_good_and_maps_that_stand_in(tmp_path: Path) -> None:
    series = started(tmp_path / "city.series")
    assert series.status()[9:12] == ((), {}, None)
    series.add(visits(np.arange(30), 0))
    assert series.status().used_up_after is None
    series.add(visits(np.arange(30), 2), NAMES[2])
    status = series.status()
    assert (status.passed_over, status.used_up_after, status.next) == (NAMES[1:2], NAMES[2], NAMES[3])
    series.add(visits(np.arange(30), 3))
    assert series.status().used_up_after == NAMES[2]
    whole = started(tmp_path / "whole.series", windows_per_user=None)
    runs = started(tmp_path / "runs.series", windows_per_user=None, w_event=3, epsilon=1)
    for week, name in enumerate(NAMES):
        whole.add(visits(np.arange(30), week))
        runs.add(visits(np.arange(30), week), name)
    assert (whole.status().used_up_after, whole.status().stand_ins) == (None, {})
    found = runs.status()
    assert (found.whole, found.used_up_after) == (2, None)
    assert found.stand_ins == {name: stand_in for name in NAMES if (stand_in := runs.window(name).stand_in)}
    assert found.stand_ins, "no window of few users is told from the last"


def test_the_account_is_charged_once_for_all_windows(tmp_path: Path) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    series = started(tmp_path / "city.series", ledger=ledger)
    for week in range(3):
        heat = series.add(visits(np.arange(30), week), ledger=ledger)
    assert ledger.account("city").spent == 2
    assert heat.guarantee.account is not None
    assert heat.guarantee.account.name == "city"
    assert heat.guarantee.account[2:] == (0, 2, 3)  # before, after and budget
    assert series.window(NAMES[2]).guarantee == heat.guarantee
    with pytest.raises(BudgetExceeded):
        started(tmp_path / "other.series", ledger=ledger)
    assert not (tmp_path / "other.series").exists()
    (spend,) = ledger.entries()
    with pytest.raises(InputError, match="cannot be annulled"):
        ledger.annul(spend.id, reason="windows were released")
    with pytest.raises(ParameterError, match="ledger is required"):
        LiveSeries(tmp_path / "city.series").add(visits(np.arange(30), 3))


def test_a_window_needs_the_charge_of_its_series_which_is_annulled_only_while_unused(tmp_path: Path) -> None:
    ledger, other = mv.Ledger(tmp_path / "ledger.sqlite"), mv.Ledger(tmp_path / "other.sqlite")
    series = started(tmp_path / "city.series", ledger=ledger)
    with pytest.raises(InputError, match="was not charged to this ledger"):
        series.add(visits(np.arange(30), 0), ledger=other)
    assert other.accounts() == ()
    series.add(visits(np.arange(30), 0), ledger=ledger)
    (entry,) = ledger.entries()
    with pytest.raises(InputError, match="cannot be annulled"):
        ledger.annul(entry.id, reason="its noise was drawn")
    unused = started(tmp_path / "unused.series", ledger=other)
    other.annul(other.entries()[0].id, reason="started by mistake")
    with pytest.raises(PromiseError, match="was annulled"):
        unused.add(visits(np.arange(30), 0), ledger=other)
    assert (series.status().released, unused.status().released) == (NAMES[:1], ())
    assert [each.status(ledger=other).annulled for each in (series, unused)] == [False, True]
    assert (unused.status(ledger=other).next, unused.status().next) == (None, NAMES[0])
    charged = series.status(ledger=ledger)
    assert charged.account is not None
    assert (charged.whole, charged.account.spent, series.status(ledger=other).account) == (2, 2, None)


def test_a_start_that_was_cut_short_is_continued_and_charged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, spend = mv.Ledger(tmp_path / "ledger.sqlite"), mv.Ledger.spend

    def killed(self: mv.Ledger, *given: object, **named: object) -> object:
        spend(self, *given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mv.Ledger, "spend", killed)
        with pytest.raises(KeyboardInterrupt):
            started(tmp_path / "city.series", ledger=ledger)
    with pytest.raises(InputError, match="has not started"):
        LiveSeries(tmp_path / "city.series").status()
    with pytest.raises(InputError, match="another promise was cut short there; repeat that start as it was"):
        started(tmp_path / "city.series", ledger=ledger, epsilon=1)
    started(tmp_path / "city.series", ledger=ledger)
    assert ledger.account("city").spent == 2
    with pytest.raises(InputError, match="has started there already; add windows to it"):
        started(tmp_path / "city.series", ledger=ledger)


_KILLED = """
import os, signal, sys
import numpy as np
import mapveil as mv
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms import live_series, live_window
where, path, table = sys.argv[1:]
die = lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL)
if where == "before the noise":
    live_series.Multiscale.release = die
elif where == "after the noise":
    live_window.promise_of_series = die
elif where == "after the map":
    from pyarrow.parquet import ParquetWriter
    close = ParquetWriter.close
    ParquetWriter.close = lambda self: (close(self), die())
series = live_series.LiveSeries(path)
heat = series.add(mv.read_points(table))
np.save(path + ".npy", heat.values)
die()
"""


@pytest.mark.parametrize(
    "where", ["before the noise", "after the noise", "after the map", "after the commit"]
)
def test_a_process_killed_at_any_moment_spends_nothing_twice(where: str, tmp_path: Path, sums: list) -> None:
    path, table = tmp_path / "city.series", tmp_path / "week.parquet"
    series = started(path, windows_per_user=1)
    users = np.arange(30)
    rng = np.random.default_rng(0)
    columns = {"user": users, "lon": rng.uniform(-74.03, -73.90, 30), "lat": rng.uniform(40.69, 40.83, 30)}
    columns["time"] = np.full(30, np.datetime64("2026-01-06"))
    pyarrow.parquet.write_table(pa.table(columns), table)
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, where, path, table],
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == -signal.SIGKILL
    for left in tmp_path.rglob("*.parquet"):
        found = pyarrow.parquet.read_schema(left).metadata or {}
        assert b"mapveil" not in found, f"a map that was not released lies in {left}"
    if where == "after the commit":
        np.testing.assert_array_equal(series.window(NAMES[0]).values, np.load(f"{path}.npy"))
        with pytest.raises(InputError, match="released already"):
            series.add(mv.read_points(table), NAMES[0])
    else:
        assert series.status().released == ()
        series.add(mv.read_points(table))
        assert round(sums[-1].sum() / UNIT) == 30, "users were counted for a map that nobody saw"
    series.add(visits(users, 1))
    assert sums[-1].sum() == 0, "users counted twice"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"windows_per_user": 5}, "from 1 to 4"),
        ({"windows_per_user": 0}, "from 1 to 4, got 0"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 50}, "accept"),
        ({"windows": replace(WEEKS, by="weekend")}, "windows must be periods alone"),
        ({"name": "default"}, "name"),
        ({"name": ""}, "name"),
    ],
)
def test_what_cannot_be_started_is_said_and_leaves_no_file(given: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=message):
        started(tmp_path / "city.series", **given, ledger=mv.Ledger(tmp_path / "ledger.sqlite"))
    assert not (tmp_path / "city.series").exists()
    with pytest.raises(InputError, match="no such series"):
        LiveSeries(tmp_path / "city.series").status()


def test_the_key_is_readable_by_its_owner_only_from_the_moment_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, connect = [], sqlite3.connect

    def watched(path: Path, **given: Any) -> sqlite3.Connection:
        opened = connect(path, **given)
        opened.execute("PRAGMA user_version")  # creates a file that is not there
        modes.append(Path(path).stat().st_mode & 0o777)
        return opened

    monkeypatch.setattr(sqlite3, "connect", watched)
    started(tmp_path / "city.series")
    assert modes
    assert set(modes) == {0o600}
    assert [each.name for each in tmp_path.iterdir()] == ["city.series"]
    with pytest.raises(
        InputError, match=r"no series can be kept here: there is no folder .*none; make it first"
    ):
        started(tmp_path / "none" / "city.series")


def test_a_ledger_is_refused_by_a_series_that_was_started_without(tmp_path: Path) -> None:
    series, ledger = started(tmp_path / "city.series"), mv.Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(ParameterError, match="ledger must be left out"):
        series.add(visits(np.arange(30), 0), ledger=ledger)
    assert ledger.accounts() == ()


def test_a_copied_or_restored_file_releases_nothing(tmp_path: Path, sums: list) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    series = started(tmp_path / "city.series", ledger=ledger)
    series.add(visits(np.arange(30), 0), ledger=ledger)
    copy = LiveSeries(shutil.copy(tmp_path / "city.series", tmp_path / "copy.series"))
    series.add(visits(np.arange(30), 1), ledger=ledger)
    for week in (1, 2):  # fresh noise for a window; then users who count once too often
        with pytest.raises(InputError, match="is a copy, or was put back"):
            copy.add(visits(np.arange(30), week), NAMES[week], ledger=ledger)
    assert len(sums) == 2, "noise was drawn"
    series.add(visits(np.arange(30), 2), ledger=ledger)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as opened:
        assert ledger_chain.verify(opened).problems == []


def test_a_map_that_the_ledger_does_not_know_yet_is_not_seen_and_not_drawn_again(
    tmp_path: Path, sums: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    series = started(tmp_path / "city.series", ledger=ledger)
    record, calls = live_series.record_draws, list[int]()

    def killed(*given: object) -> None:
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        record(*given)

    with monkeypatch.context() as patch:
        patch.setattr(live_series, "record_draws", killed)
        with pytest.raises(KeyboardInterrupt):
            series.add(visits(np.arange(30), 0), ledger=ledger)
    assert (series.status().released, series.status().next) == ((), NAMES[0])
    # Drawn, it is released with whatever comes next: only the windows between are lost.
    assert series.passed_over(NAMES[2]) == (NAMES[1],)
    with pytest.raises(InputError, match="was not released"):
        series.window(NAMES[0])
    with pytest.raises(InputError, match=f"the map of {NAMES[0]} was drawn by a run that was cut short"):
        series.add(visits(np.arange(30), 1), ledger=ledger)
    with pytest.warns(CuratorWarning, match=f"window {NAMES[0]} was drawn by a run that was cut short"):
        heat = series.add(visits(np.arange(30), 0), ledger=ledger)
    np.testing.assert_array_equal(heat.values, series.window(NAMES[0]).values)
    assert len(sums) == 1
    series.add(visits(np.arange(30), 1), ledger=ledger)


def test_a_clock_that_reads_no_times_is_refused_before_the_charge(tmp_path: Path) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    zone = replace(WEEKS, zone="UTC")
    object.__setattr__(zone, "zone", "posix/Europe/Paris")  # which not every machine has
    with pytest.raises(ParameterError, match="by which no times of a table can be read"):
        LiveSeries.start(tmp_path / "city.series", "city", zone, TILING, epsilon=2, ledger=ledger)
    assert ledger.entries() == ()
    assert not (tmp_path / "city.series").exists()


def test_a_refused_first_window_leaves_a_charge_that_can_be_annulled(tmp_path: Path, sums: list) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    one = started(tmp_path / "one.series", ledger=ledger)
    one.add(visits(np.arange(300), 0), ledger=ledger)
    two = LiveSeries.start(tmp_path / "two.series", "two", WEEKS, TILING, epsilon=2, ledger=ledger)
    with pytest.raises(InputError, match=r"in common with account city.*'mapveil ledger annul") as refused:
        two.add(visits(np.arange(300), 0), ledger=ledger)
    bad = mv.Points.from_arrays(["a"], [-74.0], [95.0], time=np.array(["2026-01-05"], "datetime64[D]"))
    with pytest.raises(InputError, match="latitude"):
        two.add(bad, ledger=ledger)
    assert len(sums) == 1
    (spend,) = (entry.id for entry in ledger.entries("two"))
    assert f"annul {spend} " in str(refused.value)
    ledger.annul(spend, reason="its people are those of city")
    ledger.name("city", "two")
    assert ledger.account("city").spent == 2
    one.add(visits(np.arange(300), 1), ledger=ledger)
    with pytest.raises(PromiseError, match="was annulled"):
        two.add(visits(np.arange(300), 0), ledger=ledger)


def test_an_account_over_its_budget_releases_no_window(tmp_path: Path, sums: list) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    series = started(tmp_path / "city.series", ledger=ledger)
    stream = ledger.identify(None, dataset="stream")
    ledger.spend(stream, 2, method="laplace")
    with pytest.raises(BudgetExceeded, match="joined, 4 of 3 would be spent"):
        ledger.name("city", "stream")
    ledger.name("city", "stream", accept_overspent=True)
    with pytest.raises(BudgetExceeded, match="4 of 3 spent"):
        series.add(visits(np.arange(30), 0), ledger=ledger)
    assert sums == []
    ledger.set_budget("city", 4)
    series.add(visits(np.arange(30), 0), ledger=ledger)
