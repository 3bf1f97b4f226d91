"""``mapveil ask`` and ``mapveil change`` of flows: every zone, one total, what changed, and one line for bad input."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import mapveil as mv
from mapveil.formats.read_map import read_flows
from mapveil.geo.zone_cells import ZoneCells
from mapveil.geo.zones import Zones
from mapveil.mechanisms.flow_blocks import FlowBlocks
from tests.mechanisms.test_flow_blocks import REGION, ZONES, hub_trips


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases between named zones, of which the second has three times the users; a map; flows of reports."""
    path = tmp_path_factory.mktemp("flows")
    named = ZoneCells(Zones(ZONES.polygons(), tuple(f"z{each}" for each in range(ZONES.size))))
    for users, seed in ((1000, 1), (3000, 2)):
        flows = FlowBlocks(epsilon=1).release(hub_trips(users, seed).as_points(), named, rng=seed)
        flows.save(path / f"flows{seed}.parquet")
    other = FlowBlocks(epsilon=1).release(hub_trips(1000).as_points(), ZONES, rng=3)
    other.save(path / "cells.parquet")
    mv.flows(hub_trips(1000), ZONES, epsilon=4, account=None).save(path / "reported.parquet")
    heat = mv.release(mv.synthetic.city(users=500, seed=1, region=REGION), ZONES, epsilon=1, account=None)
    heat.save(path / "map.parquet")
    return path


