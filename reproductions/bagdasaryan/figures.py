"""Figures 1, 5 and 6 of Bagdasaryan et al. (2022): maps to look at, with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mapveil_client.arrays import FloatArray
from reproductions.bagdasaryan.data import IMAGES, MANHATTAN
from reproductions.bagdasaryan.runs import PLAIN, Asked, Crowd, Job, jobs_of
from reproductions.bagdasaryan.sections import UNIT, Plan, Shown
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict, maps_figure
from reproductions.results import Results

OTHER_IMAGES: Final = tuple(name for name in IMAGES if name != MANHATTAN)
"""In the place of Lagos and Mayotte."""

_BRIGHTEST: Final = 99.5  # percentile of the original that is drawn brightest
_COARSE: Final = 16  # cells a side of what is shown of a picture that is not ours
_DPI: Final = 80


def _drawn(name: str, rows: Sequence[tuple[str, Sequence[tuple[str, FloatArray]]]], caption: str) -> Picture:
    """Rows of maps, each row on the scale of its first map, the brightest cells of which are alike."""
    scaled = []
    for title, (first, *others) in rows:
        top = float(np.percentile(first[1][first[1] > 0], _BRIGHTEST))
        scaled.append((title, [(first[0], np.minimum(first[1], top)), *others]))
    return Picture.of(name, maps_figure(scaled, scale_of_first=True), caption, _DPI)


def _original(results: Results) -> tuple[str, FloatArray]:
    """Manhattan as it may be shown: the picture is a newspaper's, so blocks of its cells are averaged."""
    truth = results.maps[MANHATTAN, "truth"]
    side = truth.shape[0] // _COARSE
    blocks = truth.reshape(side, _COARSE, side, _COARSE).mean(axis=(1, 3))
    return f"original, {side} x {side}", np.kron(blocks, np.ones((_COARSE, _COARSE)))


def _errors(results: Results, labels: Sequence[str], heading: str, image: str = MANHATTAN) -> Table:
    rows = []
    for label in labels:
        found = results.of(label=label, image=image)
        rows.append([label, Shown()(found), f"{found.length:,.0f}", f"{found.rounds:.1f}"])
    return Table(heading, ["method", "MSE, 1e-13", "vector", "rounds"], rows)


_LOCAL: Final = (
    Asked("local DP", "local-laplace", (("shard_size", 100),)),
    Asked("local DP, level 5", "local-laplace", (("shard_size", 100), ("level", 5))),
    Asked("Algorithm 2", "adaptive"),
    Asked("multiscale (ours)", "multiscale", (("rounds", 1),)),
)
_LOCAL_USERS: Final = 10_000


def _report_1(results: Results) -> Report:
    labels = [asked.label for asked in _LOCAL]
    local, adaptive = (results.of(label=label) for label in ("local DP", "Algorithm 2"))
    truth = results.maps[MANHATTAN, "truth"]
    nothing = float(np.mean((truth - 1 / truth.size) ** 2))
    claim = Claim(
        "Local DP at ε = 1 loses much of the map that distributed DP keeps (read as: it explains at most three "
        "quarters of the variance that distributed DP explains)",
        joint_verdict([nothing - local.mean <= 0.75 * (nothing - adaptive.mean)]),
        f"{local.mean * UNIT:.2f}e-13 against {adaptive.mean * UNIT:.2f}e-13; a map without any information "
        f"has {nothing * UNIT:.2f}e-13",
    )
    maps = [_original(results)] + [(label, results.maps[MANHATTAN, label]) for label in labels]
    picture = _drawn(
        "figure_1",
        [("", maps)],
        f"As Figure 1: Manhattan from {_LOCAL_USERS:,} users at ε = 1, all on the original's scale",
    )
    table = _errors(
        results, labels, f"Figure 1: local and distributed DP, {_LOCAL_USERS:,} users of Manhattan"
    )
    return Report([table], [picture], [claim])


FIGURE_1: Final = Section(
    "figure 1", jobs_of(Crowd("figure 1", _LOCAL_USERS, _LOCAL, keep_maps=True)), _report_1
)

_DROPPING: Final = (("tolerated_dropout", 0.1),)
_PROGRESS: Final = tuple(
    Asked(f"round {rounds}", "adaptive", (*_DROPPING, ("rounds", rounds)), dropout=0.1)
    for rounds in (2, 3, 4)
)
_MANHATTAN: Final = (
    Asked("non-private", PLAIN, dropout=0.1, best_level=True),
    Asked("Algorithm 2", "adaptive", _DROPPING, dropout=0.1),
    Asked("uniform grid (ours)", "uniform", _DROPPING, dropout=0.1),
    Asked("multiscale (ours)", "multiscale", (*_DROPPING, ("rounds", 1)), dropout=0.1),
)


