"""Bagdasaryan et al. (2022), "Towards sparse federated analytics": its sections, and what they share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reproductions.bagdasaryan.beyond import BEYOND, COMMUNICATION, SKEWED
from reproductions.bagdasaryan.curves import FIGURE_7, FIGURE_8
from reproductions.bagdasaryan.data import MANHATTAN, PAPER_USERS, read_image
from reproductions.bagdasaryan.figures import FIGURE_1, FIGURE_5, FIGURE_6
from reproductions.bagdasaryan.proportions import FIGURE_9, ProportionJob, run_proportions
from reproductions.bagdasaryan.runs import Job, run_job
from reproductions.bagdasaryan.sections import Plan
from reproductions.bagdasaryan.tables import TABLE_1, TABLE_2, TABLE_3
from reproductions.driver import Paper
from reproductions.results import Outcome, Results, found_rows


def run_task(task: Job | ProportionJob) -> Outcome:
    """Run a task of any section."""
    return run_proportions(task) if isinstance(task, ProportionJob) else run_job(task)


def _preface(plan: Plan, shared: Path) -> list[str]:
    people = int(read_image(shared, MANHATTAN).values.sum())
    return [
        f"{plan.trials} seeds a row and a point of the curves",
        f"People: each unit of brightness of the Manhattan picture is a user, {people:,} here and {PAPER_USERS:,} in "
        "the paper. A trial samples users without replacement, the same ones for every method and every round, as the "
        "paper's experiments do.",
        "Errors are between densities that sum to one, over the cells of the picture; negative estimates count as "
        "zero. The vector is the number of coordinates that one device sends, all rounds together.",
        "The mechanisms run whole, every device's half and the server's, over ideal sums of shards of at most 10,000. "
        "As in the paper no noise is provisioned for corrupt devices, nor for dropouts but where some are simulated. "
        "Multiscale takes one round unless its row says two.",
    ]


PAPER: Final = Paper(
    "bagdasaryan",
    "Bagdasaryan et al. (2022), Location heatmaps under distributed differential privacy",
    "Three seeds instead of twenty, and fewer points: two minutes.",
    2022,
    (
        *(TABLE_1, TABLE_2, TABLE_3, BEYOND, SKEWED, COMMUNICATION),
        *(FIGURE_1, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9),
    ),
    lambda quick: Plan.quick() if quick else Plan.full(),
    run_task,
    Results.gather,
    found_rows,
    _preface,
)
