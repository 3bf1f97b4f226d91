"""``-o -``: one output on standard output, everything else on stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BOX = "-74.03,40.69,-73.90,40.83"
SEEDED = ("--region", BOX, "--tiling", "quadtree:3", "--epsilon", "1", "--seed", "3")


class Bytes(io.TextIOWrapper):
    """A standard output that keeps its bytes."""

    def __init__(self, *, terminal: bool = False) -> None:
        self.held = io.BytesIO()
        self.terminal = terminal
        super().__init__(self.held, encoding="utf-8")

    def isatty(self) -> bool:
        return self.terminal


def test_standard_output_is_the_file_alone(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.geojson"
    mapveil("release", table, *SEEDED, "-o", path)
    done = mapveil("release", table, *SEEDED, "-o", "-")
    assert done.code == 0, done.err
    assert done.out.encode() == path.read_bytes()
    assert "Guarantee" in done.err
    record = mapveil("release", table, *SEEDED, "-o", "-.csv", "--json")
    assert record.out.startswith('"cell",')
    assert json.loads(record.err[record.err.index("{\n") :])["outputs"] == ["-"]


def test_other_formats_are_whole(
    mapveil: Callable, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "map.parquet"
    mapveil("release", table, *SEEDED, "-o", path)
    stdout = Bytes()
    monkeypatch.setattr(sys, "stdout", stdout)
    assert mapveil("release", table, *SEEDED, "-o", "-.parquet").code == 0
    assert stdout.held.getvalue() == path.read_bytes()


def test_what_standard_output_cannot_take_is_refused_before_the_charge(
    mapveil: Callable, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged = ("release", table, *SEEDED[:-2])
    assert "only one output" in mapveil(*charged, "-o", "-", "-o", "-.csv").err
    assert "-o -.doc: the suffix must be one of" in mapveil(*charged, "-o", "-.doc").err
    monkeypatch.setattr(sys, "stdout", Bytes(terminal=True))
    assert "-o -.tif: .tif is no text for a terminal" in mapveil(*charged, "-o", "-.tif").err
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_reader_that_has_left_does_not_lose_the_answer(
    mapveil: Callable, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("shutil.copyfileobj", gone)
    done = mapveil("release", table, *SEEDED[:-2], "-o", "-")
    assert done.code == 141
    assert "epsilon 1 is charged (spend " in done.err
