"""``mapveil flows``: the good run, every bad input, and what must not be spent or written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil_client.errors import ParameterError

BOX = "-8.70,41.10,-8.52,41.22"


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two thousand trips of as many users, nearly all from the south-west to the north-east."""
    generator = np.random.default_rng(0)
    start = generator.normal([-8.66, 41.12], 0.003, (2000, 2))
    end = generator.normal([-8.56, 41.20], 0.003, (2000, 2))
    rows = [
        f"u{i},{a:.6f},{b:.6f},{c:.6f},{d:.6f}"
        for i, ((a, b), (c, d)) in enumerate(zip(start, end, strict=True))
    ]
    path = tmp_path_factory.mktemp("trips") / "trips.csv"
    path.write_text(
        "\n".join(["user_id,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude", *rows])
    )
    return path


def test_writes_every_format_and_charges_the_ledger(mapveil: Callable, trips: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"flows{suffix}" for suffix in (".parquet", ".geojson", ".csv", ".png", ".html")]
    flags = [part for output in outputs for part in ("-o", output)]
    done = mapveil("flows", trips, "--region", BOX, "--epsilon", "2", *flags)
    assert done.code == 0, done.err
    assert all(output.stat().st_size > 200 for output in outputs)
    assert "user-level, replace-one, (2, " in done.out
    assert "2 of 3 spent" in done.out
    assert "mixed flows" in mapveil("ledger").out


def test_json_tells_the_flows_and_the_evaluation(mapveil: Callable, trips: Path, tmp_path: Path) -> None:
    done = mapveil("flows", trips, "--region", BOX, "--epsilon", "3", "--tiling", "grid:2x2", "--evaluate", "--json",
                   "--estimator", "joint",
                   "-o", tmp_path / "flows.geojson")  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["guarantee"]["epsilon"] == "3"
    assert [share["epsilon"] for share in record["guarantee"]["shares"]] == ["3/2", "3/2"]
    assert record["ledger"]["spent"] == "3"
    # Nearly all trips are of one pair, so that the estimate is good and says which.
    assert record["evaluation"]["l1"] < 0.5
    first = json.loads((tmp_path / "flows.geojson").read_text())["features"][0]
    assert first["properties"]["trips"] > 1500
    (start, end) = first["geometry"]["coordinates"]
    assert start[0] < end[0]
    assert start[1] < end[1]
    assert "do not publish" in done.err


def test_cells_and_randomizer_follow_the_number_of_trips(
    mapveil: Callable, trips: Path, tmp_path: Path
) -> None:
    found = {}
    for epsilon in ("0.5", "6"):
        done = mapveil("flows", trips, "--region", BOX, "--epsilon", epsilon, "--seed", "1", "--json",
                       "-o", tmp_path / "flows.csv")  # fmt: skip
        assert done.code == 0, done.err
        record = json.loads(done.out)
        found[epsilon] = (record["tiling"]["depth"], record["parameters"]["randomizer"])
    assert found == {"0.5": (2, "hr"), "6": (4, "hr")}


@pytest.mark.parametrize("estimator", ["joint", "lasso", "independent"])
def test_a_seed_repeats_marks_and_charges_nothing(
    mapveil: Callable, trips: Path, tmp_path: Path, estimator: str
) -> None:
    made = []
    for name in ("a.geojson", "b.geojson"):
        done = mapveil("flows", trips, "--region", BOX, "--epsilon", "2", "--estimator", estimator, "--seed", "7",
                       "-o", tmp_path / name)  # fmt: skip
        assert done.code == 0, done.err
        assert "NOT FOR RELEASE" in done.err
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert "nothing was spent" in mapveil("ledger").out


def test_the_promise_about_a_trip_is_said_to_be_one(mapveil: Callable, trips: Path, tmp_path: Path) -> None:
    done = mapveil(
        "flows", trips, "--region", BOX, "--epsilon", "2", "--unit", "trip", "-o", tmp_path / "f.csv"
    )
    assert done.code == 0, done.err
    assert "trip-level, replace-one, (2, " in done.out
    assert "a user of ten trips has ten times the epsilon" in done.err
    assert "not accounted: an account adds up epsilon per user, and this one is per trip" in done.out
    assert "nothing was spent" in mapveil("ledger").out
    (tmp_path / "f.csv").unlink()
    for flags in (("--dataset", "taxis"), ("--resume",)):
        refused = mapveil(
            "flows",
            trips,
            "--region",
            BOX,
            "--epsilon",
            "2",
            "--unit",
            "trip",
            *flags,
            "-o",
            tmp_path / "f.csv",
        )
        assert refused.code == 2
        assert "unit trip is charged to no account" in refused.err
        assert not (tmp_path / "f.csv").exists()