def _jobs_5(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    asked = (*_PROGRESS, *_MANHATTAN)
    return [
        Job("figure 5", MANHATTAN, 100_000, trial, asked if trial == 0 else _MANHATTAN, shared, seed,
            keep_maps=trial == 0)
        for trial in range(plan.trials)
    ]  # fmt: skip


def _report_5(results: Results) -> Report:
    labels = [asked.label for asked in _MANHATTAN]
    original = _original(results)
    first = [original] + [
        (f"Algorithm 2, {each.label.split()[1]} rounds", results.maps[MANHATTAN, each.label])
        for each in _PROGRESS
    ]
    second = [original] + [
        (label, results.maps[MANHATTAN, label])
        for label in ("Algorithm 2", "uniform grid (ours)", "multiscale (ours)")
    ]
    picture = _drawn(
        "figure_5",
        [("", first), ("", second)],
        "As Figure 5: 100,000 users, ε = 1, 10 % drop out, shards of 10,000 of which 9,000 make the noise. Above, "
        "runs that were allowed fewer rounds; below, whole ones.",
    )
    table = _errors(results, labels, "Figure 5: Manhattan, 100,000 users, 10 % drop out, DP shard 9,000")
    return Report([table], [picture])


FIGURE_5: Final = Section("figure 5", _jobs_5, _report_5)

_FIXED: Final = (("threshold", 10), ("schedule", "even"))
_ELSEWHERE: Final = (
    Asked("non-private", PLAIN, best_level=True),
    Asked("fixed ε, T = 10", "adaptive", _FIXED, best_of_rounds=9),
    Asked("Algorithm 2", "adaptive"),
    Asked("uniform grid (ours)", "uniform"),
    Asked("multiscale (ours)", "multiscale", (("rounds", 1),)),
    Asked("multiscale, two rounds (ours)", "multiscale", (("rounds", 2),)),
)


def _report_6(results: Results) -> Report:
    labels = [asked.label for asked in _ELSEWHERE]
    header = ["method"]
    body = [[label] for label in labels]
    held, ours, words = [], [], []
    rows = []
    for image in OTHER_IMAGES:
        header += [f"{image}: MSE, 1e-11", "vector"]
        found = {label: results.of(label=label, image=image) for label in labels}
        for line, label in zip(body, labels, strict=True):
            line += [Shown(1e11, 3)(found[label]), f"{found[label].length:,.0f}"]
        adaptive, fixed = found["Algorithm 2"], found["fixed ε, T = 10"]
        held += [adaptive.mean < fixed.mean, adaptive.length < fixed.length]
        ours.append(found["multiscale (ours)"].mean < adaptive.mean)
        words.append(f"{image} {adaptive.mean * 1e11:.3f} against {fixed.mean * 1e11:.3f}e-11")
        shown = ["truth", "Algorithm 2", "multiscale (ours)", "multiscale, two rounds (ours)"]
        rows.append(
            (
                image,
                [(label if label != "truth" else "original", results.maps[image, label]) for label in shown],
            )
        )
    claims = [
        Claim(
            "On other maps too the algorithm is ahead of fixed budgets and thresholds, at less communication",
            joint_verdict(held),
            "; ".join(words),
        ),
        Claim(
            "On other maps too Mapveil's default has less error than Algorithm 2",
            joint_verdict(ours),
            "; ".join(
                f"{image} {results.of(label='multiscale (ours)', image=image).mean * 1e11:.3f} against "
                f"{results.of(label='Algorithm 2', image=image).mean * 1e11:.3f}e-11"
                for image in OTHER_IMAGES
            ),
        ),
    ]
    table = Table(
        "Figure 6: other maps, 100,000 users, ε = 1",
        header,
        body,
        "The paper's maps are of Lagos (1.43e-12 at 291, against 1.82e-12 at 41,233 for the fixed ε) and Mayotte "
        "(3.98e-11 at 929, against 4.45e-11 at 27,022); neither is at hand.",
    )
    picture = _drawn("figure_6", rows, "As Figure 6, on maps at hand: 100,000 users, ε = 1")
    return Report([table], [picture], claims)


_JOBS_6: Final = jobs_of(
    *(Crowd("figure 6", 100_000, _ELSEWHERE, image, keep_maps=True) for image in OTHER_IMAGES)
)
FIGURE_6: Final = Section("figure 6", _JOBS_6, _report_6)
