"""``python -m reproductions``: good runs and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mapveil.cli.app import run
from reproductions.__main__ import papers
from reproductions.bagdasaryan.data import IMAGES, MANHATTAN
from reproductions.bagdasaryan.sections import Plan as SparsePlan
from reproductions.wang import staircase
from reproductions.wang.sections import Plan as LocalPlan
from reproductions.zong.sections import Plan as ProjectionPlan


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def reproductions(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``python -m reproductions ARGUMENTS``."""

    def call(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as stopped:
            run([str(argument) for argument in arguments], papers, "reproductions")
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(int(stopped.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparsePlan, "quick", classmethod(lambda cls: SparsePlan(2, True)))
    monkeypatch.setattr(LocalPlan, "quick", classmethod(lambda cls: LocalPlan(2, True, 1, 1)))
    monkeypatch.setattr(ProjectionPlan, "quick", classmethod(lambda cls: ProjectionPlan(2, 1, 4, 8, 1)))
    monkeypatch.setattr(staircase, "_PEOPLE", 400)


@pytest.mark.parametrize(
    ("paper", "asked", "says", "file"),
    [
        ("bagdasaryan", ("--figure", "9"), "Figure 9", "figure_9.png"),
        ("wang", ("--table", "1"), "L-SRR has less L1 than the relaxed notions", "index.html"),
        ("zong", ("--figure", "3"), "Figure 3", "figure_3.png"),
    ],
)
def test_one_section_is_run(
    reproductions: Callable, tmp_path: Path, paper: str, asked: tuple[str, str], says: str, file: str
) -> None:
    np.savez(tmp_path / IMAGES[MANHATTAN], values=np.random.default_rng(1).integers(0, 999, (32, 32)))
    out = tmp_path / "out"
    call = (paper, *asked, "--quick", "--workers", 1, "--shared", tmp_path, "-o", out)
    done = reproductions(*call)
    assert done.code == 0, done.err
    assert says in done.out
    assert "HOLD" in done.out
    assert f"wrote {out}" in done.out
    assert (out / file).is_file()
    record = json.loads(reproductions(*call, "--json").out)
    assert record["output"] == str(out)
    assert {claim["verdict"] for claim in record["claims"]} <= {"holds", "holds in part", "does not hold"}
    assert record["tables"][0]["rows"]


@pytest.mark.parametrize("paper", ["bagdasaryan", "wang", "zong", "ghazi"])
def test_absent_data_are_one_line(reproductions: Callable, tmp_path: Path, paper: str) -> None:
    done = reproductions(
        paper, "--table", {"ghazi": "users"}.get(paper, "1"), *(("--table", "5") if paper == "wang" else ()),
        "--shared", tmp_path, "-o", tmp_path / "out", "--workers", 1, "--quick",
    )  # fmt: skip
    assert done.code == 2
    assert "no such file; put the data sets" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_unknown_section_or_paper_is_said(reproductions: Callable) -> None:
    wrong = reproductions("wang", "--table", "2")
    assert wrong.code == 2
    assert "'2' is not one of 'beyond', '1', '3'" in wrong.err
    assert reproductions("nobody").code == 2