def test_every_zone_has_both_totals(mapveil: Callable, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "ends.csv"
    done = mapveil("ask", folder / "flows1.parquet", "-o", out, "-o", tmp_path / "ends.geojson")
    assert done.code == 0, done.err
    assert (
        "16 zones, 95 % intervals of the noise, of users: each user counts 1, divided over their trips"
        in done.out
    )
    with out.open() as file:
        rows = list(csv.DictReader(file))
    flows = read_flows(folder / "flows1.parquet")
    assert [row["zone"] for row in rows] == list(flows.zone_names or ())
    for zone in (0, 15):
        for end, total in (("outflow", flows.outflow(zone)), ("inflow", flows.inflow(zone))):
            low, high = (float(rows[zone][f"{end}_{name}"]) for name in ("low", "high"))
            assert (low, high) == pytest.approx(total.interval())
    features = json.loads((tmp_path / "ends.geojson").read_text())["features"]
    assert {each["geometry"]["type"] for each in features} == {"Polygon"}
    streamed = mapveil("ask", folder / "flows1.parquet", "-o", "-")
    assert streamed.out == out.read_text()


def test_the_table_of_changes_adds_up(mapveil: Callable, folder: Path) -> None:
    """Estimates are unbiased, negative ones too, so that after less before is the change."""
    done = mapveil("change", folder / "flows1.parquet", folder / "flows2.parquet")
    assert done.code == 0, done.err
    assert "before and after are unbiased estimates, which may be below 0" in done.out
    rows = [line.split() for line in done.out.splitlines() if line.startswith(("from ", "to "))]
    assert len(rows) == 32
    for row in rows:
        before, after, change = (float(each.replace(",", "")) for each in row[2:5])
        assert after - before == pytest.approx(change, abs=0.16)
    assert any(float(each.replace(",", "")) < 0 for row in rows for each in row[2:4])
    assert "a user of both tables is protected by epsilon 2" in done.err


def test_one_total_by_names_and_numbers(mapveil: Callable, folder: Path) -> None:
    asked = ("ask", folder / "flows1.parquet", "--json")
    one, other = (
        json.loads(mapveil(*asked, "--from", first, "--to", second).out)["answer"]
        for first, second in (("z1,z2", "z15"), ("1, 2", "15"))
    )
    assert one == other
    assert one["low"] < one["estimate"] < one["high"]
    wide = json.loads(mapveil(*asked, "--to", "z15", "--confidence", "99").out)["answer"]
    usual = json.loads(mapveil(*asked, "--to", "z15").out)["answer"]
    assert wide["high"] - wide["low"] > usual["high"] - usual["low"]
    said = mapveil("ask", folder / "flows1.parquet", "--from", "z1")
    assert "users from z1 to all zones (each user counts 1, divided over their trips): " in said.out


def test_three_times_the_trips_are_called_and_the_quiet_zones_are_not(
    mapveil: Callable, folder: Path, tmp_path: Path
) -> None:
    files = folder / "flows1.parquet", folder / "flows2.parquet"
    out = tmp_path / "change.csv"
    done = mapveil("change", *files, "-o", out, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["zones"]
    for end in ("outflow", "inflow"):
        busy = [row for row in rows if row[f"{end}_after"] > 300]
        assert busy
        assert all(row[f"{end}_changed"] and row[f"{end}_low"] > 0 for row in busy)
        assert not any(row[f"{end}_changed"] for row in rows if row[f"{end}_after"] < 10)
    assert len(out.read_text().splitlines()) == 17
    assert "changed; no change means one expected number" in mapveil("change", *files).out


ASK = {
    "zones": (("flows1", "--zones", "districts.geojson"), "--zones must be left out: the file holds flows"),
    "top": (("flows1", "--top", "3"), "--top must be left out"),
    "window": (("flows1", "--over-time"), "--over-time must be left out"),
    "page": (("flows1", "-o", "answers.html"), "-o answers.html: answers about flows are written as"),
    "unknown zone": (("flows1", "--from", "centre"), "--from must be zones of the file, names, such as 'z0'"),
    "unknown number": (("flows1", "--to", "16"), "or numbers from 0 to 15, got '16'"),
    "file of one total": (("flows1", "--to", "z1", "-o", "a.csv"), "-o writes a row per zone"),
    "reports": (("reported",), "carry no noisy sums"),
    "a map": (("map", "--from", "1"), "--from is for flows"),
    "a map without zones": (("map",), "--zones is required"),
}


@pytest.mark.parametrize(("flags", "said"), ASK.values(), ids=ASK.keys())
def test_a_bad_question_is_one_line(
    mapveil: Callable, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = mapveil("ask", folder / f"{flags[0]}.parquet", *flags[1:])
    assert (done.code, len(done.errors)) == (2, 1), done
    assert said in done.err
    assert not list(tmp_path.glob("a*"))


CHANGE = {
    "one release": (("flows1", "flows1"), (), "one release"),
    "other zones": (("flows1", "cells"), (), "different"),
    "a map": (("flows1", "map"), (), "give two of one kind"),
    "reports": (("flows1", "reported"), (), "carry no noisy sums"),
    "zones": (("flows1", "flows2"), ("--zones", "d.geojson"), "--zones must be left out"),
    "fdr": (("flows1", "flows2"), ("--fdr", "0.9"), "--fdr must be above 0 and at most 0.5"),
    "two maps": (("map", "map"), (), "both maps are one release"),
}


@pytest.mark.parametrize(("names", "flags", "said"), CHANGE.values(), ids=CHANGE.keys())
def test_a_bad_comparison_is_one_line(
    mapveil: Callable, folder: Path, names: tuple, flags: tuple, said: str
) -> None:
    done = mapveil("change", *(folder / f"{name}.parquet" for name in names), *flags)
    assert (done.code, len(done.errors)) == (2, 1), done
    assert said in done.err


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of trips with times in two weeks: everybody goes there in the first and back in the second."""
    rows = ["user_id,lon,lat,dest_lon,dest_lat,time"]
    for user in range(600):
        rows.append(f"u{user},-8.65,41.13,-8.57,41.19,2026-01-06 08:00:00")
        rows.append(f"u{user},-8.57,41.19,-8.65,41.13,2026-01-13 08:00:00")
    path = tmp_path_factory.mktemp("timed") / "trips.csv"
    path.write_text("\n".join(rows))
    return path


def flags(*more: str) -> list[str]:
    return [
        "--region",
        "-8.70,41.10,-8.52,41.22",
        "--tiling",
        "grid:2x2",
        "--epsilon",
        "2",
        "--seed",
        "1",
        *more,
    ]


WEEKLY = ("--every", "1w", "--from", "2026-01-05", "--until", "2026-01-19")


def test_weeks_of_flows_are_released_asked_and_compared(
    mapveil: Callable, timed: Path, tmp_path: Path
) -> None:
    weeks = tmp_path / "weeks.parquet"
    asked = flags("--trust", "central", *WEEKLY, "--time-zone", "UTC")
    done = mapveil("flows", timed, *asked, "-o", weeks, "-o", tmp_path / "weeks.html")
    assert done.code == 0, done.err
    totals = {}
    for name in ("2026-W02", "2026-W03"):
        said = mapveil("ask", weeks, "--window", name, "--from", "2", "--to", "1", "--json")
        assert json.loads(said.out)["window"] == name
        totals[name] = json.loads(said.out)["answer"]["estimate"]
    # Each user counts 1 over both weeks.
    assert totals["2026-W02"] == pytest.approx(300, abs=40)
    assert totals["2026-W03"] < 40
    found = mapveil("change", weeks, "--window", "2026-W03", "--against", "2026-W02", "--json")
    rows = json.loads(found.out)["zones"]
    assert [row["outflow_changed"] for row in rows] == [False, True, True, False]
    assert mapveil("ask", weeks, "--json").code == 0


@pytest.mark.parametrize("given", [(), WEEKLY, (*WEEKLY, "--windows-per-user", "1")])
def test_flows_from_sums_are_evaluated_as_users_count(
    mapveil: Callable, tmp_path: Path, given: tuple
) -> None:
    """One user makes 1,000 trips, and trips of later weeks are not released."""
    rows = ["user_id,lon,lat,dest_lon,dest_lat,time"]
    there, back = "-8.65,41.13,-8.57,41.19", "-8.57,41.19,-8.65,41.13"
    rows += [f"u{user},{there},2026-01-06" for user in range(600)]
    rows += [f"busy,{back},2026-01-06"] * 1000
    rows += [f"u{user},{back if given else there},2026-03-02" for user in range(600)]
    trips = tmp_path / "trips.csv"
    trips.write_text("\n".join(rows))
    released = flags("--trust", "central", *given, "--evaluate", "--json")
    done = mapveil("flows", trips, *released, "-o", tmp_path / "flows.parquet")
    assert done.code == 0, done.err
    found = json.loads(done.out).get("evaluation")
    if "--windows-per-user" in given:  # which windows count is drawn by a key that is not kept
        assert (found, "no evaluation: windows_per_user draws" in done.err) == (None, True)
    else:
        assert found["l1"] < 0.1


def test_a_pair_inside_a_block_has_bounds_that_hold_wherever_in_it_users_are(
    mapveil: Callable, timed: Path, tmp_path: Path
) -> None:
    """Everybody makes the trip from 2 to 1; of the one block that was measured it has no interval of its own."""
    weeks = tmp_path / "weeks.parquet"
    given = flags("--trust", "central", *WEEKLY, "--time-zone", "UTC", "--option", "window_signal=1e6")
    assert mapveil("flows", timed, *given, "-o", weeks).code == 0
    asked = ("ask", weeks, "--window", "2026-W02", "--from", "2", "--to", "1")
    answer = json.loads(mapveil(*asked, "--json").out)["answer"]
    assert answer["placed"] == 1
    assert (answer["low"], answer["high"]) == (answer["certain_low"], answer["certain_high"])
    assert answer["low"] <= 300 <= answer["high"]
    assert "these bounds hold wherever in their blocks they are" in mapveil(*asked).out


def test_a_measured_pair_below_zero_has_the_interval_of_its_noise(mapveil: Callable, tmp_path: Path) -> None:
    path = tmp_path / "pairs.parquet"
    flows = FlowBlocks(epsilon=1, pair_signal=0.01).release(hub_trips(1000).as_points(), ZONES, rng=1)
    flows.save(path)
    below = next(
        (origin, to)
        for origin in range(ZONES.size)
        for to in range(ZONES.size)
        if flows.total(origin, to).estimate < 0
    )
    origin, to = map(str, below)
    said = mapveil("ask", path, "--from", origin, "--to", to).out
    low, high = flows.total(*below).interval()
    assert f"0.0 (95 %: {low:,.1f} to {high:,.1f}); asking costs no privacy" in said


def test_a_total_below_zero_of_cut_blocks_has_bounds_wherever_users_are(
    mapveil: Callable, tmp_path: Path
) -> None:
    path, ends = tmp_path / "blocks.parquet", ([7, 4], [11, 8, 12, 15])
    flows = FlowBlocks(epsilon=1, pair_signal=1e6).release(hub_trips(1000, 1).as_points(), ZONES, rng=1)
    flows.save(path)
    total = read_flows(path).total(*ends)  # the file rounds noisy sums
    assert (total.estimate < 0, total.modelled) == (True, False)
    origins, destinations = (",".join(map(str, each)) for each in ends)
    said = mapveil("ask", path, "--from", origins, "--to", destinations).out
    low, high = total.certain()
    assert f"; wherever they are in their blocks: {low:,.1f} to {high:,.1f}; asking costs no privacy" in said


BAD_WINDOWS = {
    "local": ((*WEEKLY,), "must be central, distributed or operators for flows over windows"),
    "no zone of time": (("--trust", "central", *WEEKLY), "state no time zone"),
    "user-week": (("--trust", "central", *WEEKLY, "--per", "user-week"), "--per must be user for flows"),
    "no windows": (("--trust", "central", "--windows-per-user", "2"), "give --every or --by too"),
    "too near": (
        ("--trust", "central", *WEEKLY, "--windows-per-user", "2", "--window-error", "5"),
        "allows 1 window",
    ),
}


@pytest.mark.parametrize(("given", "said"), BAD_WINDOWS.values(), ids=BAD_WINDOWS.keys())
def test_windows_that_flows_cannot_have_are_one_line(
    mapveil: Callable, timed: Path, tmp_path: Path, given: tuple, said: str
) -> None:
    done = mapveil("flows", timed, *flags(*given), "-o", tmp_path / "weeks.parquet")
    assert done.code == 2
    # Before it, from how many users on a pair would be told from zero.
    assert [said in line for line in done.errors if line.startswith("mapveil: error")] == [True], done
    assert not list(tmp_path.iterdir())


def test_a_window_of_flows_of_one_time_is_refused(mapveil: Callable, folder: Path) -> None:
    done = mapveil("ask", folder / "flows1.parquet", "--window", "2026-W02")
    assert (done.code, len(done.errors)) == (2, 1), done
    assert "holds flows of one time, not a series" in done.err
