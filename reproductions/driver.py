"""The driver of all reproductions: sections by name, tasks in processes, and the report of what they found."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from mapveil.evaluation.trials import Progress, in_processes
from mapveil_client.errors import ParameterError, require
from reproductions.report import Claim, Report, report_text, write_report

PAPERS: Final = ("ghazi", "bagdasaryan", "wang", "zong", "zhang")
"""Names of the papers, by trust model: curator, secure aggregation, local, random features, obfuscation."""


class Section(NamedTuple):
    """A table or a figure: the tasks that it needs, and its report of their answers."""

    key: str  # kind and name, such as "table 1" or "figure 10"
    jobs: Callable[
        [Any, Path, int], Sequence[Any]
    ]  # of plan, shared folder and seed; equal tasks are run once
    report: Callable[..., Report]  # of the results of its tasks, see Paper.results


@dataclass(frozen=True)
class Paper:
    """A paper whose experiments can be run.

    Parameters
    ----------
    name : str
        Folder of its modules.
    title : str
        Citation and title.
    quick : str
        Words for ``--quick``: what it leaves out.
    seed : int
        Default seed.
    sections : tuple of Section
        Tables and figures, in the order of the report.
    plan : callable
        Takes ``quick``; returns how much of everything is run.
    run : callable
        Runs a task; a function of a module, so that processes can be given it.
    results : callable
        Takes tasks and answers of one section; returns the arguments of its ``report``.
    rows : callable
        Takes all answers; returns header and rows of ``rows.csv``.
    preface : callable
        Takes plan and shared folder; returns what was run, and further paragraphs of the page.
    size : callable, optional
        Relative duration of a task: the longest run first, so that no process is left with one at the end.
    needs : tuple of (module, extra)
        Modules without which no section can run.
    """

    name: str
    title: str
    quick: str
    seed: int
    sections: tuple[Section, ...]
    plan: Callable[[bool], Any]
    run: Callable[[Any], Any]
    results: Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]
    rows: Callable[[Iterable[Any]], tuple[Sequence[str], Sequence[Sequence[object]]]]
    preface: Callable[[Any, Path], Sequence[str]]
    size: Callable[[Any], float] | None = None
    needs: tuple[tuple[str, str], ...] = (("matplotlib", "viz"),)

    def names(self, kind: str) -> tuple[str, ...]:
        """Names of the sections of one kind, ``"table"`` or ``"figure"``, in order."""
        keys = (section.key.partition(" ") for section in self.sections)
        return tuple(name for found, _, name in keys if found == kind)

    def chosen(self, tables: Sequence[str] = (), figures: Sequence[str] = ()) -> tuple[Section, ...]:
        """The named sections; all of them without a name."""
        for kind, given in (("table", tables), ("figure", figures)):
            if unknown := [name for name in given if name not in self.names(kind)]:
                known = ", ".join(self.names(kind))
                raise ParameterError(f"{kind} must be one of {known or 'none'}, got {unknown[0]!r}")
        keys = {f"table {name}" for name in tables} | {f"figure {name}" for name in figures}
        return tuple(section for section in self.sections if not keys or section.key in keys)


class Reproduction(NamedTuple):
    """The outcome of a run, and the paths written. Not private."""

    claims: tuple[Claim, ...]
    reports: dict[str, Report]  # by key of the section
    rows: Sequence[Sequence[object]]  # every measured value
    paths: tuple[Path, ...]

    def text(self) -> str:
        """The tables, the claims and the verdicts, for a terminal."""
        return report_text(self.reports.values(), self.claims)


def find_paper(name: str) -> Paper:
    """The paper of one of :data:`PAPERS`; its modules are loaded here."""
    found: Paper = importlib.import_module(f"reproductions.{name}.paper").PAPER
    return found


def reproduce(
    paper: Paper,
    shared: Path,
    *,
    out: Path,
    tables: Sequence[str] = (),
    figures: Sequence[str] = (),
    quick: bool = False,
    seed: int | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Run a paper's experiments, and write tables, pictures and one page. Reads true locations: not private.

    Parameters
    ----------
    paper : Paper
        The paper.
    shared : Path
        Folder of the data sets.
    out : Path
        Folder to write to; created where it is missing.
    tables, figures : sequence of str
        Only these; all sections without either.
    quick : bool
        Less of everything: minutes.
    seed : int, optional
        The same seed gives the same figures, except for times.
    workers : int
        Processes; with more than 1 a script must guard its entry.
    progress : callable, optional
        Receives the name of a step and the fraction done.
    """
    for module, extra in paper.needs:
        require(module, extra)
    chosen, plan = paper.chosen(tables, figures), paper.plan(quick)
    seed = paper.seed if seed is None else seed
    start = time.perf_counter()
    asked = {section.key: list(section.jobs(plan, shared, seed)) for section in chosen}
    tasks = list(dict.fromkeys(task for jobs in asked.values() for task in jobs))
    if paper.size is not None:
        tasks.sort(key=paper.size, reverse=True)
    found = in_processes(paper.run, tasks, workers=workers, progress=progress, step="trials")
    answers = dict(zip(tasks, found, strict=True))
    reports = {
        section.key: section.report(
            *paper.results(asked[section.key], [answers[task] for task in asked[section.key]])
        )
        for section in chosen
    }
    claims = tuple(claim for report in reports.values() for claim in report.claims)
    ran, *more = paper.preface(plan, shared)
    minutes = (time.perf_counter() - start) / 60
    about = (
        f"{'A quick run' if quick else 'The full run'}: {ran}; seed {seed}; {minutes:.1f} minutes. Intervals are 95 % "
        "(Student's t)."
    )
    header, rows = paper.rows(answers.values())
    title = f"Reproduction of {paper.title}"
    paths = write_report(out, title, [about, *more], reports.values(), claims, header, rows)
    return Reproduction(claims, reports, rows, tuple(paths))
