"""Zhang et al. (2022), "Privacy-utility trades in crowdsourced signal map obfuscation": its sections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from mapveil.evaluation.signal_trials import SignalTask, SignalTrial, run_signal_task, trial_record
from mapveil.obfuscation.privatizers.gap import Gap
from mapveil_client.errors import require
from reproductions.driver import Paper
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


def run_task(task: SignalTask | ReferenceTask | CommonTask | LookTask) -> Any:
    """Run a task of any section, on one core."""
    require("torch", "neural").set_num_threads(1)
    if isinstance(task, SignalTask):
        return run_signal_task(task)
    if isinstance(task, ReferenceTask):
        return run_reference(task)
    return run_common(task) if isinstance(task, CommonTask) else run_look(task)


def _size(task: Any) -> float:
    if isinstance(task, CommonTask):
        return 20.0
    if isinstance(task, LookTask):
        return float(sum(5 if isinstance(privatizer, Gap) else 1 for _, privatizer in task.choices))
    if isinstance(task, SignalTask) and isinstance(task.privatizer, Gap):
        return 5.0 + task.privatizer.sequence
    return 1.0


def _rows(answers: Iterable[Any]) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    records = [trial_record(answer) for answer in answers if isinstance(answer, SignalTrial)]
    return (list(records[0]) if records else []), [list(record.values()) for record in records]


def _preface(plan: Plan, shared: Path) -> list[str]:
    return [
        f"{plan.trials} trials of {plan.rows:,} rows of each set, GAP trained for {plan.gap_steps:,} steps of "
        f"{plan.gap_batch} rows",
        "Every trial draws its own rows and splits them 70 to 30. Adversaries are trained afresh on what the privatizer"
        " made of the 70 % and judged on what it made of the rest. The paper has one kind, a network; the strongest is "
        "the best of that, boosted trees, nearest neighbours and a count by code, for the user and for the place.",
        "Chania is the paper's own set (its first 294,069 rows of 445,419). UJIIndoorLoc and Cork 5G stand in for UCI "
        "and Radiocell, which are not public.",
    ]


PAPER: Final = Paper(
    "zhang",
    "Zhang et al. (2022), Privacy-utility trades in crowdsourced signal map obfuscation",
    "One trial, fewer rows and values, short training: three minutes.",
    2022,
    (
        *(TABLE_3, TABLE_4, TABLE_5, TABLE_6, BEYOND, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7),
        *(FIGURE_8, FIGURE_9, FIGURE_10, FIGURE_11, FIGURE_12),
    ),
    lambda quick: Plan.quick_run() if quick else Plan.full(),
    run_task,
    lambda tasks, answers: (tasks, answers),
    _rows,
    _preface,
    _size,
    (("torch", "neural"), ("sklearn", "eval"), ("matplotlib", "viz")),
)
