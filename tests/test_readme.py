"""The README's commands run as they are written, and its counts are those of the tables."""

from __future__ import annotations

import re
import shlex
import shutil
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


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that a fresh clone has, and a program of the name that an installation gives it."""
    folder = tmp_path_factory.mktemp("clone")
    if (ROOT / ".git").exists():
        subprocess.run(["git", "checkout-index", "--all", f"--prefix={folder}/"], cwd=ROOT, check=True)
    else:  # an unpacked source distribution
        for name in ("src", "examples"):
            shutil.copytree(ROOT / name, folder / name)
    for environment in (".venv", "env"):
        program = folder / environment / "bin" / "mapveil"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/src exec {sys.executable} -m mapveil "$@"\n')
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_runs_as_written(command: list[str], clone: Path, tmp_path: Path) -> None:
    program, *arguments = command
    if program == "make":
        # Making an environment takes minutes: `python -m benchmarks.first_hour --readme` does.
        (target,) = arguments
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        return
    if program == "python3":
        assert arguments == ["-m", "venv", "env"]
        return
    if program == "env/bin/pip":
        assert arguments[0] == "install"
        extras = re.fullmatch(r"\.\[([\w,]+)\]", arguments[1])
        assert extras, arguments[1]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
        return
    # Nothing of ours is on the path, and nobody's settings.
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=clone, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs = [arguments[i + 1] for i, argument in enumerate(arguments) if argument == "-o"]
    assert outputs
    for output in outputs:
        assert (clone / output).stat().st_size > 1000


def test_there_are_as_many_mechanisms_as_it_says() -> None:
    counts = {trust: sum(method.trust == trust for method in METHODS) for trust in DEFAULT_METHODS}
    counts["obfuscation"] = len(PRIVATIZERS)
    for trust, count in counts.items():
        (row,) = re.findall(rf"^\| `{trust}` \|.*$", README, flags=re.MULTILINE)
        said = re.search(r"\*\*yes\*\*: (\w+) (?:mechanisms|randomizers|privatizers)", row)
        assert said, row
        assert said[1] == NUMBERS[count], trust
