"""``mapveil release --trust projection``: what was measured is in the guarantee, and warned of where it is small."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

BOX = "-74.03,40.69,-73.90,40.83"


def arguments(table: Path, features: int, output: Path) -> tuple[object, ...]:
    return (
        "release", table, "--region", BOX, "--tiling", "quadtree:6", "--trust", "projection",
        "--option", f"features={features}", "--option", "bandwidth_m=150", "--seed", "3", "-o", output, "--json",
    )  # fmt: skip


@pytest.mark.parametrize("features", [1, 3])
def test_a_release_carries_what_was_measured_and_warns(
    mapveil: Callable, table: Path, tmp_path: Path, features: int
) -> None:
    done = mapveil(*arguments(table, features, tmp_path / "waves.geojson"))
    assert done.code == 0, done.err
    assert "not differential privacy" in done.err
    assert ("as good as found: 1 place left, error 0 m" in done.err) == (features == 3)
    record = json.loads(done.out)
    measured = {(each["quantity"], each["against"]): each for each in record["guarantee"]["measured"]}
    for server in ("a server that knows the region only", "a server that knows this map"):
        error = measured["posterior error", server]
        blind = measured["error of a guess without the report", server]
        assert error["unit"] == blind["unit"] == "m"
        assert 3000 < blind["value"] < 6000
        assert error["value"] == 0 if features == 3 else error["value"] > 0.8 * blind["value"]
        assert "equally likely cells of 161 m" in measured["places left", server]["unit"]
    assert any(note.startswith("WARNING") for note in record["notes"]) == (features == 3)
    assert "posterior error" in record["guarantee_in_words"]


def test_it_needs_a_region_and_metres(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    call = arguments(table, 1, tmp_path / "waves.geojson")
    done = mapveil(*call[:2], *call[4:])
    assert done.code == 2
    assert "--region" in done.err
    degrees = [str(each).replace("=150", "=0.0015") for each in call]
    done = mapveil(*degrees)
    assert done.code == 2
    assert "degrees" in done.err
    assert not (tmp_path / "waves.geojson").exists()