def test_candidates_are_the_only_pairs(mapveil: Callable, trips: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("origin,destination\n2,1\n0,3\n")
    done = mapveil("flows", trips, "--region", BOX, "--epsilon", "2", "--tiling", "grid:2x2", "--estimator", "lasso",
                   "--candidates", tmp_path / "pairs.csv", "--seed", "1", "-o", tmp_path / "f.csv")  # fmt: skip
    assert done.code == 0, done.err
    rows = (tmp_path / "f.csv").read_text().splitlines()[1:]
    assert {tuple(row.split(",")[:2]) for row in rows} <= {("2", "1"), ("0", "3")}


def test_positions_of_trips_are_accepted(mapveil: Callable, tmp_path: Path) -> None:
    rows = [
        f"u{user},{user},2024-01-01 00:{minute:02d}:00,{-8.66 + minute * 0.01},{41.12 + minute * 0.008}"
        for user in range(200)
        for minute in range(10)
    ]
    path = tmp_path / "positions.csv"
    path.write_text("\n".join(["user_id,traj_id,time,lon,lat", *rows]))
    done = mapveil("flows", path, "--region", BOX, "--epsilon", "3", "--tiling", "grid:2x2", "--json",
                   "-o", tmp_path / "f.csv")  # fmt: skip
    assert done.code == 0, done.err
    assert (
        json.loads(done.out)["notes"][0]
        == "200 users sent one report of one trip each: 61 % of them of both its ends, else of one"
    )


BAD = {
    "epsilon 0": (["--epsilon", "0"], "epsilon"),
    "epsilon below 0": (["--epsilon", "-1"], "epsilon"),
    "no number": (["--epsilon", "much"], "epsilon"),
    "one cell": (["--tiling", "grid:1x1"], "two or more"),
    "too many cells": (["--tiling", "grid:200x200"], "at most 4096"),
    "a little too many cells": (["--tiling", "grid:70x70"], "at most 4096"),
    "sets for the joint estimator": (["--method", "subset"], "one symbol each"),
    "unknown method": (["--method", "magic"], "magic"),
    "unknown option": (["--option", "magic=1"], "magic"),
    "suffix": (["-o", "flows.tif"], r"\.parquet"),
    "no folder": (["-o", "nowhere/flows.csv"], "nowhere"),
    "outside refused": (["--region", "-8.70,41.10,-8.60,41.22", "--option", "outside=refuse"], "outside"),
    "most": (["--most", "0"], "most must be"),
    "least": (["--least", "-1"], "least must be"),
    "no such column": (["--destination", "x,y"], "no column 'x'"),
    "one column": (["--origin", "lon"], "two columns"),
    "no candidates": (["--candidates", "none.csv"], "no such file"),
}


@pytest.mark.parametrize(("flags", "said"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_2_and_spends_nothing(
    mapveil: Callable,
    trips: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"--region": BOX, "--epsilon": "2", "-o": "good.csv"}
    given = [part for flag, part in arguments.items() if flag not in flags for part in (flag, part)]
    done = mapveil("flows", trips, *given, *flags)
    assert done.code == 2, done.err
    assert len(done.errors) == 1
    assert re.search(said, done.err)
    assert not list(tmp_path.glob("*.csv"))
    ledger = mapveil("ledger").out
    assert "nothing was spent" in ledger or "0 of 3 spent" in ledger


HEAD = "user_id,lon,lat,dest_lon,dest_lat\n"
BAD_TABLES = {
    "empty": ("", "empty"),
    "no rows": (HEAD, "no row|no trip|empty"),
    "no destinations": ("user_id,lon,lat\nu,-8.6,41.15\n", "destination|trip"),
    "no user": ("lon,lat,dest_lon,dest_lat\n-8.6,41.15,-8.6,41.15\n", "user"),
    "destination missing": (HEAD + "u,-8.6,41.15,-8.6,41.15\nv,-8.6,41.15,,\n", "row 2"),
    "destination not a number": (HEAD + "u,-8.6,41.15,-8.6,nan\n", "row 1"),
    "origin infinite": (HEAD + "u,-8.6,41.15,-8.6,41.15\nv,inf,41.15,-8.6,41.15\n", "row 2"),
    "destination out of range": (HEAD + "u,-8.6,41.15,-8.6,191.5\n", "row 1"),
}


@pytest.mark.parametrize(("text", "said"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_a_bad_table_is_one_line_and_exit_2(mapveil: Callable, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = mapveil("flows", path, "--region", BOX, "--epsilon", "1", "-o", tmp_path / "m.png")
    assert done.code == 2, done.err
    assert len(done.errors) == 1
    assert re.search(said, done.err)
    assert "bad.csv" in done.err
    assert "41.15" not in done.err
    assert not (tmp_path / "m.png").exists()


def test_a_spent_budget_stops_it_before_anything_is_written(
    mapveil: Callable, trips: Path, tmp_path: Path
) -> None:
    first = mapveil("flows", trips, "--region", BOX, "--epsilon", "2", "-o", tmp_path / "a.csv")
    assert first.code == 0
    second = mapveil("flows", trips, "--region", BOX, "--epsilon", "2", "-o", tmp_path / "b.csv")
    assert second.code == 1
    assert "mapveil ledger --ledger" in second.err
    assert not (tmp_path / "b.csv").exists()


def test_cells_that_follow_from_the_number_of_clients_are_named_in_the_guarantee(
    mapveil: Callable, trips: Path, tmp_path: Path
) -> None:
    def assumed(*cells: str) -> list[str]:
        asked = ("--region", BOX, *cells, "--epsilon", "1", "--option", "outside=nearest", "--json")
        done = mapveil("flows", trips, *asked, "-o", tmp_path / "a.csv")
        assert done.code == 0, done.err
        return [each["kind"] for each in json.loads(done.out)["guarantee"]["assumptions"]]

    assert "participation public" in assumed()
    assert "participation public" not in assumed("--tiling", "quadtree:1")


def test_zones_of_one_name_are_refused_before_the_charge(
    mapveil: Callable, trips: Path, tmp_path: Path
) -> None:
    halves = [[[w, 0.0], [w + 1, 0.0], [w + 1, 2.0], [w, 2.0], [w, 0.0]] for w in (0.0, 1.0)]
    features = [
        {
            "type": "Feature",
            "properties": {"name": "A", "code": f"A{at}"},
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }
        for at, ring in enumerate(halves)
    ]
    zones = tmp_path / "zones.geojson"
    zones.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    given = ("--trust", "central", "--zones", zones, "--epsilon", 1, "-o", tmp_path / "f.csv")
    done = mapveil("flows", trips, *given)
    assert (done.code, done.errors[-1]) == (
        2,
        "mapveil: error: zones must have different names, got 2 named 'A'; name another column for them: "
        "--zone-name COLUMN",
    )
    assert "nothing was spent yet" in mapveil("ledger").out


def test_a_column_of_times_and_invalid_zones_are_read_as_the_errors_say(
    mapveil: Callable, trips: Path, tmp_path: Path
) -> None:
    head, *rows = trips.read_text().splitlines()
    table, zones, out = tmp_path / "trips.csv", tmp_path / "zones.geojson", tmp_path / "f.csv"
    table.write_text("\n".join([f"{head},left", *(f"{row},2026-01-06" for row in rows)]))
    west, east = -8.70, -8.52
    rings = [  # the second crosses itself
        [[west, 41.10], [east, 41.10], [east, 41.15], [west, 41.15], [west, 41.10]],
        [[west, 41.15], [east, 41.22], [east, 41.15], [west, 41.22], [west, 41.15]],
    ]
    shapes = [{"type": "Polygon", "coordinates": [ring]} for ring in rings]
    features = [
        {"type": "Feature", "properties": {"name": str(at)}, "geometry": shape}
        for at, shape in enumerate(shapes)
    ]
    zones.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    weeks = ("--every", "1w", "--from", "2026-01-05", "--until", "2026-01-19")
    asked = ("flows", table, "--trust", "central", "--zones", zones, *weeks, "--epsilon", 1, "-o", out)
    assert "or give --repair" in mapveil(*asked).errors[-1]
    assert "name one: --time NAME" in mapveil(*asked, "--repair").errors[-1]
    assert "nothing was spent yet" in mapveil("ledger").out
    done = mapveil(*asked, "--repair", "--time", "left")
    assert done.code == 0, done.err
    for flag in ("--repair", "--zones-crs"):
        alone = ("flows", table, "--region", BOX, flag, *("EPSG:4326",) * (flag == "--zones-crs"))
        assert f"{flag} is for --zones only" in mapveil(*alone, "--epsilon", 1, "-o", out).errors[-1]


def test_what_is_no_trips_and_no_map_of_users_is_named() -> None:
    with pytest.raises(
        ParameterError, match=r"trips must be Trips, which .*read_trips makes of a table, got 'str'"
    ):
        mv.flows("trips.csv", "quadtree:3", epsilon=1)  # type: ignore[arg-type]
    with pytest.raises(
        ParameterError, match=r"before and after must be two maps of users; of flows: .*end_changes"
    ):
        mv.changes("a.parquet", "b.parquet", [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        (("--trust", "local", "--epsilon", "1"), True),
        (("--trust", "local", "--epsilon", "3"), False),
        (("--trust", "distributed", "--epsilon", "0.02"), True),
        (("--trust", "distributed", "--epsilon", "1"), False),
        (("--trust", "central", "--epsilon", "0.02", "--option", "users=2000"), True),
        (("--trust", "central", "--epsilon", "1", "--option", "users=2000"), False),
        (("--trust", "central", "--epsilon", "0.02"), False),
    ],
)
def test_too_little_epsilon_for_any_pair_is_said_before_the_charge(
    mapveil: Callable, trips: Path, tmp_path: Path, flags: tuple[str, ...], warned: bool
) -> None:
    """Nobody's table is asked: of a curator the number of users is known where it was declared."""
    done = mapveil("flows", trips, "--region", BOX, "--tiling", "quadtree:3", *flags, "--dry-run",
                   "-o", tmp_path / "f.csv")  # fmt: skip
    assert done.code == 0, done.err
    assert ("more than a tenth of all 2,000" in done.err) == warned
    assert ("is told from zero at best from about" in done.err) == (
        warned or flags[-2:] == ("--epsilon", "0.02")
    )
    assert "nothing was spent" in mapveil("ledger").out


def test_the_foreseen_number_counts_the_windows_that_a_user_counts_in(
    mapveil: Callable, trips: Path, tmp_path: Path
) -> None:
    """Of 2,000 users who may be in every one of 4 weeks an average window has 2,000; the noise is 4 times as wide."""
    weeks = ("--every", "1w", "--from", "2026-01-05", "--until", "2026-02-02", "--time-zone", "UTC")
    said = []
    for more in ((), ("--windows-per-user", "4")):
        done = mapveil("flows", trips, "--region", BOX, "--tiling", "quadtree:3", "--trust", "central", *weeks,
                       *more, "--epsilon", "0.05", "--option", "users=2000", "--dry-run",
                       "-o", tmp_path / "f.csv")  # fmt: skip
        said.append(
            re.search(r"at best from about ([\d,]+) users on in a window, .* of the ([\d,]+) of", done.err)
        )
    once, often = ([int(text.replace(",", "")) for text in each.groups()] for each in said)
    assert (once[1], often[1]) == (500, 2000)
    assert often[0] == pytest.approx(4 * once[0], rel=0.02)


def test_flows_that_are_foreseen_to_be_noise_are(mapveil: Callable, trips: Path, tmp_path: Path) -> None:
    for epsilon, warned in (("0.5", True), ("8", False)):
        done = mapveil("flows", trips, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", epsilon, "--seed", "3",
                       "-o", tmp_path / "f.csv")  # fmt: skip
        assert done.code == 0, done.err
        told = int(re.search(r"(\d+) of \d+ listed flows are told from zero", done.out + done.err)[1])
        assert ("few pairs will be, or none" in done.err) == warned
        assert (told < 5) == warned
