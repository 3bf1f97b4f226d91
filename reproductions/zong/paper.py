"""Zong et al. (2023), "Privacy by projection": its sections, and what they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from reproductions.driver import Paper
from reproductions.results import Outcome, found_rows
from reproductions.zong.cities import FIGURE_12, FIGURE_13, TABLE_1
from reproductions.zong.line import FIGURE_3, LineJob, run_line
from reproductions.zong.posterior import POSTERIOR
from reproductions.zong.private import PRIVATE, PrivateJob, run_private
from reproductions.zong.runs import Job, PriorJob, run_job, run_prior_job
from reproductions.zong.sections import Plan, Results
from reproductions.zong.synthetic import FIGURE_10, FIGURE_11, FIGURE_14


def run_task(task: Job | PriorJob | LineJob | PrivateJob) -> Outcome:
    """Run a task of any section."""
    if isinstance(task, LineJob):
        return run_line(task)
    if isinstance(task, PrivateJob):
        return run_private(task)
    return run_prior_job(task) if isinstance(task, PriorJob) else run_job(task)


def _size(task: Any) -> float:
    if isinstance(task, Job):
        return (task.users or 60_000) * max(task.features, default=1) + 2_000.0 * task.scored * len(
            task.features
        )
    return 1e6


def _preface(plan: Plan, shared: Path) -> list[str]:
    return [
        f"{plan.trials} trials of the synthetic sets and {plan.city_trials} of the cities, {plan.scored:,} people of "
        "each first trial searched for maxima",
        "Performance is Spearman's rank correlation of two surfaces on 100 x 100 points. The score is equation 16 as "
        "its text describes it, the expected error of a guess among the highest maxima; as printed it is divided by "
        "their number once more.",
        "Clients project and the server sums with Mapveil's own two halves; only the clients' policy is left out.",
    ]


PAPER: Final = Paper(
    "zong",
    "Zong et al. (2023), Privacy by projection",
    "Fewer trials, fewer people searched for maxima: a minute.",
    2023,
    (FIGURE_3, FIGURE_10, FIGURE_11, FIGURE_14, TABLE_1, FIGURE_12, FIGURE_13, POSTERIOR, PRIVATE),
    lambda quick: Plan.quick() if quick else Plan.full(),
    run_task,
    Results.gather,
    found_rows,
    _preface,
    _size,
)
