"""Flows from a million pairs of reports, with one step of it, and by a curator: whole releases and their memory."""

from __future__ import annotations

import time
import tracemalloc
from fractions import Fraction
from functools import partial

import numpy as np

from benchmarks.flow_errors import fresh_large_release
from benchmarks.record import Context, Result, best_of, line
from mapveil.analysis.origin_destination import OriginDestination
from mapveil.analysis.pair_channel import pair_channel
from mapveil.analysis.trips import Trips
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil_client.local.domain import Domain

TRIPS = 1_000_000
HUBS = 30
EPSILON = Fraction(4)
GOAL_S = 300.0
GOAL_MB = 2048.0
SUMS_MB = 2e9 / 2**20


def run(context: Context) -> list[Result]:
    """Measure the products of both channels, and a release by Hadamard responses."""
    region = Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
    rows, columns, trips = (10, 20, 20_000) if context.quick else (40, 50, TRIPS)
    grid = Grid(region, rows=rows, columns=columns)
    return [*_steps(grid), *_release(grid, trips), *_sums(context.quick)]


def _sums(quick: bool) -> list[Result]:
    """A release by a curator between 4,096 zones."""
    users, depth = (20_000, 4) if quick else (TRIPS, 6)
    taken, peak = fresh_large_release(users, depth)
    name = f"flows by a curator, {4**depth:,} zones, {users:,} users"
    return [
        line(name, taken, "s", "the limit", GOAL_S, ">= 1 x", taken <= GOAL_S),
        line(f"{name}: peak memory", peak, "MB", "the limit", SUMS_MB, ">= 1 x", peak <= SUMS_MB),
    ]


def _steps(grid: Grid) -> list[Result]:
    made = []
    domain = Domain(grid)
    for mechanism in (HadamardResponse(epsilon=EPSILON / 2), StaircaseResponse(epsilon=EPSILON / 2)):
        randomizer = mechanism.on(domain)
        channel = pair_channel(randomizer)
        matrix = mechanism.transition_matrix(grid)
        joint = np.random.default_rng(0).random((domain.size, domain.size))
        fast = best_of(3, partial(channel.forward, joint))
        dense = best_of(3, partial(np.linalg.multi_dot, [matrix.T, joint, matrix]))
        name = f"law of pairs of reports, {domain.size:,} sites, {mechanism.name}"
        made.append(line(name, fast, "s", "two products with the dense matrix (BLAS)", dense))
    return made


def _release(grid: Grid, count: int) -> list[Result]:
    asked = OriginDestination(mechanism=HadamardResponse(epsilon=EPSILON, estimator="multiscale"))
    trips = _trips(count)
    tracemalloc.start()
    start = time.perf_counter()
    asked.release(trips, grid, rng=1)
    taken = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    name = f"joint flows, {grid.size:,} sites, {count:,} trips, hr"
    whole = (float(grid.size) ** 4) * 8 / 2**20
    return [
        line(name, taken, "s", "the limit", GOAL_S, ">= 1 x", taken <= GOAL_S),
        line(
            f"{name}: peak memory",
            peak,
            "MB",
            "the matrix of the whole system",
            whole,
            "<= 2048 MB",
            peak <= GOAL_MB,
        ),
    ]


def _trips(count: int) -> Trips:
    """Trips of a few kilometres from a few hubs."""
    generator = np.random.default_rng(0)
    hubs = generator.uniform([-8.69, 41.11], [-8.53, 41.21], (HUBS, 2))
    part = generator.dirichlet(np.ones(HUBS))
    start = hubs[generator.choice(HUBS, count, p=part)] + generator.normal(0, 0.006, (count, 2))
    end = start + generator.normal(0, 0.015, (count, 2))
    (x, y), (u, v) = (np.clip(place, [-8.699, 41.101], [-8.521, 41.219]).T for place in (start, end))
    return Trips(np.arange(count), x, y, u, v)
