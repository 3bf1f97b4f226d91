"""``release --every``, ``ask --window`` and ``change --window``; one line for bad input, before any charge."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import mapveil as mv

WHERE = ("--region", "-74.03,40.69,-73.90,40.83", "--tiling", "quadtree:4")
WEEKS = ("--every", "1w", "--from", "2026-01-05", "--until", "2026-01-26")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits on days of three weeks, and two zones."""
    path = tmp_path_factory.mktemp("series")
    rng = np.random.default_rng(1)
    columns = {
        "user": np.arange(3000) // 3,
        "lon": rng.uniform(-74.03, -73.90, 3000),
        "lat": rng.uniform(40.69, 40.83, 3000),
        "day": np.datetime64("2026-01-05") + rng.integers(0, 21, 3000),
        "kind": np.where(rng.random(3000) < 0.3, "tourist", "local"),
    }
    pyarrow.parquet.write_table(pa.table(columns), path / "visits.parquet")
    halves = [(name, [[w, 40.69], [e, 40.69], [e, 40.83], [w, 40.83], [w, 40.69]])
              for name, w, e in (("west", -74.03, -73.965), ("east", -73.965, -73.90))]  # fmt: skip
    features = [
        {
            "type": "Feature",
            "properties": {"name": n, "residents": 500},
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }
        for n, ring in halves
    ]
    (path / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_one_block_is_not_foretold_where_the_noisy_sums_may_find_more_users_than_were_declared(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    given = ("--epsilon", 2, "--option", "users=5", "--seed", 1, "-o", tmp_path / "weeks.parquet")
    done = mapveil("release", folder / "visits.parquet", *WHERE, *WEEKS, *given)
    assert done.code == 0, done.err
    warned = next(line for line in done.errors if "one block" in line)
    assert "unless the noisy sums find about 48 users or more in all windows together, and 5 were" in warned
    assert "each window was measured in 64 blocks" in done.out
    assert "no block followed the declared number" in done.out


def test_a_series_is_released_asked_and_compared(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    out, zones = tmp_path / "weeks.parquet", ("--zones", folder / "zones.geojson")
    done = mapveil("release", folder / "visits.parquet", *WHERE, *WEEKS, "--epsilon", 2, "-o", out)
    assert done.code == 0, done.err
    assert "blocks in 3 windows" in done.out
    asked = mapveil("ask", out, "--window", "2026-W03", *zones, "--json")
    assert asked.code == 0, asked.err
    assert sum(row["estimate"] for row in json.loads(asked.out)["answers"]) == pytest.approx(333, rel=0.2)
    counts = "over all windows together each user counts 1"
    assert f"window 2026-W03: {counts}" in mapveil("ask", out, "--window", "2026-W03", *zones).out
    together = "all 3 windows together; --window NAME asks one"
    assert together in mapveil("ask", out, *zones).out
    assert together not in mapveil("ask", out, "--window", "2026-W03", *zones).out
    whole = json.loads(mapveil("ask", out, *zones, "--json").out)["answers"]
    rates = mapveil("ask", out, "--window", "2026-W03", *zones, "--per", "residents", "--json")
    assert rates.code == 0, rates.err
    first = json.loads(rates.out)["answers"][0]
    assert first["estimate_per_1000"] == pytest.approx(1000 * first["estimate"] / first["denominator"])
    assert sum(row["estimate"] for row in whole) == pytest.approx(1000, rel=0.1)
    written = [
        tmp_path / name for name in ("change.png", "change.html", "totals.png", "totals.csv", "t.html")
    ]
    over = mapveil("ask", out, "--over-time", *zones, "-o", written[2], "-o", written[3], "-o", written[4])
    assert over.code == 0, over.err
    assert "2 zones in 3 windows" in over.out
    assert written[3].read_text().startswith('"zone","estimate 2026-W02","low 2026-W02"')
    pair = ("--window", "2026-W04", "--against", "2026-W02")
    assert mapveil("change", out, *pair, *zones, "-o", written[0], "-o", written[1]).code == 0
    assert all(path.stat().st_size > 0 for path in written)
    found = mapveil("change", out, *pair, *zones)
    assert found.code == 0, found.err
    assert "0 of 2 zones changed" in found.out
    assert f"before is 2026-W02, after is 2026-W04; {counts}" in found.out
    assert "a difference may be" not in found.err


def test_a_change_between_windows_of_a_live_series_adds_no_epsilons(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    city, zones = tmp_path / "city.series", ("--zones", folder / "zones.geojson")
    given = ("--name", "city", *WHERE, *WEEKS, "--epsilon", 1)
    assert mapveil("series", "start", city, *given).code == 0
    files = [tmp_path / f"{week}.parquet" for week in ("2026-W02", "2026-W03")]
    for path in files:
        add = ("series", "add", city, folder / "visits.parquet", "--window", path.stem, "-o", path)
        assert mapveil(*add).code == 0
    found = mapveil("change", *files, *zones)
    assert found.code == 0, found.err
    assert "of one series, so a user of both is protected by its epsilon 1" in found.err
    assert "of both tables" not in found.err


def test_a_change_between_windows_of_unequal_length_says_so(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    months, released = tmp_path / "months.parquet", ("release", folder / "visits.parquet", *WHERE)
    spans = ("--every", "1mo", "--from", "2026-01-01", "--until", "2026-03-01")
    assert mapveil(*released, *spans, "--epsilon", 2, "-o", months).code == 0
    asked = ("change", months, "--window", "2026-02", "--against", "2026-01")
    done = mapveil(*asked, "--zones", folder / "zones.geojson")
    assert "2026-01 and 2026-02 have 31 and 28 days: a difference may be that of the days" in done.err
    assert done.code == 0, done.err


def test_a_rehearsal_says_what_a_series_would_charge(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    given = (*WHERE, *WEEKS, "--per", "user-week", "--epsilon", "0.5", "--dry-run")
    done = mapveil("release", folder / "visits.parquet", *given, "-o", tmp_path / "weeks.parquet")
    assert done.code == 0, done.err
    assert "epsilon 1.5 to" in done.out
    assert not (tmp_path / "weeks.parquet").exists()


def test_one_map_is_no_animation(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    done = mapveil("release", folder / "visits.parquet", *WHERE, "--epsilon", 1, "-o", tmp_path / "map.webp")
    assert (done.code, "an animation shows a series" in done.errors[-1]) == (2, True)
    assert "nothing was spent yet" in mapveil("ledger").out


def test_a_column_of_categories_makes_windows(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "kinds.csv"
    by = ("--by", "kind", "--values", "local,tourist")
    done = mapveil("release", folder / "visits.parquet", *WHERE, *by, "--epsilon", 1, "-o", out)
    assert done.code == 0, done.err
    assert "users tourist" in out.read_text().splitlines()[0]
    assert "listed" not in done.err
    wrong = ("--by", "kind", "--values", "local,Tourist")
    typed = mapveil("release", folder / "visits.parquet", *WHERE, *wrong, "--epsilon", 1, "-o", out)
    assert typed.code == 0, typed.err
    said = "rows hold a value of column 'kind' that is not listed, and count in no window"
    said += "; listed and in no row: Tourist"
    assert f"of 3000 {said}; keep this private" in typed.err
    assert "listed" not in typed.out
    assert said in mapveil("describe", folder / "visits.parquet", *wrong).out
    assert mapveil("describe", folder / "visits.parquet", "--by", "hour").code == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--every", "1w"), "--from and --until"),
        (("--from", "2026-01-05"), "--from is for a series"),
        (("--per", "user-week"), "--per is for a series"),
        ((*WEEKS, "--method", "laplace"), "--method must be left out"),
        (
            (*WEEKS, "--trust", "random-features"),
            "--trust must be one of central, distributed, operators, local",
        ),
        ((*WEEKS, "--smooth-m", "100"), "--smooth-m is for one map"),
        ((*WEEKS, "--windows-per-user", "4"), "--windows-per-user must be a whole number from 1 to 3"),
        (("--by", "kind"), "--values"),
        ((*WEEKS, "--time", "kind"), "3000 of 3000 rows cannot be used: next row 2"),
        (("--by", "hour"), "windows of hours need times"),
        ((*WEEKS, "--per", "user-week", "--epsilon", "2"), "the account allows 1 of them"),
        ((*WEEKS, "--per", "user-week", "--epsilon", "2", "--dry-run"), "the account allows 1 of them"),
        ((*WEEKS, "--windows-per-user", "3", "--window-error", "7"), "allows 1 window, got 3"),
        (("--window-error", "7"), "--window-error is for a series"),
        (
            ("--every", "1w", "--from", "2026-01-26", "--until", "2026-01-05"),
            "--until must be after --from 2026-01-26",
        ),
        (("--every", "1w", "--from", "2026-01-05", "--until", "2026-01-20"), "must end a window of 1w"),
        (
            ("--by", "weekday", "--from", "2026-01-05", "--until", "2026-01-26"),
            "--from and --until are of periods: give --every LENGTH too",
        ),
        ((*WEEKS, "--trust", "local", "--per", "user-week"), "--per must be user under trust local"),
    ],
)
def test_bad_input_is_one_line_and_charges_nothing(
    mapveil: Callable, folder: Path, tmp_path: Path, given: tuple, message: str
) -> None:
    epsilon = () if "--epsilon" in given else ("--epsilon", 1)
    out = tmp_path / "out.parquet"
    done = mapveil("release", folder / "visits.parquet", *WHERE, *given, *epsilon, "-o", out)
    assert done.code != 0
    assert message in done.errors[-1]
    assert not out.exists()
    assert "spent" not in mapveil("ledger", "list").out or "0 of" in mapveil("ledger", "list").out


@pytest.mark.parametrize(
    "windows",
    [("--by", "hour"), ("--every", "1h", "--from", "2026-01-05", "--until", "2026-01-06"),
     ("--by", "hour-of-week", "--time-zone", "Europe/Paris")],
)  # fmt: skip
def test_a_text_column_of_days_makes_no_windows_of_hours(
    mapveil: Callable, tmp_path: Path, windows: tuple
) -> None:
    rows = pa.table({"user": [1, 2], "lon": [-74.0, -73.95], "lat": [40.7, 40.75]})
    for times, refused in ((["2026-01-05", "2026-01-06"], True), (["2026-01-05T08:00Z"] * 2, False)):
        pyarrow.parquet.write_table(rows.append_column("time", pa.array(times)), tmp_path / "texts.parquet")
        out = tmp_path / "out.parquet"
        done = mapveil("release", tmp_path / "texts.parquet", *WHERE, *windows, "--epsilon", 1, "-o", out)
        assert (done.code, "windows of hours need times" in done.err) == (2 * refused, refused), done.err
        assert out.exists() is not refused


def test_a_picture_of_too_many_windows_is_refused_before_the_charge(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    many = ("--every", "1d", "--from", "2026-01-05", "--until", "2026-05-06", "--epsilon", 1)
    for more in ((), ("--dry-run",)):
        done = mapveil(
            "release", folder / "visits.parquet", *WHERE, *many, *more, "-o", tmp_path / "days.PNG"
        )
        assert (done.code, "at most 120 windows are drawn, got 121" in done.errors[-1]) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert "nothing was spent yet" in mapveil("ledger").out


def test_questions_about_windows_that_are_not_there(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    out, zones = tmp_path / "weeks.parquet", ("--zones", folder / "zones.geojson")
    given = ("--epsilon", 1, "--no-ledger")
    mapveil("release", folder / "visits.parquet", *WHERE, *WEEKS, *given, "-o", out)
    mapveil("release", folder / "visits.parquet", *WHERE, *given, "-o", tmp_path / "one.parquet")
    for arguments, message in (
        (("ask", out, "--window", "2026-W33"), "window must be one of 2026-W02, 2026-W03, 2026-W04"),
        (("ask", tmp_path / "one.parquet", "--window", "2026-W03"), "is one map, not a series"),
        (
            ("change", tmp_path / "one.parquet", "--window", "2026-W03", "--against", "2026-W02"),
            "--against 2026-W02: ",
        ),
        (("ask", tmp_path / "one.parquet", "--over-time"), "is one map, not a series"),
        (("ask", out, "--over-time", "--top", "1"), "--top must be left out with --over-time"),
        (("ask", out, "-o", tmp_path / "a.png"), "a .png with --over-time only"),
        (("change", out, "--window", "2026-W03"), "--window and --against"),
        (("change", out), "--window and --against"),
        (("change", out, "--window", "2026-W03", "--against", "2026-W03"), "both"),
    ):
        done = mapveil(*arguments, *zones)
        assert done.code == 2
        assert message in done.errors[-1]


def test_a_live_series_from_its_start_to_a_late_window(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    city, table = tmp_path / "city.series", folder / "visits.parquet"
    given = ("--name", "city", *WHERE, *WEEKS, "--windows-per-user", 2, "--epsilon", 2)
    begun = mapveil("series", "start", city, *given)
    assert begun.code == 0, begun.err
    assert "charged: epsilon 2 to account city: 2 of 3 spent per user, 1 left" in begun.out
    assert "next: 2026-W02" in begun.out
    out = [tmp_path / name for name in ("first.parquet", "again.csv", "third.parquet")]
    several = mapveil("series", "add", city, table, "-o", out[0])
    assert (several.code, "lie in 2026-W02, 2026-W03, 2026-W04" in several.errors[-1]) == (2, True)
    added = mapveil("series", "add", city, table, "--window", "2026-W02", "-o", out[0])
    again = mapveil("series", "map", city, "2026-W02", "-o", out[1])
    for done in (added, again):
        assert (done.code, "not entered" in done.err, "on each client" in done.out) == (0, False, False), (
            done.err
        )
        assert "of account city; 0 spent before, 2 after, of 3" in " ".join(done.out.split())
    assert "2 of 3 spent" in added.out
    signed = mapveil("ledger", "sign", *out[:2], "--json")
    assert signed.code == 0, signed.err
    key = json.loads(signed.out)["key"]
    for path in out[:2]:
        checked = mapveil("verify", path, "--key", key)
        assert checked.code == 0, checked.out
    out[0].write_bytes(out[1].read_bytes())
    assert mapveil("ledger", "sign", out[0]).code == 2
    other = tmp_path / "other.parquet"
    columns = {"user": [1], "lon": [-74.0], "lat": [40.7], "day": np.array(["2027-01-05"], "datetime64[D]")}
    pyarrow.parquet.write_table(pa.table(columns), other)
    nobody = ("series", "add", city, other, "--window", "2026-W03", "-o", out[2])
    empty = mapveil(*nobody)
    assert (empty.code, "no window of the series; if nobody was" in empty.errors[-1]) == (2, True)
    assert ": --nobody releases a map of noise" in empty.errors[-1]
    unnamed = mapveil(*nobody[:4], *nobody[6:])
    assert ": --window 2026-W03 and --nobody" in unnamed.errors[-1]
    mv.Account.open("others", budget=1, ledger=tmp_path / "empty.sqlite")
    for ledger in ("missing.sqlite", "empty.sqlite"):
        for asked in (("map", city, "2026-W02", "-o", out[2]), ("status", city)):
            wrong = mapveil("series", *asked, "--ledger", tmp_path / ledger)
            assert (wrong.code, "--ledger must be the one" in wrong.errors[-1]) == (2, True)
    assert not out[2].exists()
    skipping = mapveil("series", "add", city, table, "--window", "2026-W04", "-o", out[2])
    assert (skipping.code, "2026-W04 passes over 2026-W03: no map of them" in skipping.err) == (0, True)
    late = mapveil("series", "add", city, table, "--window", "2026-W03", "-o", tmp_path / "late.parquet")
    assert (late.code, "is late" in late.errors[-1]) == (2, True)
    assert not (tmp_path / "late.parquet").exists()
    told = json.loads(mapveil("series", "status", city, "--json").out)
    assert told["released"] == ["2026-W02", "2026-W04"]
    assert (told["next"], told["passed_over"]) == (None, ["2026-W03"])
    assert (told["epsilon_of_all_windows"], told["account"]) == (
        "2",
        {"name": "city", "spent": "2", "budget": "3"},
    )
    assert "passed over for good: 2026-W03" in mapveil("series", "status", city).out
    assert "clock of" in told["windows"]
    assert mapveil("series", "start", city, *given).code == 2
    assert "2 of 3" in mapveil("ledger").out


@pytest.mark.parametrize(
    ("flags", "cells", "said"),
    [
        ((), 8, "epsilon 0.25 a window the noise on the sum of a smallest block deviates by 8.2 users"),
        (("--users", 300), 4, "cells: depth 4, because of about 300 users at epsilon 0.25"),
        (("--users", 300, "--windows-per-user", 1), 5, "about 300 users at epsilon 0.75"),
        (("--users", 300, "--w-event", 3), 3, "about 300 users at epsilon 0.125"),
    ],
)
def test_the_default_cells_follow_from_declared_users_and_the_epsilon_of_a_window(
    mapveil: Callable, tmp_path: Path, flags: tuple, cells: int, said: str
) -> None:
    city = tmp_path / "city.series"
    begun = mapveil(
        "series", "start", city, "--name", "city", *WHERE[:2], *WEEKS, "--epsilon", "0.75", *flags
    )
    assert begun.code == 0, begun.err
    assert said in begun.err
    with closing(sqlite3.connect(city)) as opened:
        (record,) = opened.execute("SELECT record FROM series").fetchone()
    assert json.loads(record)["tiling"]["depth"] == cells


def test_a_number_of_users_that_chooses_no_cells_is_refused(mapveil: Callable, tmp_path: Path) -> None:
    given = ("--name", "city", *WEEKS, "--epsilon", 1)
    for where, users in ((WHERE, 300), (WHERE[:2], 0)):
        done = mapveil("series", "start", tmp_path / "city.series", *given, *where, "--users", users)
        assert (done.code, "--users must be" in done.errors[-1]) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_people_whom_another_account_knows_join_it_or_are_stated_to_be_others(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    table, out = folder / "visits.parquet", tmp_path / "map.parquet"
    released = mapveil("release", table, *WHERE, "--epsilon", 2, "--dataset", "before", "-o", out)
    assert released.code == 0, released.err
    city, given = tmp_path / "city.series", ("--name", "city", *WHERE, *WEEKS, "--epsilon", 2)
    assert mapveil("series", "start", city, *given).code == 0
    add = ("series", "add", city, table, "--window", "2026-W02", "-o", out)
    refused = mapveil(*add)
    assert refused.code == 2
    said = refused.errors[-1]
    assert "mapveil ledger name before city, then the same request again" in said
    assert "joined, 4 of 3 would be spent, the smallest of their budgets" in said
    assert ("--dataset" in said, "If they are others" in said, "--other-people REASON" in said) == (
        False,
        True,
        True,
    )
    join = ("ledger", "name", "before", "city")
    overspent = mapveil(*join)
    assert overspent.code == 1
    assert "to join them all the same: --accept-overspent" in overspent.errors[-1]
    stated = mapveil(*add, "--other-people", "tourists, who were numbered anew")
    assert stated.code == 0, stated.err
    assert mapveil(*join, "--accept-overspent").code == 0


def test_a_live_series_without_a_ledger_makes_none(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    city, table, out = tmp_path / "city.series", folder / "visits.parquet", tmp_path / "map.parquet"
    given = ("--name", "city", *WHERE, *WEEKS, "--epsilon", 2)
    assert mapveil("series", "start", city, *given, "--no-ledger").code == 0
    refused = mapveil("series", "add", city, table, "--ledger", tmp_path / "other.sqlite", "-o", out)
    assert (refused.code, "--ledger must be left out" in refused.errors[-1]) == (2, True)
    done = mapveil("series", "add", city, table, "--window", "2026-W02", "-o", out)
    assert (done.code, "not entered in a ledger" in done.err) == (0, True)
    assert {path.name for path in tmp_path.iterdir()} == {"city.series", "map.parquet"}
    assert "charged: to no account" in mapveil("series", "status", city).out


def test_a_window_of_protected_runs_is_signed_with_the_charge_of_every_run(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    city, out = tmp_path / "city.series", tmp_path / "first.parquet"
    given = ("--name", "city", *WHERE, *WEEKS, "--w-event", 2, "--epsilon", "0.5")
    begun = mapveil("series", "start", city, *given)
    assert begun.code == 0, begun.err
    assert "charged: epsilon 1 to account city: 1 of 3 spent per user, 2 left" in begun.out
    added = mapveil("series", "add", city, folder / "visits.parquet", "--window", "2026-W02", "-o", out)
    assert added.code == 0, added.err
    key = json.loads(mapveil("ledger", "sign", out, "--json").out)["key"]
    checked = mapveil("verify", out, "--key", key)
    assert checked.code == 0, checked.out
