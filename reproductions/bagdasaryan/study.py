"""The reproduction of Bagdasaryan et al. (2022): runs the experiments, judges the claims, writes the report.

``mapveil reproduce bagdasaryan`` calls :func:`bagdasaryan`. It reads the true maps of public research sets; nothing
in its report is private.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from mapveil.evaluation.trials import Progress, in_processes
from mapveil.maps.round_cost import RoundCost
from mapveil_client.arrays import FloatArray
from reproductions.bagdasaryan.beyond import BEYOND, COMMUNICATION, SKEWED
from reproductions.bagdasaryan.curves import FIGURE_7, FIGURE_8
from reproductions.bagdasaryan.data import MANHATTAN, PAPER_USERS, read_image
from reproductions.bagdasaryan.figures import FIGURE_1, FIGURE_5, FIGURE_6
from reproductions.bagdasaryan.proportions import FIGURE_9, ProportionJob, run_proportions
from reproductions.bagdasaryan.runs import Found, Job, Outcome, run_job
from reproductions.bagdasaryan.sections import Plan, Results
from reproductions.bagdasaryan.tables import TABLE_1, TABLE_2, TABLE_3
from reproductions.reproduction import write_report
from reproductions.sections import Reproduction, chosen_sections, names_of

SECTIONS: Final = (
    TABLE_1, TABLE_2, TABLE_3, BEYOND, SKEWED, COMMUNICATION,
    FIGURE_1, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9,
)  # fmt: skip
"""All tables and figures, in the order of the report."""


TABLES: Final = names_of(SECTIONS, "table")
"""What ``--table`` accepts: the paper's numbers, and the tables that it does not have."""

FIGURES: Final = names_of(SECTIONS, "figure")
"""What ``--figure`` accepts."""


def bagdasaryan(
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
    """Run the paper's experiments on the shared data and write tables, pictures and one page.

    Parameters
    ----------
    shared : Path
        The folder of the shared data sets, see :mod:`reproductions.bagdasaryan.data`.
    out : Path
        The folder to write to; made where it is not there.
    tables, figures : sequence of str
        Only these of :data:`TABLES` and :data:`FIGURES`; everything without either.
    quick : bool
        Three seeds instead of twenty, and fewer points of the curves.
    seed : int
        The same seed gives the same numbers, but for times.
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
    InputError
        A file of the data is missing, or the folder cannot be written to.
    MissingExtra
        matplotlib is not installed.
    """
    plan = Plan.quick() if quick else Plan.full()
    chosen = chosen_sections(SECTIONS, tables, figures)
    start = time.perf_counter()
    people = int(read_image(shared, MANHATTAN).values.sum())
    tasks = [(section, task) for section in chosen for task in section.jobs(plan, shared, seed)]
    answers = in_processes(
        run_task, [task for _, task in tasks], workers=workers, progress=progress, step="trials"
    )
    found: dict[str, list[tuple[Any, Outcome]]] = {section.key: [] for section in chosen}
    for (section, task), outcome in zip(tasks, answers, strict=True):
        found[section.key].append((task, outcome))
    reports = {section.key: section.report(_results(found[section.key])) for section in chosen}
    rows = tuple(row for each in found.values() for _, outcome in each for row in outcome.found)
    claims = tuple(claim for report in reports.values() for claim in report.claims)
    preface = _preface(plan, quick, seed, people, (time.perf_counter() - start) / 60)
    title = (
        "Reproduction of Bagdasaryan et al. (2022), Location heatmaps under distributed differential privacy"
    )
    files = {"rows.csv": (Found._fields, rows)}
    paths = write_report(out, title, preface, reports.values(), claims, files)
    return Reproduction(claims, reports, rows, tuple(paths))


def run_task(task: Job | ProportionJob) -> Outcome:
    """Run a task of any section."""
    return run_proportions(task) if isinstance(task, ProportionJob) else run_job(task)


def _results(found: Iterable[tuple[Any, Outcome]]) -> Results:
    rows: list[Found] = []
    maps: dict[tuple[str, str], FloatArray] = {}
    costs: dict[tuple[str, str], tuple[RoundCost, ...]] = {}
    for task, outcome in found:
        rows += outcome.found
        for label, values in outcome.maps.items():
            maps.setdefault((task.image, label), values)
        for label, spent in outcome.costs.items():
            costs.setdefault((task.image, label), spent)
    return Results(rows, maps, costs)


def _preface(plan: Plan, quick: bool, seed: int, people: int, minutes: float) -> list[str]:
    return [
        f"{'A quick run' if quick else 'The full run'}: {plan.trials} seeds a row, {plan.sweep_trials} a point of the "
        f"curves; seed {seed}; {minutes:.1f} minutes. Intervals are 95 % (Student's t).",
        f"People: each unit of brightness of the Manhattan picture is a user, {people:,} here and "
        f"{PAPER_USERS[MANHATTAN]:,} in the paper. A trial samples users without replacement and asks the same ones by "
        "every method and in every round, as the paper's experiments do.",
        "Errors are between densities that sum to one, over the cells of the picture; negative estimates count as "
        "zero. The vector is the number of coordinates that one device sends, all rounds together.",
        "The mechanisms run whole, every device's half and the server's, over ideal sums of shards of at most 10,000. "
        "As in the paper no noise is provisioned for corrupt devices, nor for dropouts but where some are simulated. "
        "Multiscale takes one round unless its row says two.",
    ]
