"""Local randomizers: the staircase at the paper's largest domain and at a million sites; the others beside pure-ldp
and multi-freq-ldpy, which randomize and add up report by report. Beside those it is the processor's time that counts,
theirs and ours: nothing here runs in two threads, and what else the machine does falls on the shorter run."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Final

import numpy as np

import mapveil as mv
from benchmarks.record import Context, Result, best_of, in_process, line
from mapveil.local.estimators.estimators import estimate_distribution
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.mechanisms.methods import find_method
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

SITES: Final = 3202
EPSILON: Final = 2
PEERS: Final = {
    "pure-ldp": ("grr", "unary", "olh", "hr"),
    "multi-freq-ldpy": ("grr", "unary", "olh", "subset"),
}
SLICE: Final = 5000  # users of a peer; ours are many more, and both are divided by their number
SLOW: Final = {"olh": 300}


def run(context: Context) -> list[Result]:
    """Measure the staircase, the others beside their peers, and a million sites."""
    users = 50_000 if context.quick else 1_000_000
    return [*_staircase(users), *_beside_peers(context, users), *_million(context)]


def _domain() -> Domain:
    generator = np.random.default_rng(0)
    lon, lat = generator.uniform(-74.02, -73.91, SITES), generator.uniform(40.70, 40.82, SITES)
    return Domain(mv.Places(lon, lat, mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)))


def _cells(domain: Domain, users: int) -> np.ndarray:
    generator = np.random.default_rng(1)
    return generator.choice(domain.size, users, p=generator.dirichlet(np.full(domain.size, 0.5)))


def _staircase(users: int) -> list[Result]:
    domain = _domain()
    cells = _cells(domain, users)
    randomizer = StaircaseResponse(epsilon=EPSILON).on(domain)
    drawn = best_of(3, lambda: randomizer.randomize(cells, Randomness(1)))
    tally = randomizer.tally(randomizer.randomize(cells, Randomness(1)))
    name = f"srr, {users:,} users, {SITES:,} sites"
    results = [line(f"{name}: randomize", drawn, "s", "the limit", 1.0, ">= 1 x", drawn <= 1)]
    for estimator in ("em", "smoothed-em"):
        seconds = best_of(3, partial(estimate_distribution, randomizer, tally, estimator))
        results.append(
            line(f"{name}: estimate by {estimator}", seconds, "s", "the limit", 1.0, ">= 1 x", seconds <= 1)
        )
    return results


def _beside_peers(context: Context, users: int) -> list[Result]:
    if not context.peers:
        return []
    domain = _domain()
    results = []
    for library, oracles in PEERS.items():
        for oracle in oracles:
            ours = _per_user(oracle, domain, users)
            few = SLOW.get(oracle, SLICE)
            theirs = in_process(
                context.peers, "peers/frequency_oracles.py", library, oracle, few, SITES, EPSILON
            )
            per_user = theirs["seconds"] / theirs["users"]
            results.append(
                line(
                    f"{oracle}, {users:,} users, {SITES:,} sites: both halves, processor's time a user",
                    ours * 1e6,
                    "us",
                    f"{library}, {few:,} users",
                    per_user * 1e6,
                    ">= 20 x",
                    per_user >= 20 * ours,
                )
            )
    return results


def _per_user(oracle: str, domain: Domain, users: int) -> float:
    """Seconds a user for both halves of a collection, estimated as the peers do: unbiased, without constraints."""
    mechanism = find_method(oracle, "local").make(EPSILON)
    if not isinstance(mechanism, LocalMechanism):
        raise TypeError(f"{oracle} is no mechanism of local")
    randomizer, cells = mechanism.on(domain), _cells(domain, users)
    step = 1 << 16
    start = time.process_time()
    tally = randomizer.tally(randomizer.randomize(cells[:0], Randomness(1)))
    for first in range(0, users, step):
        tally += randomizer.tally(randomizer.randomize(cells[first : first + step], Randomness(first)))
    randomizer.invert(tally)
    return (time.process_time() - start) / users


def _million(context: Context) -> list[Result]:
    sites, users = (1 << 14, 100_000) if context.quick else (1 << 20, 10_000_000)
    made = in_process(sys.executable, "local_million_sites.py", sites, users)
    whole = made["set_up"] + made["randomize"] + made["estimate"]
    name = f"srr, {users:,} users, {sites:,} sites"
    steps = f"{made['steps']} steps" + ("" if made["converged"] else ", not settled")
    return [
        line(
            f"{name}: set up, randomize, maximum likelihood ({steps})",
            whole,
            "s",
            "the limit",
            120.0,
            ">= 1 x",
            whole <= 120,
        ),
        line(
            f"{name}: peak memory",
            made["peak_mb"],
            "MB",
            "the limit",
            4096,
            ">= 1 x",
            made["peak_mb"] <= 4096,
        ),
    ]
