"""Wang et al. (2022), "L-SRR: Local differential privacy for location-based services": its sections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from reproductions.driver import Paper, Section
from reproductions.results import Outcome, found_rows
from reproductions.wang.beyond import BEYOND_TABLE
from reproductions.wang.collections import Collection, run_collection
from reproductions.wang.density import DENSITY
from reproductions.wang.flows import FIGURE_10, FlowJob, run_flows
from reproductions.wang.routes import ROUTES, RouteJob, run_routes
from reproductions.wang.sections import Plan, Results
from reproductions.wang.staircase import (
    STAIRCASE,
    CentralJob,
    RelaxedJob,
    StairJob,
    run_central,
    run_relaxed,
    run_stairs,
)

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


def _in_order(section: Section) -> tuple[bool, int]:
    """What goes beyond the paper, then its figures and its tables by number."""
    kind, _, number = section.key.partition(" ")
    return number.isdigit() and kind == "table", int(number) if number.isdigit() else -1


def _preface(plan: Plan, shared: Path) -> list[str]:
    return [
        f"{plan.trials} seeds ({plan.route_trials} of the routes; {plan.beyond_trials} beyond the paper, "
        f"{plan.close_trials} of them at its least epsilon, {plan.whole_trials} of the pairs that are neither the "
        "paper's nor the default)",
        "Every visit is one person who reports once, as in the paper. L1 is the sum of absolute differences between "
        "the true and the estimated distribution, 0 to 2; the paper prints an 'average L1-distance' of which some "
        "entries are above 2 (Tables 1, 4 and 7), so that it must be another quantity: the orderings can be compared, "
        "the figures cannot. An estimate of zero under a visited site costs 36 nats times its fraction in KL.",
        "The staircase has the strict c: its exact worst ratio is at most e^epsilon. Unbiased estimates are projected "
        "on the distributions, alike for all.",
        "Data: Gowalla in Austin, Geolife in Beijing, taxis in Porto as in the paper, cut to its numbers of sites; "
        "Foursquare in Tokyo, because the shared data have no New York of it.",
    ]


PAPER: Final = Paper(
    "wang",
    "Wang et al. (2022), L-SRR: Staircase randomized response",
    "Two seeds instead of ten, and fewer epsilons: three minutes.",
    2022,
    tuple(sorted((BEYOND_TABLE, *STAIRCASE, *DENSITY, FIGURE_10, *ROUTES), key=_in_order)),
    lambda quick: Plan.quick() if quick else Plan.full(),
    run_task,
    Results.gather,
    found_rows,
    _preface,
)
