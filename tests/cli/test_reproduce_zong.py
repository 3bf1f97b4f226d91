"""``reproduce zong``: a good run and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reproductions.zong.sections import Plan


def test_one_figure_is_run(mapveil: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "quick", classmethod(lambda cls: Plan(2, 1, 4, 8, 1)))
    out = tmp_path / "out"
    done = mapveil("reproduce", "zong", "--figure", "3", "--quick", "--workers", 1, "-o", out)
    assert done.code == 0, done.err
    assert "Figure 3" in done.out
    assert "HOLDS" in done.out
    assert f"wrote {out}" in done.out
    assert (out / "figure_3.png").is_file()
    again = mapveil("reproduce", "zong", "--figure", "3", "--quick", "--workers", 1, "-o", out, "--json")
    record = json.loads(again.out)
    assert record["output"] == str(out)
    assert {claim["verdict"] for claim in record["claims"]} <= {"holds", "holds in part", "does not hold"}
    assert len(record["tables"][0]["rows"]) == 4


def test_what_is_wrong_is_said(mapveil: Callable, tmp_path: Path) -> None:
    missing = mapveil(
        "reproduce", "zong", "--table", "1", "--shared", tmp_path, "-o", tmp_path / "out", "--workers", 1
    )
    assert missing.code == 2
    assert "no such file" in missing.err
    assert not (tmp_path / "out").exists()
    wrong = mapveil("reproduce", "zong", "--figure", "4")
    assert wrong.code == 2
    assert "'4' is not one of '3', '10', '11'" in wrong.err
