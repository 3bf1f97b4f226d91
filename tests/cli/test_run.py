"""``mapveil run``: a release from a file, every fault with its line, and the file's hash in the record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import mapveil as mv
from mapveil.formats.content_hash import CONTENT_KEY

BOX = "-74.03,40.69,-73.90,40.83"


@pytest.fixture
def file(table: Path, tmp_path: Path) -> Path:
    path = tmp_path / "release.yaml"
    lines = [
        f"input: {table}",
        f"region: [{BOX}]",
        "tiling: quadtree:3",
        "epsilon: 1/2",
        "method: laplace",
        "option:",
        "  clip: false",
        f"output: {tmp_path / 'map.parquet'}",
        "quiet: true",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_is_released_and_its_hash_recorded(mapveil: Callable, file: Path, tmp_path: Path) -> None:
    done = mapveil("run", file)
    assert done.code == 0, done.err
    sheet = mv.inspect(tmp_path / "map.parquet")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert sheet.record["provenance"]["options"]["run_file_sha256"] == digest
    assert "run_file_replaced" not in sheet.record["provenance"]["options"]
    assert (str(sheet.guarantee.epsilon), sheet.record["parameters"]["clip"]) == ("1/2", False)
    other = tmp_path / "other.csv"
    replaced = mapveil("run", file, "-o", other, "--epsilon", "1", "--json")
    assert json.loads(replaced.out)["outputs"][0] == str(other)
    assert json.loads(replaced.out)["guarantee"]["epsilon"] == "1"
    assert json.loads(replaced.out)["ledger"]["spent"] == "3/2"


def test_the_record_names_the_options_that_replaced_those_of_the_file(
    mapveil: Callable, file: Path, tmp_path: Path
) -> None:
    done = mapveil(
        "run", file, "--epsilon", "1", "--where", "lat::DOUBLE > 40.7", "-o", tmp_path / "b.geojson"
    )
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "b.geojson").read_text())["mapveil"]["provenance"]["options"]
    assert record["run_file_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert record["run_file_replaced"] == ["epsilon", "output", "where"]
    assert "run_file_replaced=epsilon,output,where" in mapveil("inspect", tmp_path / "b.geojson").out


def test_the_hash_of_a_filter_on_ids_is_not_told(mapveil: Callable, file: Path, tmp_path: Path) -> None:
    file.write_text(file.read_text() + "where: user_id <> 'ann'\n")
    assert mapveil("run", file).code == 0
    assert "run_file_sha256" not in mv.inspect(tmp_path / "map.parquet").record["provenance"]["options"]


def test_saved_options_are_those_of_the_run(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    saved, output = tmp_path / "saved.yaml", tmp_path / "a.geojson"
    asked = ("release", table, "--region", BOX, "--tiling", "grid:4x4", "--epsilon", "1", "--seed", "7")
    options = ("--option", "clip=false", "--method", "laplace", "--where", "lat::DOUBLE > 40.7", "-o", output)
    assert mapveil(*asked, *options, "--save", saved).code == 0
    first = output.read_text()
    output.unlink()
    done = mapveil("run", saved)
    assert done.code == 0, done.err
    ran, asked_for = json.loads(output.read_text()), json.loads(first)
    assert ran["mapveil"]["provenance"]["options"].pop("run_file_sha256")
    assert ran["mapveil"].pop(CONTENT_KEY) != asked_for["mapveil"].pop(CONTENT_KEY)
    assert ran == asked_for


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("epsilon:", "epsilom:"), "line 4: release has no option 'epsilom'; did you mean 'epsilon'?"),
        (("1/2", "half"), "line 4: epsilon: epsilon must be a finite number above 0"),
        (("1/2", "[1, [2]]"), "line 4: expected a text, a number or a list of them"),
        (("1/2", ""), "line 4: epsilon has no value; leave the line out for its default"),
        (("quiet: true", "quiet: yes"), "line 9: quiet must be true or false, got yes"),
        (("quiet: true", "epsilon: 2"), "line 9: 'epsilon' is given twice, first in line 4"),
        (("quiet: true", "resume: true"), "line 9: release has no option 'resume'"),
        (
            ("quiet: true", "command: rm"),
            "line 9: command must be one of release, flows, neighbours, got 'rm'",
        ),
        (("map.parquet", "map.doc"), "line 8: output: -o "),
        (("tiling: quadtree:3", "tiling: 'quadtree:3"), "no YAML ("),
        (("clip: false", "clap: false"), "laplace has no option 'clap'"),
        (("input:", "#"), "Missing argument 'INPUT'"),
    ],
)
def test_a_fault_is_one_line_that_names_its_own(
    mapveil: Callable, file: Path, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    file.write_text(file.read_text().replace(*change))
    done = mapveil("run", file)
    assert done.code == 2
    assert said in done.errors[-1]
    assert len(done.errors) == 1
    assert not (tmp_path / "map.parquet").exists()


def test_other_texts_are_no_run_files(mapveil: Callable, tmp_path: Path) -> None:
    for name, text in (
        ("list", b"- 1\n"),
        ("empty", b""),
        ("bytes", b"\xff\xfe\x00"),
        ("many", b"a: 1\n---\nb: 2\n"),
    ):
        (tmp_path / name).write_bytes(text)
        done = mapveil("run", tmp_path / name)
        assert done.code == 2
        assert "internal error" not in done.err
    assert "cannot be read" in mapveil("run", tmp_path / "none").err
