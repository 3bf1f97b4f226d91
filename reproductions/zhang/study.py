"""The reproduction of Zhang et al. (2022): runs the experiments, judges the claims, writes the report.

``mapveil reproduce zhang`` calls :func:`zhang`. It reads the measurements of public research sets in the clear; nothing
in its report is private.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mapveil.evaluation.signal_trials import SignalTask, SignalTrial, run_signal_task, trial_record
from mapveil.evaluation.trials import Progress
from mapveil.obfuscation.privatizers.gap import Gap
from mapveil_client.errors import require
from reproductions.reproduction import write_report
from reproductions.sections import Reproduction, answer_once, chosen_sections, names_of
from reproductions.zhang.pictures import FIGURE_4, FIGURE_5, FIGURE_7, LookTask, run_look
from reproductions.zhang.planes import BEYOND, FIGURE_6, FIGURE_10, FIGURE_11, FIGURE_12
from reproductions.zhang.sections import Plan
from reproductions.zhang.sequences import FIGURE_8, FIGURE_9
from reproductions.zhang.tables import (
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_6,
    CommonTask,
    ReferenceTask,
    run_common,
    run_reference,
)

SECTIONS: Final = (
    TABLE_3, TABLE_4, TABLE_5, TABLE_6, BEYOND,
    FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9, FIGURE_10, FIGURE_11, FIGURE_12,
)  # fmt: skip
"""All tables and figures, in the order of the report."""


TABLES: Final = names_of(SECTIONS, "table")
"""What ``--table`` accepts: the paper's numbers, and the table that it does not have."""

FIGURES: Final = names_of(SECTIONS, "figure")
"""What ``--figure`` accepts."""


def zhang(
    shared: Path,
    *,
    out: Path,
    tables: Sequence[str] = (),
    figures: Sequence[str] = (),
    quick: bool = False,
    seed: int = 2022,
    workers: int = 1,
    progress: Progress | None = None,
) -> Reproduction[SignalTrial]:
    """Run the paper's experiments and write tables, pictures and one page.

    Parameters
    ----------
    shared : Path
        The folder of the shared data sets, see :mod:`reproductions.zhang.data`.
    out : Path
        The folder to write to; made where it is not there.
    tables, figures : sequence of str
        Only these of :data:`TABLES` and :data:`FIGURES`; everything without either.
    quick : bool
        One trial, fewer rows and values, networks trained for a tenth of the time.
    seed : int
        The same seed gives the same numbers.
    workers : int
        Processes; with more than 1 a script must guard its entry.
    progress : callable, optional
        Told the step's name and the done part.

    Raises
    ------
    ParameterError
        There is no such table or figure.
    InputError
        A data set is not there, or the folder cannot be written to.
    MissingExtra
        PyTorch, scikit-learn or matplotlib is not installed.
    """
    for module, extra in (("torch", "neural"), ("sklearn", "eval"), ("matplotlib", "viz")):
        require(module, extra)
    plan = Plan.quick_run() if quick else Plan.full()
    chosen = chosen_sections(SECTIONS, tables, figures)
    start = time.perf_counter()
    asked = {section.key: list(section.tasks(plan, shared, seed)) for section in chosen}
    answers = answer_once(asked, run_task, size=_size, workers=workers, progress=progress)
    reports = {
        section.key: section.report(asked[section.key], [answers[task] for task in asked[section.key]])
        for section in chosen
    }
    trials = tuple(answer for answer in answers.values() if isinstance(answer, SignalTrial))
    claims = tuple(claim for report in reports.values() for claim in report.claims)
    minutes = (time.perf_counter() - start) / 60
    records = [trial_record(trial) for trial in trials]
    header = list(records[0]) if records else []
    files = {"trials.csv": (header, [list(record.values()) for record in records])}
    title = (
        "Reproduction of Zhang et al. (2022), Privacy-utility trades in crowdsourced signal map obfuscation"
    )
    paths = write_report(out, title, _preface(plan, seed, minutes), reports.values(), claims, files)
    return Reproduction(claims, reports, trials, tuple(paths))


def run_task(task: SignalTask | ReferenceTask | CommonTask | LookTask) -> Any:
    """Run a task of any section, on one core."""
    require("torch", "neural").set_num_threads(1)
    if isinstance(task, SignalTask):
        return run_signal_task(task)
    if isinstance(task, ReferenceTask):
        return run_reference(task)
    return run_common(task) if isinstance(task, CommonTask) else run_look(task)


def _size(task: Any) -> float:
    """About how long a task takes, to order them by."""
    if isinstance(task, CommonTask):
        return 20.0
    if isinstance(task, LookTask):
        return float(sum(5 if isinstance(privatizer, Gap) else 1 for _, privatizer in task.choices))
    if isinstance(task, SignalTask) and isinstance(task.privatizer, Gap):
        return 5.0 + task.privatizer.sequence
    return 1.0


def _preface(plan: Plan, seed: int, minutes: float) -> list[str]:
    return [
        f"{'A quick run' if plan.quick else 'The full run'}: {plan.trials} trials of {plan.rows:,} rows of each set, "
        f"GAP trained for {plan.gap_steps:,} steps of {plan.gap_batch} rows; seed {seed}; {minutes:.1f} minutes. "
        "Intervals are 95 % (Student's t).",
        "Every trial draws its own rows and splits them 70 to 30. Adversaries are trained afresh on what the privatizer"
        " made of the 70 % and judged on what it made of the rest. The paper has one kind, a network; the strongest is "
        "the best of that, boosted trees, nearest neighbours and a count by code, for the user and for the place.",
        "Chania is the paper's own set (its first 294,069 rows of 445,419). UJIIndoorLoc and Cork 5G stand in for UCI "
        "and Radiocell, which are not public.",
    ]
