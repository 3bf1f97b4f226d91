"""The README's commands run as they are written, and its counts are those of the tables."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mapveil.mechanisms.methods import DEFAULT_METHODS, METHODS
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line.removeprefix("$ "), comments=True)
    for block in re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
]
NUMBERS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_runs_as_written(command: list[str], tmp_path: Path) -> None:
    program, *arguments = command
    if program == "make":
        # Making an environment takes minutes: what is run here is that the target is there.
        (target,) = arguments
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        return
    if program == "pip":
        assert arguments[0] == "install"
        extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", arguments[1])
        assert extras, arguments[1]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set((extras[1] or "").split(",")) - {""} <= set(project["optional-dependencies"])
        return
    assert program == ".venv/bin/mapveil", "the program that make demo installs"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-m", "mapveil", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "MAPVEIL_LEDGER": str(tmp_path / "ledger.sqlite")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs = [arguments[i + 1] for i, argument in enumerate(arguments) if argument == "-o"]
    assert outputs
    for output in outputs:
        assert (tmp_path / output).stat().st_size > 1000


def test_there_are_as_many_mechanisms_as_it_says() -> None:
    counts = {trust: sum(method.trust == trust for method in METHODS) for trust in DEFAULT_METHODS}
    counts["obfuscation"] = len(PRIVATIZERS)
    for trust, count in counts.items():
        (row,) = re.findall(rf"^\| `{trust}` \|.*$", README, flags=re.MULTILINE)
        said = re.search(r"\*\*yes\*\*: (\w+) (?:mechanisms|randomizers|privatizers)", row)
        assert said, row
        assert said[1] == NUMBERS[count], trust
