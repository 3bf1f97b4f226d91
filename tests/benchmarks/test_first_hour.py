"""The tasks of the first hour are read from the tutorial as they stand there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.first_hour import ROOT, TUTORIAL, blocks, in_words, timed


def test_the_tutorial_has_twelve_tasks_and_its_figures_are_of_them() -> None:
    tasks = blocks(ROOT / TUTORIAL)
    assert [heading.partition(".")[0] for heading, _ in tasks] == [str(number) for number in range(1, 13)]
    measured = (ROOT / TUTORIAL).read_text(encoding="utf-8")
    for line in in_words([(heading, 1.0) for heading, _ in tasks]).splitlines():
        if line.startswith("| "):
            assert line.rpartition("|")[0].rpartition("|")[0] in measured, line


def test_tasks_share_one_shell_and_a_failure_is_named(tmp_path: Path) -> None:
    here = subprocess.run(["pwd"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    found = timed(tmp_path, [("one", "place=$PWD\n"), ("two", f'test "$place" = "{here}"\n')], tmp_path)
    assert [heading for heading, _ in found] == ["one", "two"]
    with pytest.raises(SystemExit, match="under 'three'"):
        timed(tmp_path, [("three", "false\necho never\n")], tmp_path)
