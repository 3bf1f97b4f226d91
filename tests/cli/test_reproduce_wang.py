"""``reproduce wang``: a good run and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reproductions.wang import staircase as wang_staircase
from reproductions.wang.sections import Plan


def test_one_table_is_run(mapveil: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "quick", classmethod(lambda cls: Plan(2, True, 1, 1)))
    monkeypatch.setattr(wang_staircase, "_PEOPLE", 400)
    out = tmp_path / "out"
    asked = ("reproduce", "wang", "--table", "1", "--quick", "--workers", 1, "-o", out)
    done = mapveil(*asked)
    assert done.code == 0, done.err
    assert "Table 1" in done.out
    assert "L-SRR has less L1 than the relaxed notions" in done.out
    assert f"wrote {out}" in done.out
    assert (out / "index.html").is_file()
    record = json.loads(mapveil(*asked, "--json").out)
    assert record["output"] == str(out)
    assert {claim["verdict"] for claim in record["claims"]} <= {"holds", "holds in part", "does not hold"}
    assert len(record["tables"][0]["rows"]) == 8


def test_what_is_wrong_is_said(mapveil: Callable, tmp_path: Path) -> None:
    missing = mapveil(
        "reproduce", "wang", "--table", "5", "--shared", tmp_path, "-o", tmp_path / "out", "--workers", 1
    )
    assert missing.code == 2
    assert "no such file" in missing.err
    assert not (tmp_path / "out").exists()
    wrong = mapveil("reproduce", "wang", "--table", "2")
    assert wrong.code == 2
    assert "'2' is not one of 'beyond', '1', '3'" in wrong.err
