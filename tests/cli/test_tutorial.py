"""The commands of the tutorial of a year, as they stand there, from a folder of the repository's examples."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_commands_of_a_year_of_mondays_work_one_after_the_other(
    mapveil: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tutorial" / "year-of-mondays.md").read_text(encoding="utf-8")
    commands = [
        line.removeprefix("$ mapveil ") for line in text.splitlines() if line.startswith("$ mapveil ")
    ]
    assert len(commands) == 8
    for command in commands:
        done = mapveil(*shlex.split(command))
        assert done.code == 0, (command, done.err)
    assert "3 of 3 spent" in mapveil("ledger").out
    assert {"year.parquet", "year.png", "year.html", "week1.png", "week2.png"} <= {
        each.name for each in tmp_path.iterdir()
    }
