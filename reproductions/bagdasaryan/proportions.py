"""Figure 9 of Bagdasaryan et al. (2022), appendix B: what part of the people of each place is infected."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.maps.proportion_map import ProportionMap
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.proportion_histogram import ProportionHistogram
from mapveil.metrics.metrics import METRICS
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.arrays import FloatArray
from mapveil_client.contribution import Devices
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness
from reproductions.bagdasaryan.data import MANHATTAN, bump, image_of, read_image, sampled
from reproductions.bagdasaryan.runs import SHARD_SIZE, Found, densities
from reproductions.bagdasaryan.sections import UNIT, Plan, Shown
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict, maps_figure
from reproductions.results import Outcome, Results

_USERS: Final = 100_000
_WIDTHS: Final = {"by count": None, "by count and interval": 0.2}
"""How nodes are split: the widest interval of use, by label."""

_METRICS: Final = ("mse", "error", "width", "coverage")
_COVERAGE: Final = 0.95
_DPI: Final = 80


class ProportionJob(NamedTuple):
    """One trial: people with a test's result, asked in every way; picklable."""

    group: str
    image: str
    users: int
    trial: int
    shared: Path
    seed: int
    keep_maps: bool = False


def infected_devices(counts: Counts, part: FloatArray, rng: np.random.Generator) -> Devices:
    """A device for each user, with label 1 with the probability ``part`` of its cell, else 0."""
    lattice = counts.tiling.lattice()
    site = interleave(lattice.row, lattice.col)
    labels = rng.random(int(counts.values.sum())) < np.repeat(part, counts.values)
    return Devices(np.repeat(site, counts.values), labels=labels.astype(np.int64))


def run_proportions(job: ProportionJob) -> Outcome:
    """Ask and measure. Errors and widths are means over people; coverage is of the groups' true proportions."""
    scene = sampled(job.shared, job.image, job.users, job.seed, job.trial)
    everybody = read_image(job.shared, job.image).values.astype(np.float64)
    part = bump(scene.tiling)
    stream = Randomness(job.seed).child(f"noise/{job.group}/{job.image}/{job.users}/{job.trial}")
    if not isinstance(scene.people, Counts):
        raise AssertionError("an image is read as counts")
    devices = infected_devices(scene.people, part, stream.child("who is infected").generator())
    truth = image_of(densities(everybody), scene.tiling)
    rows: list[Found] = []
    maps: dict[tuple[str, str], FloatArray] = {}
    if job.keep_maps:
        maps[job.image, "truth"] = image_of(part, scene.tiling)
    costs: dict[tuple[str, str], tuple[RoundCost, ...]] = {}
    for label, width in _WIDTHS.items():
        mechanism = ProportionHistogram(
            epsilon=Fraction(1),
            trust=SecureAggregation(shard_size=SHARD_SIZE, tolerated_dropout=0, corrupt=0),
            width=width,
        )
        start = time.perf_counter()
        made = mechanism.release(devices, scene.tiling, rng=stream.child(label))
        if not isinstance(made, ProportionMap):
            raise AssertionError("proportions are a map of proportions")
        seconds = time.perf_counter() - start
        measured = {
            "mse": METRICS["mse"](truth, image_of(densities(made.values), scene.tiling)),
            **_measured(made, everybody, part),
        }
        epsilons = " ".join(f"{float(share.epsilon):.4g}" for share in made.guarantee.shares)
        bits = max(each.bits for each in made.rounds)
        costed = RoundCost.total_length(made.rounds), bits, len(made.rounds), epsilons, seconds
        for metric, value in measured.items():
            against = "density" if metric == "mse" else "proportion"
            about = job.group, job.image, job.users, job.trial, label, against
            rows.append(Found(*about, metric, value, *costed))
        if job.keep_maps:
            bounds = made.proportion_interval()
            maps[job.image, label] = image_of(np.nan_to_num(made.proportion()), scene.tiling)
            maps[job.image, f"{label}: interval"] = image_of(bounds.upper - bounds.lower, scene.tiling)
            costs[job.image, label] = made.rounds
    return Outcome(tuple(rows), maps, costs)


def _measured(made: ProportionMap, everybody: FloatArray, part: FloatArray) -> dict[str, float]:
    groups = made.measured.groups
    size = made.measured.noisy.size
    people = np.bincount(groups, everybody, size)
    true = np.bincount(groups, everybody * part, size) / np.maximum(people, 1.0)
    bounds = made.measured.bounds(1 - _COVERAGE, 1)
    held = people > 0
    covered = (bounds.lower <= true) & (true <= bounds.upper)
    # Nothing known of a cell is the interval from 0 to 1, and an estimate in its middle.
    estimate = np.where(np.isfinite(made.proportion()), made.proportion(), 0.5)
    interval = made.proportion_interval(1 - _COVERAGE)
    weight = everybody / everybody.sum()
    return {
        "error": float(weight @ np.abs(estimate - part)),
        "width": float(weight @ (interval.upper - interval.lower)),
        "coverage": float(covered[held].mean()),
    }


def _jobs(plan: Plan, shared: Path, seed: int) -> Sequence[ProportionJob]:
    return [
        ProportionJob("figure 9", MANHATTAN, _USERS, trial, shared, seed, keep_maps=trial == 0)
        for trial in range(plan.trials)
    ]


def _report(results: Results) -> Report:
    rows = []
    for label in _WIDTHS:
        found = {metric: results.of(metric, label=label) for metric in _METRICS}
        rows.append(
            [
                label,
                Shown(UNIT)(found["mse"]),
                Shown(1, 3)(found["error"]),
                Shown(1, 3)(found["width"]),
                Shown(100, 1)(found["coverage"]),
                f"{found['mse'].length:,.0f}",
            ]
        )
    table = Table(
        f"Figure 9: infected part of Manhattan's people, {_USERS:,} users, ε = 1",
        ["split", "density MSE, 1e-13", "error", "interval width", "coverage, %", "vector"],
        rows,
        "A user is infected with the probability of a Gaussian about column 200, row 900, of 150 cells (the paper "
        "gives the centre). Error (absolute) and width of the 95 % intervals are means over people; coverage "
        "is the part of measured groups whose interval holds their true part.",
    )
    coverage = {label: results.of("coverage", label=label) for label in _WIDTHS}
    widths = [results.of("width", label=label) for label in _WIDTHS]
    claims = [
        Claim(
            "The intervals of proportions cover the truth in at least 95 % of groups (read as: not clearly in fewer)",
            joint_verdict([each.high >= _COVERAGE for each in coverage.values()]),
            "; ".join(f"{label} {each.mean:.1%}" for label, each in coverage.items()),
        ),
        Claim(
            "Splitting by interval width gives narrower intervals than splitting by count alone",
            joint_verdict([widths[1].mean < widths[0].mean]),
            f"{widths[1].mean:.3f} against {widths[0].mean:.3f}",
        ),
    ]
    shown = [("infected part", results.maps[MANHATTAN, "truth"])]
    shown += [
        (name, results.maps[MANHATTAN, name]) for label in _WIDTHS for name in (label, f"{label}: interval")
    ]
    caption = "As Figure 9: the infected part, and its estimates and interval widths by how nodes are split"
    picture = Picture.of("figure_9", maps_figure([("", shown)], scale_of_first=True), caption, _DPI)
    return Report([table], [picture], claims)


FIGURE_9: Final = Section("figure 9", _jobs, _report)
