"""The reproduction of Wang et al. (2022): runs the experiments, judges the claims, writes the report.

``mapveil reproduce wang`` calls :func:`wang`. It reads the places of public research sets in the clear; nothing in its
report is private.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from mapveil.evaluation.trials import Progress
from reproductions.reproduction import write_report
from reproductions.sections import Reproduction, answer_once, chosen_sections, names_of
from reproductions.wang.beyond import BEYOND_TABLE
from reproductions.wang.collections import Collection, run_collection
from reproductions.wang.density import DENSITY
from reproductions.wang.flows import FIGURE_10, FlowJob, run_flows
from reproductions.wang.routes import ROUTES, RouteJob, run_routes
from reproductions.wang.sections import Found, Outcome, Plan, Results, Section
from reproductions.wang.staircase import (
    STAIRCASE,
    CentralJob,
    RelaxedJob,
    StairJob,
    run_central,
    run_relaxed,
    run_stairs,
)


def _in_order(section: Section) -> tuple[bool, int]:
    kind, _, number = section.key.partition(" ")
    return number.isdigit() and kind == "table", int(number) if number.isdigit() else -1


SECTIONS: Final = tuple(sorted((BEYOND_TABLE, *STAIRCASE, *DENSITY, FIGURE_10, *ROUTES), key=_in_order))
"""What goes beyond the paper, then its figures and tables by number."""


TABLES: Final = names_of(SECTIONS, "table")
"""What ``--table`` accepts: the paper's number, and the table that it does not have."""

FIGURES: Final = names_of(SECTIONS, "figure")
"""What ``--figure`` accepts."""


def wang(
    shared: Path,
    *,
    out: Path,
    tables: Sequence[str] = (),
    figures: Sequence[str] = (),
    quick: bool = False,
    seed: int = 2022,
    workers: int = 1,
    progress: Progress | None = None,
) -> Reproduction[Found]:
    """Run the paper's experiments and write tables, pictures and one page.

    Parameters
    ----------
    shared : Path
        The folder of the shared data sets, see :mod:`reproductions.wang.data`.
    out : Path
        The folder to write to; made where it is not there.
    tables, figures : sequence of str
        Only these of :data:`TABLES` and :data:`FIGURES`; everything without either.
    quick : bool
        Two seeds, and fewer epsilons.
    seed : int
        The same seed gives the same numbers.
    workers : int
        Processes; with more than 1 a script must guard its entry.
    progress : callable, optional
        Told the step's name and the done part.

    Returns
    -------
    Reproduction
        Tables, claims with verdicts, the paths written, and all rows.

    Raises
    ------
    ParameterError
        There is no such table or figure, or no number of processes.
    InputError
        A data set is not there, or the folder cannot be written to.
    MissingExtra
        matplotlib is not installed.
    """
    plan = Plan.quick() if quick else Plan.full()
    chosen = chosen_sections(SECTIONS, tables, figures)
    start = time.perf_counter()
    asked = {section.key: list(section.jobs(plan, shared, seed)) for section in chosen}
    answers = answer_once(asked, run_task, workers=workers, progress=progress)
    reports = {
        section.key: section.report(
            Results([row for task in asked[section.key] for row in answers[task].found])
        )
        for section in chosen
    }
    rows = tuple(row for answer in answers.values() for row in answer.found)
    claims = tuple(claim for report in reports.values() for claim in report.claims)
    preface = _preface(plan, quick, seed, (time.perf_counter() - start) / 60)
    title = "Reproduction of Wang et al. (2022), L-SRR: Staircase randomized response"
    files = {"rows.csv": (Found._fields, rows)}
    paths = write_report(out, title, preface, reports.values(), claims, files)
    return Reproduction(claims, reports, rows, tuple(paths))


_RUNS: Final[dict[type, Callable[[Any], Outcome]]] = {
    Collection: run_collection,
    StairJob: run_stairs,
    RelaxedJob: run_relaxed,
    CentralJob: run_central,
    FlowJob: run_flows,
    RouteJob: run_routes,
}


def run_task(task: Collection | StairJob | RelaxedJob | CentralJob | FlowJob | RouteJob) -> Outcome:
    """Run a task of any section."""
    return _RUNS[type(task)](task)


def _preface(plan: Plan, quick: bool, seed: int, minutes: float) -> list[str]:
    beyond = (
        f"{plan.beyond_trials} beyond the paper, {plan.close_trials} of them at its least epsilon, "
        f"{plan.whole_trials} of the pairs that are neither the paper's nor the default"
    )
    fewer = f" ({plan.route_trials} of the routes; {beyond})"
    return [
        f"{'A quick run' if quick else 'The full run'}: {plan.trials} seeds{fewer}, from {seed} on; "
        f"{minutes:.1f} minutes. Intervals are 95 % (Student's t).",
        "Every visit is one person who reports once, as in the paper. L1 is the sum of absolute differences between "
        "the true and the estimated distribution, 0 to 2; the paper prints an 'average L1-distance' of which some "
        "entries are above 2 (Tables 1, 4 and 7), so that it must be another quantity: the orderings can be compared, "
        "the figures cannot. An estimate of zero under a visited site costs 36 nats times its part in KL.",
        "The staircase has the strict c: its exact worst ratio is at most e^epsilon. Unbiased estimates are projected "
        "on the distributions, alike for all.",
        "Data: Gowalla in Austin, Geolife in Beijing, taxis in Porto as in the paper, cut to its numbers of sites; "
        "Foursquare in Tokyo, because the shared data have no New York of it.",
    ]
