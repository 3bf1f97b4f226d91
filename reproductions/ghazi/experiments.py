"""The experiments of Ghazi et al. (2023), section 4.1, as specifications to run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.evaluation.sampled_people import CountedUsers, Population
from mapveil.evaluation.scoring import Scoring
from mapveil.evaluation.trials import MethodSpec, Task, parse_method, run_task, trial_sample_stream
from mapveil.maps.frame import require_frame
from mapveil_client.errors import InputError
from reproductions.ghazi.data import GRIDS, CheckIns, City, read_check_ins, read_grids
from reproductions.results import Outcome

USERS: Final = 200
"""Users sampled in a trial."""
LEAST_USERS: Final = 200
"""A cell of the partition with fewer distinct users is left out."""
DEPTH: Final = 8
"""Resolution 256."""
SIGMA_PART: Final = 8 / 256
"""Standard deviation of the Gaussian filter, in parts of the side: 8 of 256; the paper gives none."""
EMD_SIDE: Final = 128
"""Rows and columns of the raster on which the smoothed maps' earth mover's distance is taken."""
GRID_SIDE: Final = 256
"""The same for the ready grids."""
GRID_TOLERANCE: Final = 1e-2
"""Of the earth mover's distance on the ready grids, up to 1024 x 1024 cells."""

THRESHOLDS: Final = {"thresholded 0.01 %": 0.01, "thresholded 0.1 %": 0.1, "thresholded 1 %": 1.0}
"""Percent of the cells kept, by label; the paper names 0.01 % and "several values"."""
BASELINES: Final = ("laplace", *THRESHOLDS)
EMD_METHOD: Final = "emd"
OURS: Final = "multiscale"
PEERS: Final = ("privtree", "adaptive-grid", "spatial-decomposition")
METHODS: Final = (*BASELINES, EMD_METHOD, *PEERS, OURS)
GRID_METHODS: Final = (*BASELINES[:2], EMD_METHOD, *PEERS, OURS)
EXAMPLES: Final = {
    "laplace": "baseline",
    BASELINES[1]: "top 0.01 %",
    EMD_METHOD: "EMD method",
    OURS: "multiscale",
}
"""Methods of Figure 2 and their titles."""
METRICS: Final = ("similarity", "pearson", "kl", "emd")


class Plan(NamedTuple):
    """How much of everything is run."""

    cities: int
    trials: int  # per city
    epsilons: tuple[Fraction, ...]
    users: tuple[int, ...]
    depths: tuple[int, ...]
    sweep_trials: int
    grid_users: tuple[int | None, ...]  # None for all
    grid_trials: int
    emd_tolerance: float

    @classmethod
    def full(cls) -> Plan:
        """What the paper ran: 60 runs, 10 trials for each number of users and each resolution."""
        every = tuple(Fraction(text) for text in ("0.1", "0.5", "1", "2", "5", "10"))
        return cls(30, 2, every, (50, 100, 200, 300, 400, 500), (6, 7, 8), 10, (10_000, None), 2, 5e-3)

    @classmethod
    def quick(cls) -> Plan:
        """The same in a few minutes: fewer cells, trials and points."""
        every = cls.full().epsilons
        return cls(8, 1, every, (50, 200, 500), (6, 8), 3, (10_000,), 1, 1e-2)


class Job(NamedTuple):
    """One trial: sampled people of one place, released by every method; can be pickled."""

    experiment: str  # "epsilon", "users", "resolution", "grid" or "examples"
    place: int | str  # rank of a cell of the partition by check-ins, or the name of a grid
    trial: int
    users: int | None  # None for all
    depth: int
    plan: Plan
    shared: Path
    seed: int

    @property
    def group(self) -> str:
        """The point of the experiment."""
        return {
            "users": f"{self.users}",
            "resolution": f"{2**self.depth}",
            "grid": f"{self.place}/{self.users or 'all'}",
        }.get(self.experiment, self.experiment)

    @property
    def stream(self) -> str:
        """The name of the stream that draws the people: the same ones at every resolution."""
        return {"users": f"users {self.users}", "grid": f"{self.place} {self.users}"}.get(
            self.experiment, self.experiment
        )


class Found(NamedTuple):
    """One metric of one release."""

    experiment: str
    group: str
    method: str
    epsilon: float
    trial: int
    metric: str
    value: float
    seconds: float


def cities(check_ins: CheckIns, count: int) -> list[City]:
    """The busiest cells with at least ``LEAST_USERS`` users."""
    found = check_ins.cities(LEAST_USERS)
    if len(found) < count:
        raise InputError(f"the check-ins must have {count} cells with {LEAST_USERS} users, got {len(found)}")
    return found[:count]


