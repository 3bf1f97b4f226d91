"""``--dry-run``: the description of a release, and nothing charged or written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from mapveil.cli.console import save_all

BOX = "-74.03,40.69,-73.90,40.83"
TILING = ("--tiling", "quadtree:3")
WEEKS = ("--every", "1w", "--from", "2026-01-05", "--until", "2026-01-19")
RELEASE = ("--region", BOX, *TILING, "--epsilon", "1")


def measurements(path: Path, users: int) -> Path:
    """Measurements of signal strength, 20 of each user."""
    rows = [
        f"{at % users},{40.70 + at % 37 / 400},{-74.02 + at % 41 / 400},{-80 - at % 31},2026-01-06 10:00:00"
        for at in range(20 * users)
    ]
    path.write_text("\n".join(["user_id,lat,lon,rss_dbm,time", *rows]))
    return path


@pytest.mark.parametrize(
    "flags",
    [
        ("release", *RELEASE, "--option", "users=300"),
        ("release", *TILING, "--epsilon", "1"),
        ("release", *RELEASE, "--trust", "distributed"),
        ("release", *RELEASE, "--trust", "local"),
        ("release", *RELEASE, "--seed", "1", "--method", "laplace"),
        ("release", "--region", BOX, *TILING, "--trust", "random-features"),
        ("neighbours", *RELEASE),
        ("flows", *RELEASE),
        ("flows", *RELEASE, "--unit", "trip"),
        *(("signal sums", *RELEASE, "--unit", unit) for unit in ("user", "user's day", "trace")),
        ("signal sums", *RELEASE, "--unit", "trace", "--trust", "distributed"),
        ("release", *RELEASE, *WEEKS),
        ("release", *RELEASE, *WEEKS, "--per", "user-week"),
    ],
    ids=" ".join,
)
def test_nothing_is_charged_or_written(
    mapveil: Callable, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    if flags[0] == "flows":
        rows = [f"u{at},-74.0,40.7,-73.95,40.8" for at in range(60)]
        table = tmp_path / "trips.csv"
        table.write_text("\n".join(["user_id,lon,lat,dest_lon,dest_lat", *rows]))
    if flags[0] == "signal sums":
        flags = (*flags, "--pilot", str(measurements(tmp_path / "pilot.csv", 4)))
        table = measurements(tmp_path / "phones.csv", 60)
    if "--every" in flags:
        rows = [f"u{at},-74.0,40.7,2026-01-{6 + at % 12:02}" for at in range(60)]
        table = tmp_path / "visits.csv"
        table.write_text("\n".join(["user_id,lon,lat,time", *rows]))
    before = sorted(tmp_path.iterdir())
    done = mapveil(*flags[0].split(), table, *flags[1:], "-o", "map.parquet", "--dry-run", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["dry_run"]
    assert record["outputs"] == ["map.parquet"]
    if {"random-features", "trip", "trace", "user's day", "--seed"} & set(flags):
        assert record["charge"] is None
    else:
        after = "2" if "user-week" in flags else "1"
        assert record["charge"] == {"account": None, "spent": "0", "spent_after": after, "budget": "3"}
    assert ("300" in record.get("predicted", {})) == ("users=300" in flags)
    assert ("design" in record) == (flags[0] == "signal sums")
    assert sorted(tmp_path.iterdir()) == before


def test_a_map_too_large_to_predict_says_so(mapveil: Callable, table: Path) -> None:
    flags = ("--region", BOX, "--tiling", "quadtree:9", "--epsilon", "1", "-o", "m.tif", "--dry-run")
    done = mapveil("release", table, *flags)
    assert done.code == 0, done.err
    assert done.out.count("quadtree:9: not predicted, for the map has more than 65,536 cells") == 3


def test_the_account_stays_as_it_is(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    assert mapveil("release", table, *RELEASE, "--dataset", "oslo", "-o", tmp_path / "m.csv").code == 0
    ledger = (tmp_path / "ledger.sqlite").read_bytes()
    asked = (
        "release",
        table,
        "--region",
        BOX,
        *TILING,
        "--method",
        "laplace",
        "--option",
        "clip=false",
        "--dry-run",
    )
    done = mapveil(*asked, "--epsilon", "1.5", "-o", tmp_path / "other.csv")
    assert "charge epsilon 1.5 to account oslo" in " ".join(done.out.split())
    assert "1 of 3 spent, 2 left; after the release 2.5 of 3 spent, 0.5 left" in done.out
    refused = mapveil(*asked, "--epsilon", "2.5", "-o", tmp_path / "other.csv")
    assert refused.code == 1
    assert f"{tmp_path / 'ledger.sqlite'}: account oslo: epsilon 2.5 asked" in refused.err
    assert (tmp_path / "ledger.sqlite").read_bytes() == ledger
    assert not (tmp_path / "other.csv").exists()


def test_a_rehearsal_writes_the_run_file_alone_and_says_what_its_prediction_rests_on(
    mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    asked = ("release", table, *RELEASE, "--option", "users=300", "-o", tmp_path / "m.csv", "--dry-run")
    done = mapveil(*asked, "--save", tmp_path / "saved.yaml")
    assert done.code == 0, done.err
    assert "dry run: everything was checked; no release was charged, drawn or written" in done.out
    assert "(2 synthetic cities)" in done.out
    assert [each.name for each in tmp_path.iterdir()] == ["saved.yaml"]


def test_what_a_release_refuses_a_rehearsal_refuses(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    for change, said in (
        (("--tiling", "h3:7"), "GeoTIFF holds a raster"),
        (("--where", "nothing > 1"), "nothing"),
        (("--resume",), "leave out --resume"),
        (("--epsilon", "4"), f"{tmp_path / 'ledger.sqlite'}: a new account: epsilon 4 asked"),
    ):
        done = mapveil("release", table, *RELEASE, "-o", tmp_path / "m.tif", *change, "--dry-run")
        assert done.code in (1, 2)
        assert said in done.err
    assert list(tmp_path.iterdir()) == []
    done = mapveil("neighbours", tmp_path / "map.tif", "--dry-run")
    assert "--dry-run is for a table with --epsilon" in done.err


def test_a_rehearsal_that_is_not_ended_writes_nothing(tmp_path: Path) -> None:
    context = click.Context(click.Command("release"))
    context.params["dry_run"] = True
    with context, pytest.raises(AssertionError, match="a rehearsal writes nothing"):
        save_all([tmp_path / "map.csv"], lambda path: path.write_text("noise"), lambda step, done: None)
    assert list(tmp_path.iterdir()) == []
