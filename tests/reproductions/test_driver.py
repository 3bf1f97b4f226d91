"""The driver: sections by name, tasks run once, and reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from mapveil_client.errors import ParameterError
from reproductions.driver import PAPERS, Paper, Section, find_paper, reproduce
from reproductions.report import Claim, Report, Table
from reproductions.results import Outcome, Results, found_rows


class Found(NamedTuple):
    label: int
    metric: str
    value: float


RAN: list[int] = []


def run(task: int) -> Outcome:
    RAN.append(task)
    return Outcome((Found(task, "mse", float(task * task)),))


def section(key: str, *tasks: int) -> Section:
    def report(results: Results) -> Report:
        rows = [[f"{results.of(label=task).mean:g}" for task in tasks]]
        return Report([Table(key, ["a"] * len(tasks), rows)], (), [Claim("it is so", "holds in part", key)])

    return Section(key, lambda plan, shared, seed: list(tasks), report)


PAPER = Paper(
    "made up",
    "Nobody (2026), Nothing",
    "Less.",
    7,
    (
        section("table 1", 2, 3),
        section("figure 10", 3, 5),
        section("table beyond", 1),
        section("figure 1", 2),
    ),
    lambda quick: None,
    run,
    Results.gather,
    found_rows,
    lambda plan, shared: ["nothing", "A further paragraph."],
    needs=(),
)


def test_names_keep_their_order() -> None:
    assert PAPER.names("table") == ("1", "beyond")
    assert PAPER.names("figure") == ("10", "1")


def test_sections_are_chosen_by_kind_and_name() -> None:
    def keys(*names: list[str]) -> list[str]:
        return [each.key for each in PAPER.chosen(*names)]

    assert keys() == ["table 1", "figure 10", "table beyond", "figure 1"]
    assert keys(["1"], []) == ["table 1"]
    assert keys(["beyond"], ["1"]) == ["table beyond", "figure 1"]


@pytest.mark.parametrize(
    ("tables", "figures", "said"),
    [(["10"], [], "table must be one of 1, beyond"), ([], ["2"], "figure must")],
)
def test_an_unknown_section_is_refused(tables: list[str], figures: list[str], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        PAPER.chosen(tables, figures)


def test_equal_tasks_run_once_and_the_longest_first(tmp_path: Path) -> None:
    RAN.clear()
    made = reproduce(PAPER, tmp_path, out=tmp_path / "out", quick=True)
    assert RAN == [2, 3, 5, 1]
    assert made.reports["figure 10"].tables[0].rows == [["9", "25"]]
    assert [row[2] for row in made.rows] == [4, 9, 25, 1]
    text = made.text()
    assert "HOLDS IN PART: it is so" in text
    assert "table 1" in text
    page = (tmp_path / "out" / "tables.md").read_text()
    assert "A quick run: nothing; seed 7;" in page
    assert "A further paragraph." in page
    assert {path.name for path in made.paths} == {"rows.csv", "claims.csv", "tables.md", "index.html"}
    RAN.clear()
    reproduce(replace(PAPER, size=float), tmp_path, out=tmp_path / "out", tables=["1"], figures=["10"])
    assert RAN == [5, 3, 2]


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_is_found_by_its_name(name: str) -> None:
    paper = find_paper(name)
    assert paper.name == name
    assert len({each.key for each in paper.sections}) == len(paper.sections)
