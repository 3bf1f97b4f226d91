"""``mapveil release --trust random-features``: the guarantee carries what was measured; warnings where it is small."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

BOX = "-74.03,40.69,-73.90,40.83"


def arguments(table: Path, features: int, output: Path) -> tuple[object, ...]:
    return (
        "release", table, "--region", BOX, "--tiling", "quadtree:6", "--trust", "random-features",
        "--option", f"features={features}", "--option", "bandwidth_m=150", "--option", "least_signal=0",
        "--seed", "3", "-o", output, "--json",
    )  # fmt: skip


@pytest.mark.parametrize("features", [1, 3])
def test_a_release_carries_what_was_measured_and_warns(
    mapveil: Callable, table: Path, tmp_path: Path, features: int
) -> None:
    edges = dict(zip(("west", "south", "east", "north"), map(float, BOX.split(",")), strict=True))
    np.savez(tmp_path / "people.npz", values=np.random.default_rng(1).poisson(3.0, (16, 16)), **edges)
    call = arguments(table, features, tmp_path / "features.geojson")
    done = mapveil(*call, "--option", f"population={tmp_path / 'people.npz'}")
    assert done.code == 0, done.err
    assert "not differential privacy" in done.err
    assert ("as good as found: 1 place left, error 0 m" in done.err) == (features == 3)
    record = json.loads(done.out)
    measured = {(each["quantity"], each["against"]): each for each in record["guarantee"]["measured"]}
    for server in ("a server that knows the region only", "a server that knows an external population"):
        error = measured["posterior error", server]
        blind = measured["error of a guess without the report", server]
        assert error["unit"] == blind["unit"] == "m"
        assert 3000 < blind["value"] < 6000
        assert error["value"] == 0 if features == 3 else error["value"] > 0.8 * blind["value"]
        assert "equally likely cells of 161 m" in measured["places left", server]["unit"]
    assert any(note.startswith("WARNING") for note in record["notes"]) == (features == 3)
    assert "posterior error" in record["guarantee_in_words"]


def test_it_needs_a_region_and_metres(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    call = arguments(table, 1, tmp_path / "features.geojson")
    done = mapveil(*call[:2], *call[4:])
    assert done.code == 2
    assert "--region" in done.err
    degrees = [str(each).replace("=150", "=0.0015") for each in call]
    done = mapveil(*degrees)
    assert done.code == 2
    assert "degrees" in done.err
    assert not (tmp_path / "features.geojson").exists()


@pytest.mark.parametrize(
    ("box", "option", "code", "expected"),
    [
        (BOX, "bandwidth_m=0", 2, "bandwidth_m must be"),
        (BOX, "bandwidth_m=-150", 2, "bandwidth_m must be"),
        (BOX, "bandwidth_m=nan", 2, "bandwidth_m must be"),
        (BOX, "bandwidth_m=0.0015", 2, "if these are degrees, give 166"),
        (BOX, "features=0", 2, "features must be"),
        (BOX, "features=1.5", 2, "features must be"),
        (BOX, "kernel=round", 2, "cauchy, matern-3/2, matern-5/2, matern-7/2, got 'round'"),
        (BOX, "jitter_m=-1", 2, "jitter_m must be"),
        ("-74.03,40.69,-74.03,40.83", "features=1", 2, "west -74.03 is not less than east"),
        ("-74.03,40.69,-73.90,40.69", "features=1", 2, "south 40.69 is not less than north"),
        # A promise that cannot be kept, whatever the table: the devices do not answer.
        (BOX, "bandwidth_m=300", 1, "the device's policy refuses the query: bandwidth must be at most"),
        ("-73.965,40.805,-73.960,40.810", "bandwidth_m=5", 1, "must be at least 1000 m, got"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    mapveil: Callable, table: Path, tmp_path: Path, box: str, option: str, code: int, expected: str
) -> None:
    output = tmp_path / "features.geojson"
    done = mapveil(
        "release", table, "--region", box, "--tiling", "quadtree:5", "--trust", "random-features", "--option", option,
        "-o", output,
    )  # fmt: skip
    assert done.code == code, done.err
    assert expected in done.err
    assert len(done.errors) == 1
    assert not done.out
    assert not list(tmp_path.iterdir())


def test_a_place_that_is_no_number_is_named(mapveil: Callable, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("user,lon,lat\n1,-74,40.7\n2,nan,40.75\n")
    done = mapveil(
        "release", table, "--region", BOX, "--trust", "random-features", "-o", tmp_path / "features.tif"
    )
    assert done.code == 2
    assert "row 2, column 'lon' is 'nan'" in done.err
    assert not (tmp_path / "features.tif").exists()
