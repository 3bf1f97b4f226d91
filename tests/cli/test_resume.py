"""``--resume``: what was charged is written, after kill -9, Ctrl-C and a full disk; and no oracle without a budget."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.formats import atomic

BOX = "-74.03,40.69,-73.90,40.83"
RELEASE = ("--region", BOX, "--tiling", "quadtree:4", "--epsilon", "2")


def entries(mapveil: Callable) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(mapveil("ledger", "--json").out)["entries"]
    return listed


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A disk that is full when the outputs are renamed into place; the function makes room."""
    real = os.replace

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "replace", full)
    return lambda: monkeypatch.setattr(atomic.os, "replace", real)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("release", ("--region", BOX, "--tiling", "quadtree:4")),
        ("release", ("--region", BOX, "--tiling", "quadtree:4", "--trust", "distributed")),
        ("release", ("--region", BOX, "--tiling", "quadtree:4", "--smooth-m", "100")),
        ("neighbours", ("--region", BOX, "--tiling", "grid:8x8")),
    ],
)
def test_a_full_disk_costs_nothing(
    mapveil: Callable,
    table: Path,
    tmp_path: Path,
    no_room: Callable[[], None],
    command: str,
    more: tuple[str, ...],
) -> None:
    full, roomy = tmp_path / "full.tif", tmp_path / "roomy.tif"
    asked = (command, table, *more, "--epsilon", "2")
    failed = mapveil(*asked, "-o", full)
    assert failed.code == 1
    assert not full.exists()
    charged = re.search(
        r"No space left on device.*; epsilon 2 is charged \(spend ([0-9a-f]{16})\)", failed.err
    )
    assert charged is not None, failed.err
    assert "--resume" in failed.err
    before = entries(mapveil)
    shown = mapveil("ledger").out
    assert f"{charged[1]}  " in shown
    assert "unwritten: --resume" in shown
    refused = mapveil("ledger", "annul", charged[1], "--reason", "no output")
    assert refused.code == 2
    assert "--resume instead" in refused.err
    no_room()
    done = mapveil(*asked, "-o", roomy, "--resume")
    assert done.code == 0, done.err
    assert mv.read_map(roomy).guarantee.account is not None
    after = entries(mapveil)
    assert [entry["id"] for entry in after] == [entry["id"] for entry in before]
    assert {entry["status"] for entry in after} == {"written"}
    assert {tuple(entry["outputs"]) for entry in after} == {("roomy.tif",)}
    assert list(tmp_path.glob("*.answers*")) == []
    again = mapveil(*asked, "-o", roomy, "--resume")
    assert again.code == 2
    assert "nothing is unwritten" in again.err


