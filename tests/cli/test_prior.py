"""``mapveil release --prior`` and ``--aim``: recorded, or refused before the charge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

BOX = "-74.03,40.69,-73.90,40.83"


def test_an_aim_and_a_prior_are_flags_and_recorded(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    west, south, east, north = (float(part) for part in BOX.split(","))
    edges = {"west": west, "south": south, "east": east, "north": north}
    np.savez(tmp_path / "census.npz", values=np.arange(1.0, 17).reshape(4, 4), **edges, license="CC0")
    dry = mapveil(
        "release", table, "--region", BOX, "--tiling", "quadtree:4", "--epsilon", "1", "--aim", "totals",
        "--prior", tmp_path / "census.npz", "-o", tmp_path / "m.geojson", "--dry-run",
    )  # fmt: skip
    assert dry.code == 0, dry.err
    rows = [" ".join(line.split()) for line in dry.out.splitlines()]
    assert "aim totals" in rows
    assert "prior census.npz (stated to be public); not in the predicted error" in rows
    done = mapveil(
        "release", table, "--region", BOX, "--tiling", "quadtree:4", "--epsilon", "1", "--aim", "totals",
        "--prior", tmp_path / "census.npz", "-o", tmp_path / "m.geojson", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["parameters"]["aim"] == "totals"
    assert record["parameters"]["prior"]["licence"] == "CC0"
    assert record["guarantee"]["epsilon"] == "1"
    assert str(tmp_path) not in done.out.replace(str(tmp_path / "m.geojson"), "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--method", "laplace", "--aim", "totals"), "laplace takes no aim; the methods that do: multiscale"),
        (("--trust", "distributed", "--aim", "totals"), "aim must be none under trust distributed"),
        (("--prior", "TABLE"), "a prior must be a raster"),
        (("--prior", "FLAT"), "flat.npy states no reference system and bounds"),
        (("--prior", "DRAWN"), ".geojson, .json, .gpkg or .csv files; a picture carries no values"),
    ],
)
def test_an_aim_or_a_prior_that_cannot_be_is_refused_uncharged(
    mapveil: Callable, table: Path, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    files = {"TABLE": table, "FLAT": tmp_path / "flat.npy", "DRAWN": tmp_path / "drawn.png"}
    np.save(files["FLAT"], np.ones((4, 4)))
    files["DRAWN"].touch()
    given = [files.get(flag, flag) for flag in flags]
    done = mapveil("release", table, "--region", BOX, "--epsilon", "1", *given, "-o", tmp_path / "m.csv")
    assert done.code != 0
    (line,) = done.errors
    assert message in line
    assert not (tmp_path / "m.csv").exists()
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_prior_is_no_output(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    before = tmp_path / "before.geojson"
    flags = ("--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1/2")
    assert mapveil("release", table, *flags, "-o", before).code == 0
    refused = mapveil("release", table, *flags, "--prior", before, "-o", before)
    assert refused.code != 0
    assert "is the input; name another file" in refused.err
