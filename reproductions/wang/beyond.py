"""Beyond the paper: all randomizers with all estimators on four cities, its own pairs and the uniform baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.evaluation.comparison import interval_of_mean
from mapveil.local.estimators.estimators import ESTIMATORS
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.wang.collections import EMD, KL, L1, UNIFORM, Collection
from reproductions.wang.data import BEYOND
from reproductions.wang.sections import Curves, Plan, Results, Scheme, default_scheme

EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
METRICS: Final = (L1, KL, EMD)

_RANDOMIZERS: Final[tuple[tuple[str, str, tuple[tuple[str, Any], ...]], ...]] = (
    ("GRR", "grr", ()),
    ("OLH-H", "olh-h", (("growth", 2), ("site_weight", 1))),
    ("PLDP", "unary", ()),
    ("HR", "hr", (("blocks", 1),)),
    ("L-SRR", "srr", ()),
    ("L-SRR, 3 groups", "srr", (("thresholds", "published"),)),
    ("OLH-H, few levels", "olh-h", ()),
    ("subset", "subset", ()),
    ("olh", "olh", ()),
    ("hr, blocks", "hr", ()),
    ("unary, symmetric", "unary", (("variant", "symmetric"),)),
    ("disk", "disk", ()),
    ("planar-laplace", "planar-laplace", ()),
)
_SLOW: Final = frozenset({("olh", "em"), ("olh-h", "em"), ("disk", "em")})
_PAPERS: Final = frozenset(name for name, _, _ in _RANDOMIZERS[:6])
_THEIRS: Final = frozenset({"em", "simplex", "norm-clip"})

ALL: Final = tuple(
    Scheme(f"{name}, {estimator}", method, estimator, options)
    for name, method, options in _RANDOMIZERS
    for estimator in ESTIMATORS
    if estimator != "candidate-sets" and (method, estimator) not in _SLOW
)
"""Every pair but the exact likelihood of hashes and disks; candidate sets have the solution of ``simplex``."""

PEERS: Final = (
    *(
        scheme.label
        for scheme in ALL
        if scheme.label.rpartition(", ")[0] in _PAPERS and scheme.estimator in _THEIRS
    ),
    UNIFORM,
)
"""Every pair that the paper compares, with every estimator that is not Mapveil's own; and the uniform baseline."""


def _default_label() -> str:
    chosen = default_scheme()
    return next(
        scheme.label
        for scheme in ALL
        if (scheme.method, scheme.estimator) == (chosen.method, chosen.estimator) and not scheme.options
    )


_CHIEF: Final = tuple(scheme for scheme in ALL if scheme.label in {*PEERS, _default_label()})


class Standing(NamedTuple):
    """How a pair does against all of :data:`PEERS`, over cities, epsilons and metrics."""

    ahead: int  # its mean is below the least mean of them
    clear: int  # and the 95 % interval of the paired difference excludes 0
    of: int
    worst: float  # its mean over the least of theirs, at its worst
    where: str
    short: tuple[str, ...]  # the settings in which it is not ahead


def _jobs(plan: Plan, shared: Path, seed: int) -> list[Collection]:
    return [
        Collection(
            (data,),
            trial,
            ALL if trial < plan.whole_trials else _CHIEF,
            (epsilon,),
            (),
            True,
            shared,
            seed,
            "beyond",
        )
        for data in BEYOND
        for epsilon in EPSILONS
        for trial in range(plan.close_trials if epsilon == EPSILONS[0] else plan.beyond_trials)
    ]


def standing(results: Results, label: str) -> Standing:
    """Compare one pair with every peer."""
    ahead = clear = of = 0
    worst, where, short = -np.inf, "", []
    for data in BEYOND:
        for level in EPSILONS:
            for metric in METRICS:
                mine = np.array(results.values(data.name, label, level, metric, "beyond"))
                theirs = {
                    peer: np.array(results.values(data.name, peer, level, metric, "beyond"))[: mine.size]
                    for peer in PEERS
                    if peer != label and results.has(data.name, peer, level, metric, "beyond")
                }
                best = min(theirs, key=lambda peer: theirs[peer].mean())
                ratio = float(mine.mean() / theirs[best].mean())
                setting = f"{data.name}, ε = {level:g}, {metric.split(',')[0]}: {ratio:.3f} of {best}"
                of += 1
                ahead += ratio < 1
                clear += all(interval_of_mean(other - mine)[1] > 0 for other in theirs.values())
                if ratio >= 1:
                    short.append(setting)
                if ratio > worst:
                    worst, where = ratio, setting
    return Standing(ahead, clear, of, worst, where, tuple(short))


def _available(results: Results) -> list[str]:
    """The pairs that there are: not every estimator serves every randomizer."""
    return [
        scheme.label
        for scheme in ALL
        if all(results.has(data.name, scheme.label, EPSILONS[0], L1, "beyond") for data in BEYOND)
    ]