def test_flows_are_resumed(mapveil: Callable, tmp_path: Path, no_room: Callable[[], None]) -> None:
    table = tmp_path / "trips.csv"
    rows = [f"u{at},-8.66,41.12,-8.56,41.20" for at in range(300)]
    table.write_text("\n".join(["user_id,lon,lat,dest_lon,dest_lat", *rows]))
    asked = (
        "flows",
        table,
        "--region",
        "-8.70,41.10,-8.52,41.22",
        "--epsilon",
        "2",
        "-o",
        tmp_path / "f.csv",
    )
    assert "epsilon 2 is charged" in mapveil(*asked).err
    no_room()
    assert mapveil(*asked, "--resume").code == 0
    assert [entry["epsilon"] for entry in entries(mapveil)] == ["2"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_killed_command_is_resumed(
    mapveil: Callable, table: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    output = tmp_path / "map.tif"
    asked = ["release", str(table), *RELEASE, "-o", str(output)]
    script = (
        "import signal, sys, time\n"
        "from mapveil.cli.app import run\n"
        "from mapveil.formats.atomic import atomic_path\n"
        "from mapveil.maps.density_map import DensityMap\n"
        "def wait(heat, path):\n"
        "    with atomic_path(path):\n"
        "        print('writing', flush=True)\n"
        "        time.sleep(3600)\n"
        "DensityMap.save = wait\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it\n"
        "run(sys.argv[1:])\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "writing\n"
    running.send_signal(number)
    _, said = running.communicate(timeout=600)
    assert running.returncode == code, said
    if number != signal.SIGKILL:
        assert not list(tmp_path.glob(".*partial*"))
        assert "interrupted; nothing more was written; epsilon 2 is charged" in said
    assert not output.exists()
    done = mapveil(*asked, "--resume")
    assert done.code == 0, done.err
    assert [(entry["epsilon"], entry["status"]) for entry in entries(mapveil)] == [("2", "written")]


def test_resume_needs_the_same_request_and_a_ledger(
    mapveil: Callable, table: Path, tmp_path: Path, no_room: Callable[[], None]
) -> None:
    output = tmp_path / "m.tif"
    mapveil("release", table, *RELEASE, "-o", output)
    no_room()
    for change, said in (
        (("--epsilon", "1"), "no unwritten release of this request can be resumed; unwritten: [0-9a-f]{16} "),
        (("--tiling", "quadtree:5"), r"\(multiscale quadtree:4 -74.03,40.69,-73.9,40.83 epsilon 2\)"),
        (("--where", "lon::DOUBLE > -73.95"), "repeat that request with --resume"),
        (("--seed", "1"), "leave out --no-ledger and --seed"),
        (("--no-ledger",), "leave out --no-ledger and --seed"),
    ):
        refused = mapveil("release", table, *RELEASE, *change, "-o", output, "--resume")
        assert refused.code == 2
        assert re.search(said, refused.err), refused.err
        assert not output.exists()
    assert [entry["epsilon"] for entry in entries(mapveil)] == ["2"]


def test_a_kept_answer_is_pointed_at_before_it_is_paid_for_again(
    mapveil: Callable, table: Path, tmp_path: Path, no_room: Callable[[], None]
) -> None:
    asked = ("release", table, *RELEASE[:-1], "1", "--where", "lat::DOUBLE > 40.7", "-o", tmp_path / "m.tif")
    first = mapveil(*asked)
    assert "is kept (spend" not in first.err
    again = mapveil(*asked)
    assert "warning: an answer to this request is kept (spend " in again.err
    assert [entry["epsilon"] for entry in entries(mapveil)] == ["1", "1"]
    refused = mapveil(*asked, "--where", "lat::DOUBLE > 40.8", "--resume")
    assert "epsilon 1 where lat::DOUBLE > 40.7)" in refused.err
    for kept in tmp_path.glob("*.answers"):
        kept.write_bytes(b"")  # the write-ahead log of a crash was lost
    lost = mapveil(*asked, "--resume")
    assert lost.code == 2
    assert "(its answers file is empty, so that its answer is lost)" in lost.err
    assert "unwritten: its answer is lost" in mapveil("ledger").out


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_an_exhausted_budget_answers_alike_whether_or_not_anybody_is_there(
    mapveil: Callable, table: Path, tmp_path: Path, trust: str
) -> None:
    output = tmp_path / "m.tif"
    asked = ("release", table, "--trust", trust, "--tiling", "quadtree:3", "--epsilon", "2", "-o", output)
    assert mapveil(*asked, "--region", BOX).code == 0
    output.unlink()
    full, empty = (mapveil(*asked, "--region", box) for box in (BOX, "10.0,50.0,10.1,50.1"))
    assert full == empty
    assert full.code == 1
    assert "2 of 3 spent" in full.err
    assert not output.exists()
    assert [entry["epsilon"] for entry in entries(mapveil) if entry["status"] != "written"] == []


@pytest.mark.parametrize("users", ["25", "301", "1000000"])
def test_an_exhausted_budget_of_neighbours_answers_alike(mapveil: Callable, table: Path, users: str) -> None:
    asked = ("neighbours", table, "--tiling", "grid:8x8", "--epsilon", "2")
    assert mapveil(*asked, "--region", BOX).code == 0
    half, away = "-74.03,40.69,-73.97,40.76", "10.0,50.0,10.1,50.1"
    full, some, empty = (mapveil(*asked, "-k", users, "--region", box) for box in (BOX, half, away))
    assert full == some == empty
    assert full.code == 1
    assert "2 of 3 spent" in full.err


def test_an_exhausted_budget_of_trips_answers_alike(mapveil: Callable, tmp_path: Path) -> None:
    table = tmp_path / "trips.csv"
    rows = [f"u{at},-8.66,41.12,-8.56,41.20" for at in range(300)]
    table.write_text("\n".join(["user_id,lon,lat,dest_lon,dest_lat", *rows]))
    asked = ("flows", table, "--epsilon", "2", "-o", tmp_path / "f.csv")
    box, away = "-8.70,41.10,-8.52,41.22", "10.0,50.0,10.1,50.1"
    assert mapveil(*asked, "--region", box).code == 0
    for tiling in ((), ("--tiling", "grid:4x4")):
        full, empty = (mapveil(*asked, *tiling, "--region", region) for region in (box, away))
        assert full == empty
        assert "2 of 3 spent" in full.err


@pytest.mark.parametrize(
    ("command", "name", "flags"),
    [
        ("release", "m.tif", ("--tiling", "h3:7", "--region", BOX)),
        ("release", "m.tiff", ("--tiling", "h3:7")),
        ("release", "m.tif", ("--tiling", "places:sites.csv", "--region", BOX, "--trust", "local")),
        ("neighbours", "m.tif", ("--tiling", "h3:7", "--region", BOX)),
        ("release", "m.geojson", ("plane.npz",)),
    ],
)
def test_a_format_that_cannot_hold_the_cells_is_refused_before_the_charge(
    mapveil: Callable,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    name: str,
    flags: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sites.csv").write_text("lon,lat\n-74.0,40.7\n-73.95,40.8\n")
    np.savez("plane.npz", np.full((8, 8), 9))
    given = flags if flags == ("plane.npz",) else (table, *flags)
    done = mapveil(command, *given, "--epsilon", "1", "-o", "first.parquet", "-o", name)
    assert done.code == 2
    said = "GeoJSON holds places on Earth" if name == "m.geojson" else "GeoTIFF holds a raster"
    assert f"error: {name}: {said}" in done.errors[-1]
    assert entries(mapveil) == []
    assert not Path("first.parquet").exists()
    assert not Path(name).exists()
