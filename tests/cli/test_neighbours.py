"""``mapveil neighbours``: from randomized reports and from released maps, and every bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import shapely

BOX = "-74.03,40.69,-73.90,40.83"


def test_writes_every_format_and_charges_the_ledger(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    suffixes = (".csv", ".tif", ".parquet", ".geojson", ".png", ".html")
    flags = [part for suffix in suffixes for part in ("-o", tmp_path / f"near{suffix}")]
    done = mapveil(
        "neighbours", table, "--region", BOX, "--tiling", "grid:8x8", "--epsilon", "2", "-k", "10", *flags
    )
    assert done.code == 0, done.err
    assert all((tmp_path / f"near{suffix}").stat().st_size > 500 for suffix in suffixes)
    assert "user-level, replace-one, (2, " in done.out
    assert "2 of 3 spent" in done.out
    assert "olh-h  grid:8x8" in mapveil("ledger").out
    assert (tmp_path / "near.csv").read_text().startswith('"cell","rank","neighbour","distance_m"\n')


def test_a_place_is_told_its_neighbours(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    done = mapveil("neighbours", table, "--region", BOX, "--tiling", "grid:8x8", "--epsilon", "3", "-k", "12",
                   "--at", "-73.98,40.75", "--at", "-73.95,40.80", "--evaluate", "--json")  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert [each["place"] for each in record["places"]] == [[-73.98, 40.75], [-73.95, 40.80]]
    for each in record["places"]:
        assert sum(row["users"] for row in each["neighbours"]) == 12
        far = [row["distance_m"] for row in each["neighbours"]]
        assert far == sorted(far)
        assert far[-1] == pytest.approx(each["radius_m"], abs=0.1)
    evaluation = record["evaluation"]
    assert set(evaluation) == {"normalised_mse", "precision", "recall", "common"}
    assert 0 < evaluation["common"] <= 1
    assert "do not publish" in done.err


def test_zones_are_cells(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    west, south, east, north = map(float, BOX.split(","))
    middle, path = (west + east) / 2, tmp_path / "halves.geojson"
    halves = [shapely.box(west, south, middle, north), shapely.box(middle, south, east, north)]
    features = [
        {"type": "Feature", "properties": {"name": name}, "geometry": shapely.geometry.mapping(half)}
        for name, half in zip(("West", "East"), halves, strict=True)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    done = mapveil(
        "neighbours", table, "--zones", path, "--epsilon", "3", "-k", "12", "-o", tmp_path / "near.csv"
    )
    assert done.code == 0, done.err
    lines = (tmp_path / "near.csv").read_text().splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {"0", "1"}
    both = mapveil("neighbours", table, "--zones", path, "--region", BOX, "--epsilon", "3")
    assert (both.code, len(both.errors)) == (2, 1)
    assert "leave out --region and --tiling" in both.err


def test_more_than_the_users_are_listed_short_and_noted(
    mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    path = tmp_path / "near.csv"
    done = mapveil("neighbours", table, "--region", BOX, "--tiling", "grid:8x8", "--epsilon", "2", "-k", "1000",
                   "--evaluate", "--json", "-o", path)  # fmt: skip
    assert done.code == 0, done.err
    assert set(json.loads(done.out)["evaluation"]) == {"normalised_mse", "precision", "recall", "common"}
    notes = json.loads((tmp_path / "near.csv-metadata.json").read_text())["notes"]
    assert "300 users reported, once each" in notes
    assert notes[-1] == "the map has fewer than 1000 users, so every list is shorter"
    ranks = [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]
    assert 290 <= max(ranks) <= 300
    assert "2 of 3 spent" in mapveil("ledger").out


def test_a_released_map_is_asked_for_nothing(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    released = tmp_path / "map.parquet"
    assert (
        mapveil(
            "release", table, "--region", BOX, "--tiling", "quadtree:4", "--epsilon", "1", "-o", released
        ).code
        == 0
    )
    before = mapveil("ledger").out
    done = mapveil("neighbours", released, "-k", "5", "--at", "-73.98,40.75", "-o", tmp_path / "near.png")
    assert done.code == 0, done.err
    assert "the 5 nearest users of -73.98, 40.75 are within" in done.out
    assert "user-level, add-or-remove, (1, " in done.out
    assert mapveil("ledger").out == before


def test_a_seed_repeats_marks_and_charges_nothing(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    made = []
    for name in ("a.csv", "b.csv"):
        done = mapveil("neighbours", table, "--region", BOX, "--tiling", "grid:8x8", "--epsilon", "2", "--seed", "3",
                       "-o", tmp_path / name)  # fmt: skip
        assert done.code == 0, done.err
        assert "NOT FOR RELEASE" in done.err
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert "nothing was spent" in mapveil("ledger").out


BAD = {
    "epsilon 0": (["--epsilon", "0"], "epsilon"),
    "epsilon below 0": (["--epsilon", "-2"], "epsilon"),
    "k": (["-k", "0"], "-k must be at least 1, got 0"),
    "one cell": (["--tiling", "grid:1x1"], "two or more"),
    "unknown method": (["--method", "magic"], "magic"),
    "a method of another trust": (["--method", "emd"], "emd"),
    "suffix": (["-o", "near.xyz"], r"\.csv"),
    "no folder": (["-o", "nowhere/near.csv"], "nowhere"),
    "a place outside": (["--at", "10,50"], "outside the map"),
    "a place without latitude": (["--at", "10"], "LON,LAT"),
    "a place that is none": (["--at", "nan,nan"], "outside the map|LON,LAT"),
    "more than fits": (["-k", "2000000"], "k must be from 1 to 1048576 on 64 cells, got 2000000"),
    "outside refused": (["--region", "-73.99,40.74,-73.95,40.79", "--option", "outside=refuse"], "outside"),
}


@pytest.mark.parametrize(("flags", "said"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_2_and_writes_nothing(
    mapveil: Callable,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"--region": BOX, "--epsilon": "2", "--tiling": "grid:8x8", "-o": "good.csv"}
    given = [part for flag, part in arguments.items() if flag not in flags for part in (flag, part)]
    done = mapveil("neighbours", table, *given, *flags)
    assert done.code == 2, done.err
    assert len(done.errors) == 1
    assert re.search(said, done.err)
    assert not list(tmp_path.glob("*.csv"))
    ledger = mapveil("ledger").out
    assert "nothing was spent" in ledger or "0 of 3 spent" in ledger


@pytest.mark.parametrize(
    "flags",
    [
        ["--region", BOX],
        ["--tiling", "grid:8x8"],
        ["--evaluate"],
        ["--method", "hr"],
        ["--places-are-public"],
        ["--accept-large-epsilon"],
    ],
)
def test_what_a_released_map_brings_cannot_be_given(mapveil: Callable, table: Path, flags: list[str]) -> None:
    done = mapveil("neighbours", table, *flags)
    assert done.code == 2
    assert "without --epsilon, INPUT is a released map" in done.err


def test_a_table_is_no_released_map(mapveil: Callable, table: Path) -> None:
    done = mapveil("neighbours", table)
    assert "give --epsilon" in done.err
    assert done.code == 2
    assert len(done.errors) == 1
