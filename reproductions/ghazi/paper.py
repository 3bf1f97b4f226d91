"""Ghazi et al. (2023), "Differentially private heatmaps": its sections, and what they share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reproductions.driver import Paper
from reproductions.ghazi.data import read_check_ins
from reproductions.ghazi.experiments import (
    DEPTH,
    EMD_SIDE,
    GRID_SIDE,
    GRID_TOLERANCE,
    LEAST_USERS,
    SIGMA_PART,
    Plan,
    cities,
    run_job,
)
from reproductions.ghazi.reports import SECTIONS
from reproductions.results import Results, found_rows


def _preface(plan: Plan, shared: Path) -> list[str]:
    check_ins = read_check_ins(shared)
    city = cities(check_ins, 1)[0].name
    qualified = len(check_ins.cities(LEAST_USERS))
    return [
        f"{plan.cities * plan.trials} runs of experiment 1 on {plan.cities} cells, {plan.sweep_trials} trials a point "
        f"in experiments 2 and 3 (cell {city}, ε = 1), {plan.grid_trials} on each grid",
        "People: the Gowalla users of the PVLDB 2017 evaluation set with their counts per venue, and the "
        "last check-in of every Brightkite user; one file per service, so that nobody is counted twice. The "
        "paper took one month of Gowalla and two of Brightkite. Here Brightkite's users are at one place "
        "each, and of many Gowalla users only the last 30 % of their check-ins are known.",
        f"Cells: of the 300 x 300 parts of the box, {qualified} have at least {LEAST_USERS} distinct users; used are "
        f"the {plan.cities} of them with most check-ins.",
        f"Maps are smoothed by a Gaussian of {SIGMA_PART * 2**DEPTH:g} cells at resolution {2**DEPTH} (the "
        "same length at others) before they are measured; the paper does not give its width, so this is "
        "our choice. The number of sampled users is declared to the mechanisms, because the experiment "
        "fixes it; on whole grids nothing is declared, and who wants the number of users pays for it.",
        "The earth mover's distance is in widths of the region (L1), of maps summed over blocks to at most "
        f"{EMD_SIDE} rows and columns ({GRID_SIDE} for the grids), from certified bounds: off by at most "
        f"{plan.emd_tolerance / 2:.2%} of itself ({GRID_TOLERANCE / 2:.2%} for the grids); the blocks change it by "
        "0.03 % to 0.1 % where that was measured on smoothed maps.",
    ]


PAPER: Final = Paper(
    "ghazi",
    "Ghazi et al. (2023), Differentially private heatmaps",
    "Fewer cells, trials and budgets: a few minutes.",
    2023,
    SECTIONS,
    lambda quick: Plan.quick() if quick else Plan.full(),
    run_job,
    Results.gather,
    found_rows,
    _preface,
)
