"""The frame of the commands: help, versions, unknown commands, and our own bugs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import mapveil as package
from mapveil.cli.app import app
from mapveil.engines.spark_errors import ClusterError
from mapveil.mechanisms.methods import DEFAULT_METHODS


def test_every_command_has_help_with_examples(mapveil: Callable) -> None:
    import click

    for name in app.list_commands(click.Context(app)):
        done = mapveil(name, "--help")
        assert done.code == 0
        assert "Examples:" in done.out, name


def test_version_and_unknown_commands(mapveil: Callable) -> None:
    assert package.__version__ in mapveil("--version").out
    unknown = mapveil("relase")
    assert unknown.code == 2
    assert "release" in unknown.err
    group = mapveil("series")
    assert (group.code, group.err.startswith("Usage: mapveil series [OPTIONS] COMMAND")) == (2, True)
    assert len(group.errors) > 10


def test_several_files_are_said_to_be_a_pattern(mapveil: Callable) -> None:
    several = mapveil("release", "a.csv", "a.csv", "--epsilon", "1", "-o", "map.html")
    assert several.code == 2
    assert "'visits-*.parquet', each once, for a file that is given twice is refused" in several.err
    assert "pattern" not in mapveil("ask", "map.tif", "other.tif").err


@pytest.mark.parametrize("command", ["release", "flows"])
def test_the_help_names_the_option_of_a_declared_number_of_users(mapveil: Callable, command: str) -> None:
    assert "such as users=N, a public number of users" in " ".join(mapveil(command, "--help").out.split())


def test_our_own_bug_is_said_to_be_one(mapveil: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from mapveil.cli import methods

    monkeypatch.setattr(methods, "METHODS", None)
    done = mapveil("methods")
    assert done.code == 1
    assert "internal error" in done.err
    assert "MAPVEIL_TRACEBACK" in done.err


def test_methods_lists_the_table(mapveil: Callable) -> None:
    records = json.loads(mapveil("methods", "--json").out)
    defaults = {record["trust"]: record["name"] for record in records if record["default"]}
    assert defaults == DEFAULT_METHODS
    assert "emd" in mapveil("methods").out


def test_doctor_finds_nothing_wrong_here(mapveil: Callable) -> None:
    done = mapveil("doctor", "--json")
    assert done.code == 0, done.out
    states = {finding["what"]: finding["state"] for finding in json.loads(done.out)}
    assert states["exact noise"] == states["engine"] == states["ledger"] == "ok"


def test_doctor_says_in_plain_words_what_fails(
    mapveil: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mapveil.cli.doctor.os.access", lambda *_: False)
    findings = {each["what"]: each for each in json.loads(mapveil("doctor", "--json").out)}
    assert findings["ledger"]["detail"].endswith("cannot be written; set MAPVEIL_LEDGER to a file that can")
    assert findings["ledger"]["detail"].startswith("/")

    def refused(_: str) -> str:
        raise ClusterError("engine nobody:1: no server answers")

    monkeypatch.setattr("mapveil.cli.doctor._cluster", refused)
    done = mapveil("doctor", "--engine", "sc://nobody:1", "--json")
    assert done.code == 1
    assert json.loads(done.out)[-1]["detail"] == "engine nobody:1: no server answers"


def test_doctor_knows_every_extra(mapveil: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"all"}
    monkeypatch.setattr("mapveil.cli.doctor._installed", lambda name: name != "scikit-learn")
    findings = {finding["what"]: finding for finding in json.loads(mapveil("doctor", "--json").out)}
    assert {what.removeprefix("extra ") for what in findings if what.startswith("extra ")} == extras
    assert findings["extra eval"]["state"] == "missing"
    assert findings["extra eval"]["detail"].endswith("brings scikit-learn")


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mapveil", "--version"], capture_output=True, text=True, check=True
    )
    assert package.__version__ in done.stdout


@pytest.mark.parametrize(
    ("typed", "at", "found"), [("mapveil rel", 1, "release"), ("mapveil ask m --zo", 3, "--zones")]
)
def test_the_shell_completes_commands_and_options(
    mapveil: Callable, monkeypatch: pytest.MonkeyPatch, typed: str, at: int, found: str
) -> None:
    for name, value in (
        ("_MAPVEIL_COMPLETE", "bash_complete"),
        ("COMP_WORDS", typed),
        ("COMP_CWORD", str(at)),
    ):
        monkeypatch.setenv(name, value)
    assert f"plain,{found}\n" in mapveil().out