def _report(results: Results) -> Report:
    labels = _available(results)
    ours = [label for label in labels if label not in PEERS]
    found = {label: standing(results, label) for label in ours}
    ranked = sorted(ours, key=lambda label: (-found[label].ahead, found[label].worst))
    rows = [
        [
            label,
            f"{found[label].ahead} of {found[label].of}",
            f"{found[label].clear} of {found[label].of}",
            f"{found[label].worst:.3f}",
            found[label].where,
        ]
        for label in ranked
    ]
    head = ["pair", "ahead of all", "clearly", "worst ratio", "at"]
    note = (
        "Ahead: less on average than every pair of the paper and than the uniform baseline. Clearly: the 95 % interval "
        "of each paired difference over the seeds excludes 0. Worst ratio: to the best of those. The default is run "
        "with as many seeds as the paper's pairs, the others with four."
    )
    tables = [Table("Mapveil's pairs against the paper's and the uniform baseline", head, rows, note)]
    tables += [_whole(results, [*labels, UNIFORM], metric) for metric in METRICS]
    default = _default_label()
    mine = found.get(default) or standing(results, default)
    claims = [
        Claim(
            "Some pair of Mapveil's has less L1, KL and EMD than every pair of the paper and the uniform baseline, in "
            "every city and at every epsilon",
            "holds" if found[ranked[0]].ahead == found[ranked[0]].of else "does not hold",
            f"best is {ranked[0]}: {found[ranked[0]].ahead} of {found[ranked[0]].of}, clearly in "
            f"{found[ranked[0]].clear}; short: {'; '.join(found[ranked[0]].short) or 'nowhere'}",
        ),
        Claim(
            f"The default of --trust local ({default}) is that pair",
            "holds" if default == ranked[0] else "does not hold",
            f"{mine.ahead} of {mine.of}, clearly in {mine.clear}; short: {'; '.join(mine.short) or 'nowhere'}",
        ),
        *(_metric_claim(results, default, metric) for metric in METRICS),
    ]
    return Report(tables, _pictures(results, default), claims)


def _metric_claim(results: Results, label: str, metric: str) -> Claim:
    held, words = [], []
    for data in BEYOND:
        parts = []
        for level in EPSILONS:
            mine = results.of(data.name, label, level, metric, "beyond").mean
            peers = [peer for peer in PEERS if results.has(data.name, peer, level, metric, "beyond")]
            theirs, best = min(
                (results.of(data.name, peer, level, metric, "beyond").mean, peer) for peer in peers
            )
            held.append(mine < theirs)
            parts.append(f"{_number(mine, metric)} against {_number(theirs, metric)} of {best}")
        words.append(f"{data.name}: " + ", ".join(parts))
    return Claim(
        f"{label}: less {metric.split(',')[0]} than all of them (at ε = 0.5, 1, 2, 4)",
        joint_verdict(held),
        "; ".join(words),
    )


def _number(value: float, metric: str) -> str:
    return f"{value:.0f}" if metric == EMD else f"{value:.3f}"


def _whole(results: Results, labels: Sequence[str], metric: str) -> Table:
    columns = [(data, level) for data in BEYOND for level in EPSILONS]
    means = {
        label: [results.of(data.name, label, level, metric, "beyond").mean for data, level in columns]
        for label in labels
    }
    least = np.array(list(means.values())).min(axis=0)
    rows = [
        [
            f"{label}{'' if label not in PEERS else ' (paper)' if label != UNIFORM else ''}",
            *(
                f"{'*' if value == best else ''}{_number(value, metric)}"
                for value, best in zip(values, least, strict=True)
            ),
        ]
        for label, values in means.items()
    ]
    header = ["pair", *(f"{data.name.split(', ')[1]} {level:g}" for data, level in columns)]
    return Table(f"Beyond the paper: {metric}, by city and ε", header, rows)


def _pictures(results: Results, default: str) -> list[Picture]:
    made = []
    shown = [default, "L-SRR, simplex", "L-SRR, em", "PLDP, simplex", "HR, em", "GRR, em", UNIFORM]
    for metric, name in ((L1, "l1"), (KL, "kl"), (EMD, "emd")):
        curves = Curves(results, metric, tuple(dict.fromkeys(shown)), "beyond")
        panels = [
            curves.panel(data.name, f"{data.name}: {metric}", log_x=True, log_y=metric != L1)
            for data in BEYOND
        ]
        caption = f"{metric} of Mapveil's default, some of the paper's pairs and the uniform baseline."
        made.append(Picture.curves(f"beyond_{name}", panels, caption))
    return made


BEYOND_TABLE: Final = Section("table beyond", _jobs, _report)
