"""``mapveil release``: the good run, every bad input, and what must not leak."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.geo.parse_tiling import tiling_from_dict

BOX = "-74.03,40.69,-73.90,40.83"


def test_writes_every_format_and_charges_the_ledger(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"map{suffix}" for suffix in (".tif", ".parquet", ".geojson", ".png", ".html")]
    flags = [part for output in outputs for part in ("-o", output)]
    done = mapveil("release", table, "--region", BOX, "--tiling", "quadtree:5", "--epsilon", "1", *flags)
    assert done.code == 0, done.err
    assert all(output.stat().st_size > 500 for output in outputs)
    assert "user-level, add-or-remove, (1, " in done.out
    assert "1 of 3 spent" in done.out
    shown = mapveil("ledger")
    assert "multiscale" in shown.out
    assert "written" in shown.out


def test_json_is_one_document(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    done = mapveil(
        "release", table, "--region", BOX, "--epsilon", "1/3", "--tiling", "grid:8x6", "--method", "laplace",
        "--option", "clip=false", "-o", tmp_path / "m.geojson", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["guarantee"]["epsilon"] == "1/3"
    assert record["parameters"]["clip"] is False
    assert (record["tiling"]["rows"], record["tiling"]["columns"]) == (8, 6)
    assert record["ledger"]["spent"] == "1/3"


def test_the_budget_is_refused_and_nothing_is_written(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    arguments = ("release", table, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "2", "-o")
    assert mapveil(*arguments, tmp_path / "first.tif").code == 0
    refused = mapveil(*arguments, tmp_path / "second.tif")
    assert refused.code == 1
    assert re.search(r"mapveil ledger --ledger \S+ budget [0-9a-f]{12} 4$", refused.err.strip())
    assert not (tmp_path / "second.tif").exists()
    identity = re.search(r"account (\S+?):", mapveil("ledger").out)
    assert identity
    assert mapveil("ledger", "budget", identity[1], "10").code == 0
    assert mapveil(*arguments, tmp_path / "second.tif").code == 0


def test_one_name_means_one_budget(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(table.read_text() + "later,-73.95,40.75\n")
    for at, source in enumerate((table, other)):
        done = mapveil("release", source, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1.6",
                       "--dataset", "checkins", "-o", tmp_path / f"{at}.tif")  # fmt: skip
        assert done.code == at, done.err


def test_people_of_a_known_account_are_refused_until_one_says_who_they_are(
    mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half.csv"
    half.write_text("".join(table.read_text().splitlines(keepends=True)[:400]))
    release = ("--region", BOX, "--tiling", "quadtree:3", "--epsilon", "2", "-o")
    assert mapveil("release", table, *release, tmp_path / "whole.tif", "--dataset", "oslo").code == 0
    ledger = (tmp_path / "ledger.sqlite").read_bytes()
    refused = mapveil("release", half, *release, tmp_path / "half.tif")
    assert refused.code == 2
    assert (
        "has people in common with account oslo (about 100% of the smaller of the two), so nothing"
        in refused.err
    )
    assert "--other-people REASON" in refused.err
    assert not (tmp_path / "half.tif").exists()
    assert (tmp_path / "ledger.sqlite").read_bytes() == ledger
    joined = mapveil("release", half, *release, tmp_path / "half.tif", "--dataset", "oslo")
    assert joined.code == 1
    assert "account oslo: epsilon 2 asked, 2 of 3 spent" in joined.err
    stated = ("--dataset", "bergen", "--other-people", "numbered in each city")
    assert mapveil("release", half, *release, tmp_path / "half.tif", *stated).code == 0
    shown = mapveil("ledger", "--dataset", "bergen").out
    assert "account bergen: 2 of 3 spent per user, 1 left" in shown
    assert "other people than account oslo: numbered in each city" in shown


def test_an_account_shows_its_owner_its_reason_and_exact_sums(
    mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    assert mapveil("release", table, "--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1/3",
                   "--dataset", "oslo", "-o", tmp_path / "m.tif").code == 0  # fmt: skip
    because = ("--owner", "A. Nowak", "--reason", "ticket 481")
    assert mapveil("ledger", "budget", "oslo", "5", *because).out == "budget of oslo: 5\n"
    shown = mapveil("ledger").out
    assert "account oslo: 1/3 of 5 spent per user, 14/3 left" in shown
    assert "owner: A. Nowak" in shown
    assert "reason for the budget: ticket 481" in shown
    assert "default budget: 3\n" in mapveil("ledger").out


def test_a_seed_repeats_marks_and_charges_nothing(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    made = []
    for name in ("a.geojson", "b.geojson"):
        done = mapveil("release", table, "--region", BOX, "--tiling", "quadtree:4", "--epsilon", "1",
                       "--seed", "7", "-o", tmp_path / name)  # fmt: skip
        assert done.code == 0
        assert "NOT FOR RELEASE" in done.err
        assert "not for release" in done.out
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert b"not for release" in made[0]
    assert "nothing was spent" in mapveil("ledger").out


def test_without_a_region_a_tenth_of_epsilon_finds_one(mapveil: Callable, tmp_path: Path) -> None:
    region = mv.Region.from_bbox(139.4, 35.5, 139.9, 35.9)
    city = mv.synthetic.city(users=20_000, seed=2, region=region).arrays()
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "tokyo.parquet"
    pq.write_table(pa.table({"user_id": city.users, "lon": city.lon, "lat": city.lat}), path)
    done = mapveil(
        "release", path, "--tiling", "quadtree:6", "--epsilon", "1", "-o", tmp_path / "t.tif", "--json"
    )
    assert done.code == 0, done.err
    record = json.loads(done.out)
    purposes = [share["purpose"] for share in record["guarantee"]["shares"]]
    assert purposes[:2] == ["the region, cut 1: columns", "the region, cut 1: rows"]
    assert record["guarantee"]["epsilon_decimal"] == pytest.approx(1)
    found = tiling_from_dict(record["tiling"]).region.bbox
    assert 139.0 < found[0] < 139.7
    assert 139.6 < found[2] < 140.3


def test_nothing_about_the_data_is_printed(mapveil: Callable, tmp_path: Path) -> None:
    # Two tables of the same shape to the eye of the command: everything printed must be equal.
    said = []
    for users, shift in ((40, 0.0), (55, 0.01)):
        path = tmp_path / "table.csv"
        rows = [f"u{shift}-{i},{-73.95 + shift + i * 1e-4},{40.75 + i * 1e-4}" for i in range(users)]
        path.write_text("\n".join(["user_id,lon,lat", *rows, f"outside{shift},10,50"]))
        done = mapveil("release", path, "--region", BOX, "--tiling", "quadtree:4", "--method", "laplace",
                       "--epsilon", "1", "-o", tmp_path / "m.tif", "-v")  # fmt: skip
        assert done.code == 0
        said.append(re.sub(r"[0-9.]+ s\b|ledger: [0-9a-f]{16}", "T s", done.out + done.err))
    assert said[0] == said[1]


BAD_TABLES = {
    "empty file": ("", "empty"),
    "no lon": ("user_id,lat\nu,40.7\n", "lon"),
    "no user": ("lon,lat\n-73.9,40.7\n", "user"),
    "latitude out of range": ("user_id,lon,lat\nu,-73.9,140.7\n", "lat"),
    "swapped": ("user_id,lon,lat\nu,40.7,-173.9\nv,40.8,-173.8\n", "swapped"),
    "not a number": ("user_id,lon,lat\nu,-73.9,40.7\nv,nan,40.7\n", "row 2"),
    "infinite": ("user_id,lon,lat\nu,-73.9,40.7\nv,inf,40.7\n", "row 2"),
    "text in a number column": ("user_id,lon,lat\nu,-73.9,40.7\nv,west,40.7\n", "west"),
    "null user": ("user_id,lon,lat\nu,-73.9,40.7\n,-73.9,40.7\n", "user"),
    "blank latitude": (
        "user_id,lon,lat\nu,-73.9,40.7\nv,-73.9,\n",
        "row 2, column 'lat' is missing.*--on-bad-rows drop",
    ),
    "decimal comma": (
        'user_id,lon,lat\nu,"-1,73,9",40.7\n',
        "row 1, column 'lon' is '-1,73,9'; expected a longitude",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_a_bad_table_is_one_line_and_exit_2(
    mapveil: Callable, tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = mapveil("release", path, "--region", BOX, "--epsilon", "1", "-o", tmp_path / "m.tif")
    assert done.code == 2, done.err
    assert len(done.errors) == 1
    assert re.search(expected, done.errors[0])
    assert "bad.csv" in done.err
    assert not (tmp_path / "m.tif").exists()


def test_weights_are_asked_for_and_dropped_rows_are_counted_on_stderr(
    mapveil: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("user_id,lon,lat,visits\nann,-73.95,40.7,3\nbob,-73.95,40.75,0\ncem,-73.95,,1\n")
    ask = [
        "release",
        path,
        "--region",
        BOX,
        "--tiling",
        "grid:2x2",
        "--epsilon",
        "0.1",
        "-o",
        tmp_path / "m.tif",
    ]
    done = mapveil(*ask)
    assert "weight=none; a column 'visits' is there: --weight visits uses it" in done.err
    assert "row 3, column 'lat' is missing" in done.err
    done = mapveil(*ask, "--where", "lat IS NOT NULL", "--weight", "visits")
    assert "row 2, column 'visits' is '0'; expected a number from 1e-06 to 1e+12" in done.err
    assert json.loads(mapveil("ledger", "--json").out)["entries"] == []
    assert not (tmp_path / "m.tif").exists()
    done = mapveil(*ask, "--weight", "visits", "--on-bad-rows", "drop", "--json")
    assert done.code == 0, done.err
    assert "weight=visits" in done.err
    assert (
        "mapveil: warning: "
        + str(path)
        + ": dropped 2 of 3 rows, which cannot be used; keep these numbers private"
        in done.err
    )
    assert "dropped" not in done.out


def test_a_filter_is_charged_to_the_account_of_the_table(
    mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    ask = [
        "release",
        table,
        "--region",
        BOX,
        "--tiling",
        "grid:4x4",
        "--epsilon",
        "1.6",
        "-o",
        tmp_path / "m.tif",
    ]
    assert mapveil(*ask, "--where", "lon::DOUBLE < -73.95").code == 0
    done = mapveil(*ask, "--where", "lon::DOUBLE >= -73.95")
    assert done.code == 1
    assert "budget" in done.err
    done = mapveil(*ask, "--where", "length > 3")
    assert done.code == 2
    assert "no column 'length'; its columns are user_id, lon, lat" in done.err


def test_an_exhausted_budget_tells_nothing_of_a_region(
    mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    said = []
    for box in (BOX, "10,50,10.1,50.1"):  # the second holds nobody
        ask = ["release", table, "--region", box, "--tiling", "grid:4x4", "-o", tmp_path / "m.tif"]
        if not said:
            assert mapveil(*ask, "--epsilon", "3").code == 0
        done = mapveil(*ask, "--epsilon", "1")
        assert done.code == 1
        said.append(done.err)
    assert said[0] == said[1]
    assert mapveil("release", table, "--region", "10,50,10.1,50.1", "--epsilon", "1", "--tiling", "grid:4x4",
                   "--no-ledger", "-o", tmp_path / "empty.tif").code == 0  # fmt: skip


def test_a_truncated_parquet_and_missing_files(mapveil: Callable, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"user_id": [1], "lon": [-73.9], "lat": [40.7]}), path)
    path.write_bytes(path.read_bytes()[:-20])
    for source in (path, tmp_path / "missing.parquet", tmp_path / "none-*.parquet", tmp_path):
        done = mapveil("release", source, "--region", BOX, "--epsilon", "1", "-o", tmp_path / "m.tif")
        assert done.code == 2, done.err
        assert len(done.errors) == 1
    assert not (tmp_path / "m.tif").exists()


BAD_FLAGS = {
    "no epsilon": (["-o", "m.tif"], "epsilon"),
    "epsilon zero": (["--epsilon", "0", "-o", "m.tif"], "epsilon"),
    "epsilon text": (["--epsilon", "much", "-o", "m.tif"], "much"),
    "no output": (["--epsilon", "1"], "output"),
    "unknown suffix": (["--epsilon", "1", "-o", "m.xyz"], "xyz"),
    "no folder": (["--epsilon", "1", "-o", "nowhere/m.tif"], "nowhere"),
    "unknown method": (["--epsilon", "1", "-o", "m.tif", "--method", "heat"], "multiscale"),
    "unknown trust": (["--epsilon", "1", "-o", "m.tif", "--trust", "nobody"], "nobody"),
    "unknown option": (["--epsilon", "1", "-o", "m.tif", "--option", "depht=3"], "depht"),
    "option without value": (["--epsilon", "1", "-o", "m.tif", "--option", "depth"], "key=value"),
    "unknown tiling": (["--epsilon", "1", "-o", "m.tif", "--tiling", "triangle:3"], "triangle"),
    "too deep": (["--epsilon", "1", "-o", "m.tif", "--tiling", "quadtree:99"], "99"),
    "too many cells": (["--epsilon", "1", "-o", "m.tif", "--tiling", "quadtree:20"], "cells"),
    "negative merge": (["--epsilon", "1", "-o", "m.tif", "--merge-below", "-1"], "merge-below"),
    "negative smoothing": (["--epsilon", "1", "-o", "m.tif", "--smooth-m", "0"], "smooth-m"),
}


@pytest.mark.parametrize(("flags", "expected"), BAD_FLAGS.values(), ids=BAD_FLAGS.keys())
def test_bad_flags(
    mapveil: Callable,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = mapveil("release", table, "--region", BOX, *flags)
    assert done.code == 2, done.err
    assert expected in done.err
    assert len(done.errors) == 1
    assert not list(tmp_path.glob("m.*"))
    assert "nothing was spent" in mapveil("ledger").out


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_sites_too_close_to_draw_are_refused_before_the_charge(
    mapveil: Callable, table: Path, tmp_path: Path, trust: str
) -> None:
    sites = tmp_path / "sites.csv"
    sites.write_text("lon,lat\n-74.0,40.7\n-73.95,40.8\n-73.950000000001,40.8\n")
    done = mapveil("release", table, "--region", BOX, "--epsilon", "1", "--trust", trust,
                   "--tiling", f"places:{sites}", "-o", tmp_path / "map.parquet")  # fmt: skip
    assert done.code == 2, done.err
    assert "at least 0.0001 m apart" in done.err
    ledger = mapveil("ledger").out
    assert "nothing was spent" in ledger or "0 of 3 spent" in ledger


@pytest.mark.parametrize(
    "flags",
    [
        ("--region", BOX, "--tiling", "quadtree:4", "--method", "hierarchical", "--option", "level=99"),
        ("--region", BOX, "--tiling", "quadtree:4", "--method", "privtree", "--option", "theta=1e300"),
        ("--tiling", "nonsense"),
    ],
)
def test_a_refused_option_is_not_charged(
    mapveil: Callable, table: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    done = mapveil("release", table, *flags, "--epsilon", "1", "-o", tmp_path / "m.tif")
    assert done.code == 2, done.err
    ledger = mapveil("ledger").out
    assert "nothing was spent" in ledger or "0 of 3 spent" in ledger


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ("170,-10,-170,10", "antimeridian"),
        ("-74,40.8,-73,40.7", "south"),
        ("-74,40.8,-73", "west,south,east,north"),
        ("-74,140,-73,141", "lat"),
        ("a,b,c,d", "a,b,c,d"),
        ("nowhere.geojson", "nowhere.geojson"),
    ],
)
def test_bad_regions(mapveil: Callable, table: Path, tmp_path: Path, box: str, expected: str) -> None:
    done = mapveil("release", table, "--region", box, "--epsilon", "1", "-o", tmp_path / "m.tif")
    assert done.code == 2, done.err
    assert expected in done.err
    assert not (tmp_path / "m.tif").exists()


def test_counts_are_released_too(mapveil: Callable, tmp_path: Path) -> None:

    path = tmp_path / "grid.npz"
    np.savez(path, values=np.random.default_rng(1).poisson(3.0, (32, 48)))
    done = mapveil("release", path, "--epsilon", "1", "-o", tmp_path / "m.png")
    assert done.code == 0, done.err
    refused = mapveil("release", path, "--tiling", "quadtree:4", "--epsilon", "1", "-o", tmp_path / "n.png")
    assert refused.code == 2


def test_standard_input(
    mapveil: Callable, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    done = mapveil("release", "-", "--region", BOX, "--epsilon", "1", "-o", tmp_path / "m.png")
    assert done.code == 0, done.err
