"""The experiments of Ghazi et al. (2023), section 4.1, as specifications to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.evaluation.comparison import Comparison, Row
from mapveil.evaluation.population import CountedUsers, Population
from mapveil.evaluation.scoring import Scoring
from mapveil.evaluation.trials import (
    MethodSpec,
    Outcome,
    Progress,
    Task,
    parse_method,
    run_task,
    run_tasks,
    trial_sample_stream,
)
from mapveil.maps.frame import require_frame
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from reproductions.ghazi.data import CheckIns, City, read_grids

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
METRICS: Final = ("similarity", "pearson", "kl", "emd")

_ONE_EPSILON: Final = Fraction(1)


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


class Sweep(NamedTuple):
    """Comparisons along one variable. Not private."""

    variable: str
    results: dict[float, Comparison]


class Examples(NamedTuple):
    """The pictures of Figure 2: smoothed maps by method, one row per epsilon. Not private."""

    city: City
    truth: FloatArray
    maps: dict[tuple[str, float], FloatArray]


def cities(check_ins: CheckIns, count: int) -> tuple[list[City], int]:
    """The busiest cells with at least ``LEAST_USERS`` users, and how many cells have them.

    Raises
    ------
    InputError
        There are fewer than ``count``.
    """
    found = check_ins.cities(LEAST_USERS)
    if len(found) < count:
        raise InputError(
            f"{len(found)} cells have {LEAST_USERS} users; check-ins with at least {count} are accepted"
        )
    return found[:count], len(found)


def _specs(methods: Sequence[str]) -> tuple[MethodSpec, ...]:
    return tuple(
        MethodSpec(label, "thresholded", (("keep_percent", THRESHOLDS[label]),))
        if label in THRESHOLDS
        else parse_method(label)
        for label in methods
    )


def _scoring(plan: Plan, side: int) -> Scoring:
    return Scoring(METRICS, SIGMA_PART * side, plan.emd_tolerance, EMD_SIDE)


def _gather(outcomes: Iterable[Outcome], scoring: int = 0) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.group, []).extend(outcome.rows[scoring])
    return rows


def by_epsilon(
    check_ins: CheckIns, plan: Plan, seed: int, *, workers: int = 1, progress: Progress | None = None
) -> Comparison:
    """Experiment 1: every method at every epsilon on the busiest cells, 200 users a trial."""
    chosen, qualified = cities(check_ins, plan.cities)
    methods, side = _specs(METHODS), 2**DEPTH
    scoring = _scoring(plan, side)
    tasks = []
    for place, city in enumerate(chosen):
        people = check_ins.shares(city, DEPTH)
        for repeat in range(plan.trials):
            trial = place * plan.trials + repeat
            sums = people.draw(USERS, trial_sample_stream(seed, "epsilon", trial)).sums().sums
            tasks.append(
                Task("epsilon", trial, sums, people.tiling, USERS, methods, plan.epsilons, (scoring,), seed)
            )
    rows = _gather(run_tasks(tasks, workers=workers, progress=progress, step="by epsilon"))
    return Comparison(
        rows=tuple(rows["epsilon"]),
        title=f"{len(tasks)} runs: {len(chosen)} cells, {USERS} users, resolution {side}",
        settings={
            "cells with enough users": qualified,
            "cells used": len(chosen),
            "runs": len(tasks),
            "users": USERS,
            "resolution": side,
            "sigma, cells": SIGMA_PART * side,
            "seed": seed,
        },
    )


def by_users(
    check_ins: CheckIns, plan: Plan, seed: int, *, workers: int = 1, progress: Progress | None = None
) -> Sweep:
    """Experiment 2: one cell with more than 500 users, epsilon 1, a growing number of them."""
    city = cities(check_ins, 1)[0][0]
    people: Population = check_ins.shares(city, DEPTH)
    scoring, methods = _scoring(plan, 2**DEPTH), _specs(METHODS)
    tasks = [
        Task(f"{users}", trial, people.draw(users, trial_sample_stream(seed, f"users {users}", trial)).sums().sums,
             people.tiling, users, methods, (_ONE_EPSILON,), (scoring,), seed)
        for users in plan.users
        for trial in range(plan.sweep_trials)
    ]  # fmt: skip
    rows = _gather(run_tasks(tasks, workers=workers, progress=progress, step="by users"))
    return Sweep(
        "users", {float(key): Comparison(tuple(found), f"{key} users") for key, found in rows.items()}
    )


def by_resolution(
    check_ins: CheckIns, plan: Plan, seed: int, *, workers: int = 1, progress: Progress | None = None
) -> Sweep:
    """Experiment 3: one cell, epsilon 1, 200 users (the same ones), a growing resolution."""
    city = cities(check_ins, 1)[0][0]
    methods = _specs(METHODS)
    tasks = []
    for depth in plan.depths:
        people = check_ins.shares(city, depth)
        scoring = _scoring(plan, 2**depth)
        for trial in range(plan.sweep_trials):
            sums = people.draw(USERS, trial_sample_stream(seed, "resolution", trial)).sums().sums
            tasks.append(
                Task(
                    f"{2**depth}",
                    trial,
                    sums,
                    people.tiling,
                    USERS,
                    methods,
                    (_ONE_EPSILON,),
                    (scoring,),
                    seed,
                )
            )
    rows = _gather(run_tasks(tasks, workers=workers, progress=progress, step="by resolution"))
    return Sweep(
        "resolution",
        {float(key): Comparison(tuple(found), f"resolution {key}") for key, found in rows.items()},
    )


def by_grid(
    shared: Path, plan: Plan, seed: int, *, workers: int = 1, progress: Progress | None = None
) -> dict[tuple[str, str, str], Comparison]:
    """Experiment 4, not in the paper: the ready grids, whole and sampled, as they are and smoothed.

    The comparisons by name of the grid, number of users ("all" for the whole grid) and kind, "cells" for the
    maps themselves and "heatmap" for smoothed ones.
    """
    methods = _specs((*BASELINES[:2], EMD_METHOD, *PEERS, OURS))
    epsilons = tuple(Fraction(text) for text in ("0.5", "1", "2"))
    found: dict[tuple[str, str, str], Comparison] = {}
    grids = read_grids(shared)
    for place, (name, counts) in enumerate(grids.items()):
        people = CountedUsers(counts)
        frame = require_frame(people.tiling, "experiment 4")
        side = max(frame.rows, frame.columns)
        scorings = (
            Scoring(METRICS, 0.0, GRID_TOLERANCE, GRID_SIDE),
            Scoring(METRICS, SIGMA_PART * side, GRID_TOLERANCE, GRID_SIDE),
        )
        tasks = [
            Task(f"{name}/{users or 'all'}", trial,
                 people.draw(users, trial_sample_stream(seed, f"{name} {users}", trial)).sums().sums,
                 people.tiling, users, methods, epsilons, scorings, seed)
            for users in plan.grid_users
            for trial in range(plan.grid_trials)
        ]  # fmt: skip
        outcomes = list(run_tasks(tasks, workers=workers, step=f"grid {name}"))
        for kind, scoring in (("cells", 0), ("heatmap", 1)):
            for group, measured in _gather(outcomes, scoring).items():
                users = group.rpartition("/")[2]
                found[name, users, kind] = Comparison(tuple(measured), f"{name}, {users} users, {kind}")
        if progress:
            progress("by grid", (place + 1) / len(grids))
    return found


def examples(check_ins: CheckIns, seed: int) -> Examples:
    """Figure 2: one sample of the second busiest cell (San Francisco), released at epsilon 1 and 5."""
    city = cities(check_ins, 2)[0][1]
    people = check_ins.shares(city, DEPTH)
    scoring = Scoring(METRICS, SIGMA_PART * 2**DEPTH)
    sums = people.draw(USERS, trial_sample_stream(seed, "examples", 0)).sums().sums
    methods = _specs(("laplace", BASELINES[1], EMD_METHOD, OURS))
    task = Task(
        "examples", 0, sums, people.tiling, USERS, methods, (Fraction(1), Fraction(5)), (), seed, True
    )
    outcome = run_task(task)
    assert outcome.truth is not None
    maps = {
        key: scoring.heatmap(np.maximum(values, 0), people.tiling) for key, values in outcome.maps.items()
    }
    return Examples(city, scoring.heatmap(outcome.truth, people.tiling), maps)
