"""The reproduction of Zong et al. (2023): runs the experiments, judges the claims, writes the report.

``mapveil reproduce zong`` calls :func:`zong`. It reads the places of public research sets in the clear; nothing in its
report is private.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mapveil.evaluation.trials import Progress
from mapveil_client.arrays import FloatArray
from reproductions.reproduction import write_report
from reproductions.sections import Reproduction, answer_once, chosen_sections, names_of
from reproductions.zong.cities import FIGURE_12, FIGURE_13, TABLE_1
from reproductions.zong.line import FIGURE_3, LineJob, run_line
from reproductions.zong.posterior import POSTERIOR
from reproductions.zong.private import PRIVATE, PrivateJob, run_private
from reproductions.zong.runs import Job, PriorJob, run_job, run_prior_job
from reproductions.zong.sections import Found, Outcome, Plan, Results
from reproductions.zong.synthetic import FIGURE_10, FIGURE_11, FIGURE_14

SECTIONS: Final = (
    FIGURE_3, FIGURE_10, FIGURE_11, FIGURE_14, TABLE_1, FIGURE_12, FIGURE_13, POSTERIOR, PRIVATE,
)  # fmt: skip
"""All tables and figures, in the order of the report."""


TABLES: Final = names_of(SECTIONS, "table")
"""What ``--table`` accepts: the paper's number, and the tables that it does not have."""

FIGURES: Final = names_of(SECTIONS, "figure")
"""What ``--figure`` accepts."""


def zong(
    shared: Path,
    *,
    out: Path,
    tables: Sequence[str] = (),
    figures: Sequence[str] = (),
    quick: bool = False,
    seed: int = 2023,
    workers: int = 1,
    progress: Progress | None = None,
) -> Reproduction[Found]:
    """Run the paper's experiments and write tables, pictures and one page.

    Parameters
    ----------
    shared : Path
        The folder of the shared data sets, see :mod:`reproductions.zong.data`.
    out : Path
        The folder to write to; made where it is not there.
    tables, figures : sequence of str
        Only these of :data:`TABLES` and :data:`FIGURES`; everything without either.
    quick : bool
        Fewer trials, and fewer people searched for maxima.
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
    answers = answer_once(asked, run_task, size=_size, workers=workers, progress=progress)
    reports = {
        section.key: section.report(_results([answers[task] for task in asked[section.key]]))
        for section in chosen
    }
    rows = tuple(row for answer in answers.values() for row in answer.found)
    claims = tuple(claim for report in reports.values() for claim in report.claims)
    preface = _preface(plan, quick, seed, (time.perf_counter() - start) / 60)
    title = "Reproduction of Zong et al. (2023), Privacy by projection"
    files = {"rows.csv": (Found._fields, rows)}
    paths = write_report(out, title, preface, reports.values(), claims, files)
    return Reproduction(claims, reports, rows, tuple(paths))


def run_task(task: Job | PriorJob | LineJob | PrivateJob) -> Outcome:
    """Run a task of any section."""
    if isinstance(task, LineJob):
        return run_line(task)
    if isinstance(task, PrivateJob):
        return run_private(task)
    return run_prior_job(task) if isinstance(task, PriorJob) else run_job(task)


def _size(task: Any) -> float:
    """About how long a task takes, to order them by."""
    if isinstance(task, Job):
        return (task.users or 60_000) * max(task.features, default=1) + 2_000.0 * task.scored * len(
            task.features
        )
    return 1e6


def _results(outcomes: Sequence[Outcome]) -> Results:
    maps: dict[tuple[str, str], FloatArray] = {}
    for outcome in outcomes:
        for key, values in outcome.maps.items():
            maps.setdefault(key, values)
    return Results([row for outcome in outcomes for row in outcome.found], maps)


def _preface(plan: Plan, quick: bool, seed: int, minutes: float) -> list[str]:
    return [
        f"{'A quick run' if quick else 'The full run'}: {plan.trials} trials of the synthetic sets and "
        f"{plan.city_trials} of the cities, {plan.scored:,} people of each first trial searched for maxima; "
        f"seed {seed}; {minutes:.1f} minutes. Intervals are 95 % (Student's t).",
        "Performance is Spearman's rank correlation of two surfaces on 100 x 100 points. The score is equation 16 as "
        "its text describes it, the expected error of a guess among the highest maxima; as printed it is divided by "
        "their number once more.",
        "Devices project and the server sums with Mapveil's own two halves; only the devices' policy is left out.",
    ]