@functools.lru_cache(maxsize=2)
def _people(shared: Path, place: int | str, depth: int) -> tuple[str, Population]:
    if isinstance(place, str):
        return place, CountedUsers(read_grids(shared, [place])[place])
    check_ins = read_check_ins(shared)
    city = cities(check_ins, place + 1)[place]
    return city.name, check_ins.shares(city, depth)


def run_job(job: Job) -> Outcome:
    """Release the sampled people by every method at every epsilon, and measure."""
    name, people = _people(job.shared, job.place, job.depth)
    drawn = people.draw(job.users, trial_sample_stream(job.seed, job.stream, job.trial))
    kinds = {job.experiment: _scoring(job, people)}
    methods: tuple[str, ...] = METHODS
    epsilons: tuple[Fraction, ...] = (Fraction(1),)
    if job.experiment == "epsilon":
        epsilons = job.plan.epsilons
    elif job.experiment == "grid":
        methods, epsilons = GRID_METHODS, tuple(Fraction(text) for text in ("0.5", "1", "2"))
        kinds = {"grid, cells": replace(kinds["grid"], sigma_cells=0.0), "grid, heatmap": kinds["grid"]}
    elif job.experiment == "examples":
        methods, epsilons = tuple(EXAMPLES), (Fraction(1), Fraction(5))
    shown = job.experiment == "examples"
    outcome = run_task(
        Task(
            job.group, job.trial, drawn.sums().sums, people.tiling, job.users, _specs(methods), epsilons,
            () if shown else tuple(kinds.values()), job.seed, shown,
        )
    )  # fmt: skip
    rows = [
        Found(kind, job.group, *row[:-1])  # all but the length of a device's vector: a curator's has none
        for kind, measured in zip(kinds, outcome.rows, strict=False)
        for row in measured
    ]
    if outcome.truth is None:
        return Outcome(tuple(rows))
    smooth = kinds[job.experiment].heatmap
    maps = {(f"{label}", f"{epsilon:g}"): values for (label, epsilon), values in outcome.maps.items()}
    maps = {key: smooth(np.maximum(values, 0), people.tiling) for key, values in maps.items()}
    return Outcome((), {**maps, (name, "truth"): smooth(outcome.truth, people.tiling)})


def _scoring(job: Job, people: Population) -> Scoring:
    if job.experiment == "grid":
        frame = require_frame(people.tiling, "the grids")
        side = max(frame.rows, frame.columns)
        return Scoring(METRICS, SIGMA_PART * side, GRID_TOLERANCE, GRID_SIDE)
    return Scoring(METRICS, SIGMA_PART * 2**job.depth, job.plan.emd_tolerance, EMD_SIDE)


def _specs(methods: Sequence[str]) -> tuple[MethodSpec, ...]:
    return tuple(
        MethodSpec(label, "thresholded", (("keep_percent", THRESHOLDS[label]),))
        if label in THRESHOLDS
        else parse_method(label)
        for label in methods
    )


def epsilon_jobs(plan: Plan, shared: Path, seed: int) -> list[Job]:
    """Experiment 1: every method at every epsilon on the busiest cells, 200 users a trial."""
    return [
        Job("epsilon", place, place * plan.trials + repeat, USERS, DEPTH, plan, shared, seed)
        for place in range(plan.cities)
        for repeat in range(plan.trials)
    ]


def users_jobs(plan: Plan, shared: Path, seed: int) -> list[Job]:
    """Experiment 2: the busiest cell, epsilon 1, a growing number of users."""
    return [
        Job("users", 0, trial, users, DEPTH, plan, shared, seed)
        for users in plan.users
        for trial in range(plan.sweep_trials)
    ]


def resolution_jobs(plan: Plan, shared: Path, seed: int) -> list[Job]:
    """Experiment 3: the busiest cell, epsilon 1, the same 200 users, a growing resolution."""
    return [
        Job("resolution", 0, trial, USERS, depth, plan, shared, seed)
        for depth in plan.depths
        for trial in range(plan.sweep_trials)
    ]


def grid_jobs(plan: Plan, shared: Path, seed: int) -> list[Job]:
    """Experiment 4, not in the paper: the ready grids, whole and sampled, as they are and smoothed."""
    return [
        Job("grid", name, trial, users, 0, plan, shared, seed)
        for name in GRIDS
        for users in plan.grid_users
        for trial in range(plan.grid_trials)
    ]


def example_jobs(plan: Plan, shared: Path, seed: int) -> list[Job]:
    """Figure 2: one sample of the second busiest cell (San Francisco), released at epsilon 1 and 5."""
    return [Job("examples", 1, 0, USERS, DEPTH, plan, shared, seed)]
