"""The staircase itself: Figure 5, the published c, Table 1's relaxed notions, Table 4's trusted curator."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple, cast

import numpy as np

from mapveil.evaluation.html_report import Curve, Panel
from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.geo.tiling import as_tiling
from mapveil.local.estimators.estimators import estimate_distribution
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil_client.local.domain import Domain
from mapveil_client.local.staircase_groups import Steps, staircase_ratio
from mapveil_client.local.staircase_response import StaircaseRandomizer, group_number
from mapveil_client.randomness.random import Randomness
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.results import Outcome, curve
from reproductions.wang.collections import L1
from reproductions.wang.data import SETS, DataSet, read_scene
from reproductions.wang.relaxed import InputDiscriminativeRandomizer, condensed_randomizer, geo_randomizer
from reproductions.wang.sections import SRR, Curves, Found, Plan, Results, beside, shown

_EPSILONS: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0)
_LOG_C: Final = "log c"
_REAL: Final = "real epsilon of c = e^epsilon"
_GROUPS: Final = "m"
_OWN: Final = "published groups"
_SIDE: Final = 10
_PEOPLE: Final = 10_000
_PARTS: Final = (Fraction(1, 2), Fraction(4, 5), Fraction(1))
_RELAXED: Final = ("ID-LDP", "GI", "CLDP", SRR)
_RELAXED_EPSILONS: Final = (0.5, 1.0, 2.0, 3.0, 4.0)
_BUDGETS: Final = (1.0, 3.0, 5.0, 7.0)
_WHOLE: Final = "whole epsilon for every site"
_SHARED: Final = "epsilon / d for every site"


class StairJob(NamedTuple):
    """The staircase on one domain; can be pickled."""

    data: DataSet
    epsilons: tuple[float, ...]
    shared: Path


class RelaxedJob(NamedTuple):
    """One trial of Table 1; can be pickled."""

    trial: int
    epsilons: tuple[float, ...]
    seed: int


class CentralJob(NamedTuple):
    """One trial of Table 4; can be pickled."""

    data: DataSet
    trial: int
    shared: Path
    seed: int


def run_stairs(job: StairJob) -> Outcome:
    """The strict c, the number of groups, and what the published c would promise."""
    domain = read_scene(job.shared, job.data).domain
    made = []

    def note(scheme: str, epsilon: float, metric: str, value: float) -> None:
        made.append(Found(job.data.name, scheme, epsilon, 0, metric, value))

    for epsilon in job.epsilons:
        exact = Fraction(str(epsilon))
        groups = group_number(exact, domain.size)
        note(SRR, epsilon, _GROUPS, groups)
        asked = {
            SRR: StaircaseResponse(epsilon=exact),
            _OWN: StaircaseResponse(epsilon=exact, thresholds=(domain.codes.bits, 30, 0)),
        }
        for label, mechanism in asked.items():
            randomizer = cast("StaircaseRandomizer", mechanism.on(domain))
            note(label, epsilon, _LOG_C, math.log(randomizer.steps.ratio))
            step = Fraction(math.exp(epsilon)) - 1
            loose = staircase_ratio(randomizer.extremes, Steps(step.numerator, step.denominator))
            note(label, epsilon, _REAL, math.log(loose))
    return Outcome(tuple(made))


def run_relaxed(job: RelaxedJob) -> Outcome:
    """Table 1: people evenly on a square of sites, by notions that promise less than they seem to."""
    domain = Domain(Grid(Region.from_bbox(0.0, 0.0, 0.1, 0.1), rows=_SIDE, columns=_SIDE))
    rng = Randomness(job.seed).child(f"relaxed/{job.trial}")
    chance = rng.child("people").generator()
    cells = chance.integers(0, domain.size, _PEOPLE)
    truth = np.bincount(cells, minlength=domain.size) / _PEOPLE
    parts = chance.integers(0, 3, domain.size)
    made = []
    for epsilon in job.epsilons:
        exact = Fraction(str(epsilon))
        for label, randomizer, estimator in (
            (
                "ID-LDP",
                InputDiscriminativeRandomizer(domain, [exact * _PARTS[part] for part in parts.tolist()]),
                "simplex",
            ),
            ("GI", geo_randomizer(domain, exact), "simplex"),
            ("CLDP", condensed_randomizer(domain, exact), "simplex"),
            (SRR, StaircaseResponse(epsilon=exact).on(domain), "simplex"),
        ):
            tally = randomizer.tally(randomizer.randomize(cells, rng.child(f"{label}/{epsilon:g}")))
            estimate = estimate_distribution(randomizer, tally, estimator).distribution
            for metric, value in (
                (L1, float(np.abs(truth - estimate).sum())),
                ("exact epsilon", randomizer.exact_epsilon()),
            ):
                made.append(Found("relaxed", label, epsilon, job.trial, metric, value))
    return Outcome(tuple(made))


def run_central(job: CentralJob) -> Outcome:
    """Table 4: Laplace noise by a trusted curator, with epsilon divided by the sites as printed, and undivided."""
    scene = read_scene(job.shared, job.data)
    tiling, truth = as_tiling(scene.domain.tiling), scene.visits / scene.people
    counts = Counts(scene.visits, tiling)
    made = []
    for epsilon in _BUDGETS:
        for label, budget in (
            (_SHARED, Fraction(str(epsilon)) / truth.size),
            (_WHOLE, Fraction(str(epsilon))),
        ):
            rng = Randomness(job.seed).child(f"central/{scene.name}/{label}/{epsilon:g}/{job.trial}")
            values = LaplaceHistogram(epsilon=budget).release(counts, rng=rng).values
            estimate = values / max(float(values.sum()), 1e-300)
            value = float(np.abs(truth - estimate).sum())
            made.append(Found(scene.name, label, epsilon, job.trial, L1, value, "central"))
    return Outcome(tuple(made))


def _stair_jobs(plan: Plan, shared: Path, seed: int) -> list[StairJob]:
    return [StairJob(data, _EPSILONS[1::3] if plan.thin else _EPSILONS, shared) for data in SETS]


def _relaxed_jobs(plan: Plan, shared: Path, seed: int) -> list[RelaxedJob]:
    return [RelaxedJob(trial, _RELAXED_EPSILONS, seed) for trial in range(plan.trials)]


def _central_jobs(plan: Plan, shared: Path, seed: int) -> list[CentralJob]:
    return [CentralJob(data, trial, shared, seed) for data in SETS for trial in range(plan.trials)]


def _report_5(results: Results) -> Report:
    logs = Curves(results, _LOG_C, (SRR, _OWN))
    levels = logs.levels
    header = ["sites", *(f"ε = {level:g}" for level in levels)]
    rows, over, close = [], [], []
    for data in SETS:
        for label in (SRR, _OWN):
            name = f"{data.name}, d = {data.paper[0]}, {label}"
            found = {
                metric: [results.of(data.name, label, level, metric).mean for level in levels]
                for metric in (_LOG_C, _REAL)
            }
            rows.append([f"{name}: log c", *(f"{value:.2f}" for value in found[_LOG_C])])
            rows.append([f"{name}: real ε of c = e^ε", *(f"{value:.2f}" for value in found[_REAL])])
            over += [real > 1.01 * level for real, level in zip(found[_REAL], levels, strict=True)]
            close += [value >= 0.95 * level for value, level in zip(found[_LOG_C], levels, strict=True)]
    panels = [
        Panel(
            "log c that keeps the promise",
            "ε",
            [
                *(curve(data.name, logs.line(data.name, SRR)) for data in SETS),
                *(curve(f"{data.name}, 3 groups", logs.line(data.name, _OWN)) for data in SETS),
                Curve("log c = ε", levels, levels, levels, levels),
            ],
        ),
        Panel(
            "groups m of Lemma 3.4",
            "ε",
            [curve(data.name, Curves(results, _GROUPS, (SRR,)).line(data.name, SRR)) for data in SETS],
        ),
    ]
    groups = [results.of(data.name, SRR, level, _GROUPS).mean for data in SETS for level in levels]
    claims = [
        Claim(
            "Figure 5: c is extremely close to e^ε (read as: log c at least 95 % of ε, with the strict c)",
            joint_verdict(close),
            f"in {sum(close)} of {len(close)} settings; where m = 2 and the first group is the place alone, c is exact",
        ),
        Claim(
            "The published c, e^ε, keeps the promise of ε on these domains (read as: real ε at most 1 % above)",
            joint_verdict([not each for each in over]),
            "at ε = 1 with three groups: "
            + ", ".join(f"{data.name} {results.of(data.name, _OWN, 1.0, _REAL).mean:.2f}" for data in SETS),
        ),
        Claim(
            "Figure 5: the number of groups is 2 to 6",
            joint_verdict([2 <= value <= 6 for value in groups]),
            f"{min(groups):g} to {max(groups):g}; 2 where e^ε is above 5, which is generalized randomized response",
        ),
    ]
    caption = "As Figure 5: the largest c whose exact worst ratio is at most e^ε, and the number of groups."
    table = Table("Figure 5: log c, and what the published c would spend", header, rows)
    return Report([table], [Picture.curves("figure_5", panels, caption)], claims)


def _report_1(results: Results) -> Report:
    levels = _RELAXED_EPSILONS
    rows, won = [], []
    for label in _RELAXED:
        rows.append(
            [
                label,
                *(
                    beside(shown(results.of("relaxed", label, level, L1)), "table 1", label, f"{level:g}")
                    for level in levels
                ),
            ]
        )
        spent = [results.of("relaxed", label, level, "exact epsilon").mean for level in levels]
        rows.append([f"{label}: its ε for the worst pair", *(f"{value:.2f}" for value in spent)])
    won = [results.first(_RELAXED, "relaxed", level, L1) for level in levels]
    text = "; ".join(f"ε = {level:g}: {name}" for level, name in zip(levels, won, strict=True))
    claim = Claim(
        f"Table 1: {SRR} has less L1 than the relaxed notions",
        joint_verdict([name == SRR for name in won]),
        f"first is {text}",
    )
    note = f"{_PEOPLE:,} people, evenly on {_SIDE} x {_SIDE} sites; unbiased estimates, projected on the distributions."
    title = "Table 1: L1 by notion of privacy (the paper's in brackets)"
    return Report(
        [Table(title, ["notion", *(f"ε = {level:g}" for level in levels)], rows, note)], [], [claim]
    )


def _report_4(results: Results) -> Report:
    rows = []
    for data in SETS:
        for label in (_SHARED, _WHOLE):
            cells = [shown(results.of(data.name, label, level, L1, "central")) for level in _BUDGETS]
            if label == _SHARED:
                cells = [
                    beside(cell, "table 4", data.name, f"{level:g}")
                    for cell, level in zip(cells, _BUDGETS, strict=True)
                ]
            rows.append([f"{data.name}: {label}", *cells])
    shared, whole = (
        [results.of(data.name, label, 1.0, L1, "central").mean for data in SETS]
        for label in (_SHARED, _WHOLE)
    )
    claim = Claim(
        "Table 4: epsilon has to be divided by the sites (one person is at one of them, so it does not)",
        "does not hold" if max(w / s for w, s in zip(whole, shared, strict=True)) < 0.1 else "holds in part",
        "L1 at ε = 1, divided and not: "
        + ", ".join(f"{data.name} {s:.3f}, {w:.3f}" for data, s, w in zip(SETS, shared, whole, strict=True)),
    )
    title = "Table 4: L1 of Laplace noise by a trusted curator (the paper's in brackets)"
    header = ["data and budget", *(f"ε = {level:g}" for level in _BUDGETS)]
    return Report([Table(title, header, rows)], [], [claim])


STAIRCASE: Final = (
    Section("figure 5", _stair_jobs, _report_5),
    Section("table 1", _relaxed_jobs, _report_1),
    Section("table 4", _central_jobs, _report_4),
)
