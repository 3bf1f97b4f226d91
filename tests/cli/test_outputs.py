"""Outputs: never a file that the command reads, and all of them or none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

BOX = "-74.03,40.69,-73.90,40.83"
RELEASE = ("--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1")


@pytest.fixture
def source(table: Path, tmp_path: Path) -> Path:
    """A table of its own, which a mistake may overwrite."""
    return Path(shutil.copy(table, tmp_path / "s2.csv"))


@pytest.mark.parametrize("spelling", ["s2.csv", "./s2.csv", "linked.csv", "folder/../s2.csv"])
def test_an_output_is_not_the_input(
    mapveil: Callable, source: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(source.parent)
    Path("folder").mkdir()
    Path("linked.csv").symlink_to("s2.csv")
    before = source.read_bytes()
    for read in ("s2.csv", "s*.csv"):
        done = mapveil("release", read, *RELEASE, "-o", spelling)
        assert done.code == 2
        assert done.err == f"mapveil: error: -o {Path(spelling)}: is the input; name another file\n"
    assert source.read_bytes() == before
    assert "nothing was spent" in mapveil("ledger").out


def test_an_output_is_no_other_file_that_is_read(mapveil: Callable, source: Path, tmp_path: Path) -> None:
    for command in (
        ("flows", source, "--region", BOX, "--epsilon", "1"),
        ("signal", "privatize", "fit.mapveil", source),
        ("signal", "map", "private.parquet", "--truth", source),
        ("release", "t.csv", "--region", BOX, "--tiling", f"places:{source}", "--epsilon", "1"),
    ):
        done = mapveil(*command, "-o", source)
        assert (done.code, done.err) == (2, f"mapveil: error: -o {source}: is the input; name another file\n")
    area = tmp_path / "area.geojson"
    ring = [[-74.0, 40.7], [-73.9, 40.7], [-73.9, 40.8], [-74.0, 40.7]]
    area.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    assert "is the input" in mapveil("release", source, "--region", area, "--epsilon", "1", "-o", area).err
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("origin,destination\n0,1\n")
    flows = ("flows", source, "--region", BOX, "--epsilon", "1", "--candidates", pairs)
    assert "is the input" in mapveil(*flows, "-o", pairs).err


def test_the_metadata_beside_a_csv_are_an_output_too(mapveil: Callable, source: Path, tmp_path: Path) -> None:
    area = tmp_path / "map.csv-metadata.json"
    ring = [[-74.0, 40.7], [-73.9, 40.7], [-73.9, 40.8], [-74.0, 40.7]]
    area.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    before = area.read_bytes()
    done = mapveil("release", source, "--region", area, "--epsilon", "1", "-o", tmp_path / "map.csv")
    said = f"-o {tmp_path / 'map.csv'}: its metadata file {area} is the input; name another file"
    assert (done.code, done.err) == (2, f"mapveil: error: {said}\n")
    assert area.read_bytes() == before
    assert "nothing was spent" in mapveil("ledger").out


def test_a_plan_does_not_replace_its_region(mapveil: Callable, tmp_path: Path) -> None:
    area = tmp_path / "area.geojson"
    area.write_text("{}")
    for output in (area, tmp_path / "nowhere" / "plan.csv"):
        assert mapveil("plan", "--users", "9", "--region", BOX, "-o", output).code == 2
    assert area.read_text() == "{}"


def test_an_output_is_not_the_ledger(
    mapveil: Callable, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "led.parquet"
    named = mapveil("release", source, *RELEASE, "--ledger", ledger, "-o", ledger)
    monkeypatch.setenv("MAPVEIL_LEDGER", str(ledger))
    default = mapveil("release", source, *RELEASE, "-o", ledger)
    expected = f"mapveil: error: -o {ledger}: is the ledger; name another file\n"
    assert (named.err, default.err) == (expected, expected)
    assert not ledger.exists()


def test_no_output_is_given_twice(
    mapveil: Callable, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = mapveil("release", source, *RELEASE, "-o", "e.html", "-o", "./e.html")
    assert (done.code, done.err) == (2, "mapveil: error: -o e.html: is given twice; name another file\n")


def test_a_title_may_be_the_name_of_a_file(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    output = tmp_path / "attack.html"
    output.write_text("old")
    command = ("attack", "random-features", table, "--region", BOX, "--title", output, "-o", output)
    assert "name another file" not in mapveil(*command, "--features", "0").err


def test_a_folder_that_cannot_be_written_is_seen_before_the_charge(
    mapveil: Callable, source: Path, tmp_path: Path
) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("needs a folder that nobody can write to")
    done = mapveil("release", source, *RELEASE, "-o", tmp_path / "ok.csv", "-o", "/proc/x.html")
    assert done.code == 2
    assert "/proc/x.html: cannot be written" in done.err
    assert "nothing was spent" in mapveil("ledger").out
    assert sorted(os.listdir(tmp_path)) == ["s2.csv"]


def test_a_failed_write_leaves_no_output(
    mapveil: Callable, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapveil.maps.density_map import DensityMap

    save = DensityMap.save

    def failing(heat: DensityMap, path: Path) -> None:
        if path.suffix == ".html":
            raise OSError(28, "No space left on device")
        save(heat, path)

    monkeypatch.setattr(DensityMap, "save", failing)
    done = mapveil("release", source, *RELEASE, "-o", tmp_path / "ok.csv", "-o", tmp_path / "x.html")
    assert done.code == 1
    kept = sorted(name for name in os.listdir(tmp_path) if not name.endswith(".answers"))
    assert kept == ["ledger.sqlite", "s2.csv"]


@pytest.mark.parametrize("epsilon", ["1e400", "1e-400", "1e999999999"])
def test_an_epsilon_far_from_any_use_is_one_short_line(
    mapveil: Callable, source: Path, tmp_path: Path, epsilon: str
) -> None:
    plan = ("plan", "--users", "9", "--region", BOX)
    release = ("release", source, "--region", BOX, "-o", tmp_path / "m.csv")
    for command in (plan, release, ("compare", source)):
        done = mapveil(*command, "--epsilon", epsilon)
        assert done.code == 2
        assert done.err == f"mapveil: error: epsilon must be between 1e-12 and 1e12, got {epsilon}\n"
    done = mapveil("ledger", "budget", "default", epsilon)
    assert done.err == f"mapveil: error: budget must be between 1e-12 and 1e12, got {epsilon}\n"


def test_the_ledger_as_json_has_null_and_numbers(mapveil: Callable, source: Path, tmp_path: Path) -> None:
    assert mapveil("release", source, *RELEASE, "-o", tmp_path / "m.csv").code == 0
    (account,) = json.loads(mapveil("ledger", "--json").out)["accounts"]
    assert (account["name"], account["releases"], account["spent"]) == (None, 1, "1")


@pytest.mark.parametrize("option", ["sigma=-1", "sigma=1001"])
def test_a_bound_of_a_privatizer_is_a_sentence(
    mapveil: Callable, source: Path, tmp_path: Path, option: str
) -> None:
    fit = ("signal", "fit", source, "--privatizer", "gaussian-noise", "--option", option)
    done = mapveil(*fit, "-o", tmp_path / "noise.mapveil")
    assert done.err.startswith("mapveil: error: sigma must be a number from 1e-6 to 1000, got ")
