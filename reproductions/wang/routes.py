"""Routes under traffic: Figures 14 to 16, with roads of trajectories in two cities and synthetic ones in two.

Vehicles go where trips went. Delays grow with the users of a cell, and its capacity is the one with which trips on the
predicted ways take half as long again, see :func:`simulations.traffic.scene.congested_world`.

Deviation: with the paper's 3 seconds for more than 50 users nobody is ever late enough to ask.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.analysis.trips import Trips
from mapveil.evaluation.html_report import Panel
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.results import Outcome, curve
from reproductions.wang.flows import TRIPS, TripSet, trip_ends
from reproductions.wang.sections import (
    NAMES,
    OURS,
    PAPERS,
    SRR,
    Curves,
    Found,
    Plan,
    Results,
    Scheme,
    default_scheme,
    shown,
)
from simulations.traffic.fleet import Fleet, fleet_from_trips
from simulations.traffic.scene import Scene, congested_world, make_scene
from simulations.traffic.study import study_routes
from simulations.traffic.synthetic_roads import synthetic_roads
from simulations.traffic.world import World

_THETAS: Final = (10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0)
_THETA: Final = 40.0
_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
_VEHICLES: Final = 3000
_DEPTH: Final = 4
_MOST: Final = 3
_EDITS: Final = "relative Levenshtein distance"
_MINUTES: Final = "trip time deviation, min"
_SPENT: Final = "total epsilon"
_SLOWER: Final = "trip time over that under an exact map, min"
_NOTHING: Final = "no traffic map"


class RouteJob(NamedTuple):
    """One trial of one scheme in one city; can be pickled."""

    trips: TripSet
    trial: int
    scheme: Scheme
    epsilons: tuple[float, ...]
    thetas: tuple[float, ...]
    shared: Path
    seed: int


@functools.lru_cache(maxsize=4)
def _world(shared: Path, trips: TripSet) -> tuple[World, Fleet]:
    region = Region.from_bbox(*trips.box)
    if trips.step is not None:
        scene = make_scene(shared / trips.file, region=region, vehicles=_VEHICLES)
    else:
        x, y, u, v, times = trip_ends(shared, trips)
        a, b, c, d = (np.repeat(end, times) for end in (x, y, u, v))
        graph = synthetic_roads(region, spacing_m=500.0)
        went = Trips(np.arange(a.size), a, b, c, d, trips.name)
        fleet = fleet_from_trips(went, graph, _VEHICLES)
        scene = Scene(graph, graph.seconds, fleet, region, ())
    return congested_world(scene, Quadtree(region, depth=_DEPTH)), scene.fleet


def run_routes(job: RouteJob) -> Outcome:
    """Let the fleet drive under every epsilon and threshold."""
    world, fleet = _world(job.shared, job.trips)
    rng = Randomness(job.seed).child(f"routes/{job.trips.name}/{job.scheme.label}/{job.trial}")
    mechanism = job.scheme.mechanism(job.epsilons[0], Domain(world.tiling))
    exact = [Fraction(str(epsilon)) for epsilon in job.epsilons]
    study = study_routes(world, fleet, mechanism, exact, job.thetas, most=_MOST, rng=rng)
    made = []
    by_theta = len(job.thetas) > 1
    for row in study.rows:
        level = row.theta_s if by_theta else float(row.epsilon)
        group = "theta" if by_theta else "routes"
        measured = [
            (job.scheme.label, _EDITS, row.quality.relative_levenshtein),
            (job.scheme.label, _MINUTES, row.quality.time_deviation_min),
            (job.scheme.label, _SPENT, row.quality.total_epsilon),
            (job.scheme.label, _SLOWER, row.minutes - row.minutes_exact),
        ]
        if job.scheme.label == SRR:  # without a map there is no randomizer
            measured.append((_NOTHING, _SLOWER, row.minutes_free - row.minutes_exact))
        made += [
            Found(job.trips.name, scheme, level, job.trial, metric, float(value), group)
            for scheme, metric, value in measured
        ]
    return Outcome(tuple(made))


def _theta_jobs(plan: Plan, shared: Path, seed: int) -> list[RouteJob]:
    return [
        RouteJob(trips, trial, PAPERS[-1], (1.0,), plan.points(_THETAS), shared, seed)
        for trips in TRIPS
        for trial in range(plan.route_trials)
    ]


def _epsilon_jobs(plan: Plan, shared: Path, seed: int) -> list[RouteJob]:
    epsilons = (1.0, 4.0, 8.0) if plan.thin else _EPSILONS
    return [
        RouteJob(trips, trial, scheme, epsilons, (_THETA,), shared, seed)
        for trips in TRIPS
        for scheme in (*PAPERS, default_scheme())
        for trial in range(plan.route_trials)
    ]


def _report_14(results: Results) -> Report:
    levels = results.levels(_SPENT, "theta")
    curves = Curves(results, _SPENT, (SRR,), "theta")
    lines = {trips.name: curves.line(trips.name, SRR) for trips in TRIPS}
    rows = [[name, *(shown(line[level], 2) for level in levels)] for name, line in lines.items()]
    falls = [bool((np.diff([line[level].mean for level in levels]) <= 1e-9).all()) for line in lines.values()]
    last = {name: line[levels[-1]].mean for name, line in lines.items()}
    claims = [
        Claim("Figure 14: the total epsilon falls as θ grows", joint_verdict(falls), "in each city from "
              + ", ".join(f"{line[levels[0]].mean:.2f} to {line[levels[-1]].mean:.2f}" for line in lines.values())),
        Claim(
            "Figure 14: at the largest θ the total is about 3 ε (read as: at most 3 ε)",
            joint_verdict([value <= 3 for value in last.values()]),
            f"the mean trip's; no trip asks more than {_MOST} times here, whatever θ",
        ),
    ]  # fmt: skip
    panel = Panel(
        "Total ε of a mean trip, ε = 1 each", "θ, s", [curve(name, line) for name, line in lines.items()]
    )
    caption = "As Figure 14: what a mean trip spends by the delay after which it asks."
    table = Table(
        "Figure 14: total ε of a mean trip", ["data", *(f"θ = {level:g} s" for level in levels)], rows
    )
    return Report([table], [Picture.curves("figure_14", [panel], caption)], claims)


def _epsilon_report(number: int) -> Any:
    metric = _EDITS if number == 15 else _MINUTES
    what = "is nearest to the true routes" if number == 15 else "deviates least in trip time"

    def report(results: Results) -> Report:
        curves = Curves(results, metric, (*NAMES, OURS), "routes")
        panels, rows, held, words = [], [], [], []
        for trips in TRIPS:
            panels.append(curves.panel(trips.name, trips.name))
            rows += curves.rows(trips.name, f"{trips.name}: ")
            first = [name == SRR for name in curves.leaders(trips.name).values()]
            held += first
            words.append(f"{trips.name}: {SRR} first at {sum(first)} of {len(first)}")
        claims = [
            Claim(
                f"Figure {number}: {SRR} {what} at every epsilon (θ = {_THETA:g} s)",
                joint_verdict(held),
                "; ".join(words),
            )
        ]
        if number == 16:
            claims.append(_saved(results, curves.levels))
        caption = f"As Figure {number}: {metric}, against the same trips under an exact map of the traffic."
        table = Table(f"Figure {number}: {metric}", curves.header("data and pair"), rows)
        return Report([table], [Picture.curves(f"figure_{number}", panels, caption)], claims)

    return report


def _saved(results: Results, levels: tuple[float, ...]) -> Claim:
    """Whether the private map is any better than none."""
    held, words = [], []
    for trips in TRIPS:
        parts = []
        for level in levels:
            with_map, without = (
                results.of(trips.name, name, level, _SLOWER, "routes").mean for name in (SRR, _NOTHING)
            )
            held.append(with_map < without)
            parts.append(f"{with_map:+.2f}")
        words.append(f"{trips.name}: {', '.join(parts)} min with it, {without:+.2f} without")
    return Claim(
        f"A traffic map by {SRR} is worth having: trips take less time with it than without any",
        joint_verdict(held),
        "; ".join(words),
    )


ROUTES: Final = (
    Section("figure 14", _theta_jobs, _report_14),
    Section("figure 15", _epsilon_jobs, _epsilon_report(15)),
    Section("figure 16", _epsilon_jobs, _epsilon_report(16)),
)
