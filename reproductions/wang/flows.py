"""From where to where: Figure 10, the paper's Lasso on marginals beside the joint estimator."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.analysis.origin_destination import FlowEstimator, OriginDestination
from mapveil.geo.places import Places
from mapveil.geo.region import Region
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from reproductions.data import shared_file
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.results import Outcome
from reproductions.wang.collections import L1
from reproductions.wang.data import GEOLIFE, PORTO, Box, sites_sql
from reproductions.wang.sections import NAMES, PAPERS, SRR, Curves, Found, Plan, Results, Scheme


class TripSet(NamedTuple):
    """Trips of one file: pairs of places that one person visits one after the other."""

    name: str
    file: str
    box: Box
    order: str  # SQL: by what a person's rows are ordered
    of: str  # SQL: what a trip stays within
    apart: int  # rows from origin to destination
    step: tuple[float, float] | None  # cells where there are no venues
    pairs: int  # distinct pairs: as many as the paper has


TRIPS: Final = (
    TripSet(
        "Gowalla, New York",
        "gowalla_nyc_checkins.parquet",
        (-74.05, 40.65, -73.85, 40.85),
        "time, venue_id",
        "user_id",
        1,
        None,
        2315,
    ),
    TripSet(GEOLIFE.name, GEOLIFE.file, GEOLIFE.box, "time", "user_id, traj_id", 40, GEOLIFE.step, 876),
    TripSet(PORTO.name, PORTO.file, PORTO.box, "time", "traj_id", 20, PORTO.step, 1034),
    TripSet(
        "Foursquare, Tokyo",
        "foursquare_tokyo_sequences.parquet",
        (139.50, 35.55, 139.94, 35.82),
        "session, pos",
        "user_id, session",
        1,
        None,
        5634,
    ),
)
"""Check-ins that follow each other; positions of a trip ten minutes apart in Beijing, and five in Porto."""

_EPSILONS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
_LARGEST: Final = 600  # sites of the joint estimate
_JOINT: Final = "GRR, joint"
_KNOWN: Final = "candidates alone"


class FlowJob(NamedTuple):
    """One trial on one set; can be pickled."""

    trips: TripSet
    trial: int
    epsilons: tuple[float, ...]
    shared: Path
    seed: int


class Flows(NamedTuple):
    """Sites, and the people of each pair. Not private."""

    domain: Domain
    origin: IntArray
    destination: IntArray
    people: IntArray


@functools.lru_cache(maxsize=8)
def trip_ends(
    shared: Path, trips: TripSet
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, IntArray]:
    """Longitude and latitude of origins and of destinations, and how often each pair came, the most frequent first."""
    import duckdb

    path = shared_file(shared, trips.file)
    west, south, east, north = trips.box
    window = f"OVER (PARTITION BY {trips.of} ORDER BY {trips.order})"
    with duckdb.connect() as connection:
        found = connection.execute(
            f"WITH rows AS (SELECT *, {sites_sql(trips.step)} FROM read_parquet(?)), ends AS (SELECT x, y, "
            f"LEAD(x, {trips.apart}) {window} AS u, LEAD(y, {trips.apart}) {window} AS v FROM rows) "
            "SELECT x, y, u, v, COUNT(*) AS n FROM ends WHERE u IS NOT NULL AND (x <> u OR y <> v) "
            "AND x > ? AND y > ? AND x < ? AND y < ? AND u > ? AND v > ? AND u < ? AND v < ? "
            "GROUP BY x, y, u, v ORDER BY n DESC, x, y, u, v",
            [str(path), *(west, south, east, north) * 2],
        ).fetchnumpy()
    x, y, u, v = (np.asarray(found[name], dtype=np.float64) for name in "xyuv")
    return x, y, u, v, np.asarray(found["n"], dtype=np.int64)


@functools.lru_cache(maxsize=8)
def read_flows(shared: Path, trips: TripSet) -> Flows:
    """The most frequent pairs, as many as the paper has, on the sites at their ends."""
    *ends, every = trip_ends(shared, trips)
    x, y, u, v = (values[: trips.pairs] for values in ends)
    times = every[: trips.pairs]
    sites, end = np.unique(
        np.stack([np.concatenate([x, u]), np.concatenate([y, v])]), axis=1, return_inverse=True
    )
    origin, destination = end.ravel().reshape(2, -1)
    domain = Domain(Places(sites[0], sites[1], Region.from_bbox(*trips.box)))
    return Flows(domain, origin, destination, times)


def run_flows(job: FlowJob) -> Outcome:
    """Everybody reports both ends with half of epsilon each; flows are estimated from marginals and from pairs."""
    flows = read_flows(job.shared, job.trips)
    size = flows.domain.size
    truth = flows.people / flows.people.sum()
    candidates = np.zeros((size, size), dtype=bool)
    candidates[flows.origin, flows.destination] = True
    origins, destinations = (np.repeat(end, flows.people) for end in (flows.origin, flows.destination))
    asked: list[tuple[Scheme, FlowEstimator]] = [(scheme, "lasso") for scheme in PAPERS]
    if size <= _LARGEST:
        asked.append((Scheme(_JOINT, "grr", "em"), "joint"))
    made = []
    for epsilon in job.epsilons:
        even = float(np.abs(truth - 1 / truth.size).sum())
        made.append(Found(job.trips.name, _KNOWN, epsilon, job.trial, L1, even, "flows"))
        for scheme, estimator in asked:
            rng = Randomness(job.seed).child(f"flows/{job.trips.name}/{scheme.label}/{epsilon:g}/{job.trial}")
            pairs = OriginDestination(
                mechanism=scheme.mechanism(epsilon, flows.domain), estimator=estimator, unit="trip"
            )
            randomizer = pairs.on(flows.domain)
            reports = pairs.randomize(randomizer, origins, destinations, rng)
            joint = pairs.estimate(randomizer, reports, rng.child("estimate"), candidates=candidates).joint
            value = float(np.abs(truth - joint[flows.origin, flows.destination]).sum())
            made.append(Found(job.trips.name, scheme.label, epsilon, job.trial, L1, value, "flows"))
    return Outcome(tuple(made))


def _jobs(plan: Plan, shared: Path, seed: int) -> list[FlowJob]:
    epsilons = (1.0, 4.0, 8.0) if plan.thin else _EPSILONS
    return [FlowJob(trips, trial, epsilons, shared, seed) for trips in TRIPS for trial in range(plan.trials)]


def _report(results: Results) -> Report:
    levels = results.levels(L1, "flows")
    panels, rows, held, words, ahead = [], [], [], [], []
    for trips in TRIPS:
        names = [
            name for name in (*NAMES, _JOINT, _KNOWN) if results.has(trips.name, name, levels[0], L1, "flows")
        ]
        curves = Curves(results, L1, names, "flows")
        panels.append(curves.panel(trips.name, f"{trips.name}: {L1}"))
        rows += curves.rows(trips.name, f"{trips.name}: ")
        first = curves.leaders(trips.name)
        held += [name == SRR for name in first.values()]
        words.append(f"{trips.name}: " + ", ".join(f"{name} at {level:g}" for level, name in first.items()))
        if _JOINT in names:
            joint = curves.line(trips.name, _JOINT)
            ahead += [
                joint[level].mean < results.of(trips.name, name, level, L1, "flows").mean
                for level, name in first.items()
            ]
    claims = [
        Claim(
            f"Figure 10: {SRR} has the least L1 of flows at every epsilon on all data sets",
            joint_verdict(held),
            "first is " + "; ".join(words),
        ),
        Claim(
            "Estimating from the pairs themselves has less L1 than every randomizer with the Lasso on marginals",
            joint_verdict(ahead),
            f"{_JOINT}: in {sum(ahead)} of {len(ahead)} settings of at most {_LARGEST} sites",
        ),
    ]
    note = (
        f"The candidates are the pairs that occur, as the paper has it; '{_KNOWN}' says that all are equally frequent, "
        "which costs no privacy beyond knowing them."
    )
    header = ["data and pair", *(f"ε = {level:g}" for level in levels)]
    table = Table("Figure 10: L1 of origin-destination flows", header, rows, note)
    caption = (
        "As Figure 10: L1 of flows by the Lasso on marginals, the joint estimator, and no reports at all."
    )
    return Report([table], [Picture.curves("figure_10", panels, caption)], claims)


FIGURE_10: Final = Section("figure 10", _jobs, _report)
