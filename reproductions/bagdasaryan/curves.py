"""Figures 7 and 8 of Bagdasaryan et al. (2022): how the error follows the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from mapveil.evaluation.html_report import Curve, Panel
from reproductions.bagdasaryan.runs import SHARD_SIZE, Asked, Crowd, Job, jobs_of
from reproductions.bagdasaryan.sections import UNIT, Plan, Shown
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.results import Results, Summary, curve

_SAMPLES: Final = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_SAMPLE_EPSILONS: Final = (Fraction(1, 10), Fraction(1))
_CALIBRATIONS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_CALIBRATION_USERS: Final = (10_000, 100_000)


def _jobs_7(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    by_size = tuple(
        Asked(f"ε = {float(epsilon):g}", "adaptive", epsilon=epsilon) for epsilon in _SAMPLE_EPSILONS
    )
    by_c = tuple(Asked(f"c = {c:g}", "adaptive", (("c", c),)) for c in _CALIBRATIONS)
    crowds = [Crowd("figure 7, sample", users, by_size) for users in plan.points(_SAMPLES)]
    crowds += [Crowd("figure 7, c", users, by_c) for users in _CALIBRATION_USERS]
    return jobs_of(*crowds)(plan, shared, seed)


def _report_7(results: Results) -> Report:
    sizes = sorted(set(results.values("users", group="figure 7, sample")))
    names = [f"ε = {float(epsilon):g}" for epsilon in _SAMPLE_EPSILONS]
    sampled = {
        name: [(float(size), results.of(group="figure 7, sample", label=name, users=size)) for size in sizes]
        for name in names
    }
    calibrated = {
        users: [(c, results.of(group="figure 7, c", label=f"c = {c:g}", users=users)) for c in _CALIBRATIONS]
        for users in _CALIBRATION_USERS
    }
    panels = [
        Panel("MSE, 1e-13", "users sampled", [curve(name, sampled[name], UNIT) for name in names], log_x=True),
        Panel("rounds", "users sampled", [_rounds(name, sampled[name]) for name in names], log_x=True),
        Panel(
            "MSE, 1e-13", "c", [curve(f"{users:,} users", calibrated[users], UNIT) for users in _CALIBRATION_USERS],
            log_x=True,
        ),
        Panel(
            "rounds", "c", [_rounds(f"{users:,} users", calibrated[users]) for users in _CALIBRATION_USERS],
            log_x=True,
        ),
    ]  # fmt: skip
    caption = "As Figure 7: Algorithm 2 by sample size (shards of 10,000) and by c (ε = 1); bands are 95 % intervals"
    picture = Picture.curves("figure_7", panels, caption)
    rows = [
        [name, f"{size:,.0f}", Shown()(found), f"{found.rounds:.1f}", f"{found.length:,.0f}"]
        for name in names
        for size, found in sampled[name]
    ] + [
        [f"c = {c:g}", f"{users:,}", Shown()(found), f"{found.rounds:.1f}", f"{found.length:,.0f}"]
        for users in _CALIBRATION_USERS
        for c, found in calibrated[users]
    ]
    table = Table(
        "Figure 7: sample size and calibration", ["", "users", "MSE, 1e-13", "rounds", "vector"], rows
    )
    return Report([table], [picture], _claims_7(sampled, calibrated))


def _rounds(label: str, points: Sequence[tuple[float, Summary]]) -> Curve:
    counts = [found.rounds for _, found in points]
    return Curve(label, [x for x, _ in points], counts, counts, counts)


def _claims_7(
    sampled: dict[str, list[tuple[float, Summary]]], calibrated: dict[int, list[tuple[float, Summary]]]
) -> list[Claim]:
    by_size = {name: ([found.rounds for _, found in points]) for name, points in sampled.items()}
    errors = {name: [found.mean for _, found in points] for name, points in sampled.items()}
    by_c = {users: [found.rounds for _, found in points] for users, points in calibrated.items()}
    best = {users: min(points, key=lambda point: point[1].mean)[0] for users, points in calibrated.items()}
    default = {users: dict(points)[0.1].mean for users, points in calibrated.items()}
    lowest = {users: min(found.mean for _, found in points) for users, points in calibrated.items()}
    near = [default[users] <= 1.02 * lowest[users] for users in calibrated]
    return [
        Claim(
            "More levels are run as the sample or c grows",
            joint_verdict(
                [bool(np.all(np.diff(rounds) >= 0)) for rounds in (*by_size.values(), *by_c.values())]
            ),
            "; ".join(
                f"{name}: {', '.join(f'{count:.1f}' for count in rounds)}"
                for name, rounds in (
                    *((f"by sample, {name}", rounds) for name, rounds in by_size.items()),
                    *((f"by c, {users:,} users", rounds) for users, rounds in by_c.items()),
                )
            ),
        ),
        Claim(
            "The error falls with the sample size, under strict budgets too",
            joint_verdict([bool(np.all(np.diff(means) < 0)) for means in errors.values()]),
            "; ".join(
                f"{name}: {', '.join(f'{mean * UNIT:.2f}' for mean in means)}e-13"
                for name, means in errors.items()
            ),
        ),
        Claim(
            "c = 0.1 performs best (read as: within 2 % of the best c tried)",
            joint_verdict(near),
            "; ".join(
                f"{users:,} users: best at {best[users]:g} ({lowest[users] * UNIT:.2f}e-13), "
                f"{default[users] * UNIT:.2f}e-13 at 0.1"
                for users in calibrated
            ),
        ),
    ]


_SHARDS: Final = (1_000, 3_000, 10_000, 30_000, 100_000)
_SHARD_SAMPLES: Final = (10_000, 100_000)
_LEVEL: Final = 3
_LEVEL_EPSILON: Final = Fraction(1, 10)
_DP_SHARDS: Final = (8_000, 8_500, 9_000, 9_500, 10_000)
_DROPOUTS: Final = (0.0, 0.05, 0.1, 0.15, 0.2)
_DROPOUT_USERS: Final = 10_000
_CLIPS: Final = (8, 10, 11, 12, 13, 14, 15, 16, 18, 20)


def _dropout_label(dropout: float, dp_shard: int) -> str:
    return f"{dropout:.0%} drop out, DP shard {dp_shard:,}"


# One level of the paper's three, each with its own ε: the deepest is the map that is measured.
_BY_SHARD: Final = tuple(
    Asked(f"shards of {size:,}", "uniform", (("depth", _LEVEL), ("shard_size", size)), epsilon=_LEVEL_EPSILON)
    for size in _SHARDS
)
# More dropouts than the DP shard allows for are refused, so those points are not there.
_BY_DROPOUT: Final = tuple(
    Asked(
        _dropout_label(dropout, dp_shard),
        "adaptive",
        (("tolerated_dropout", Fraction(SHARD_SIZE - dp_shard, SHARD_SIZE)),),
        dropout=dropout,
    )
    for dp_shard in _DP_SHARDS
    for dropout in _DROPOUTS
    if round(dropout * SHARD_SIZE) <= SHARD_SIZE - dp_shard
)
_BY_CLIP: Final = tuple(Asked(f"{bits} bits", "adaptive", clip_bits=bits) for bits in _CLIPS)
_JOBS_8: Final = jobs_of(
    *(Crowd("figure 8, shards", users, _BY_SHARD) for users in _SHARD_SAMPLES),
    Crowd("figure 8, dropouts", _DROPOUT_USERS, _BY_DROPOUT),
    Crowd("figure 8, clip", _DROPOUT_USERS, _BY_CLIP),
)


def _report_8(results: Results) -> Report:
    shards = {
        users: [(float(size), results.of(label=f"shards of {size:,}", users=users)) for size in _SHARDS]
        for users in _SHARD_SAMPLES
    }
    dropouts = {
        dropout: [
            (float(dp_shard), results.of(label=_dropout_label(dropout, dp_shard)))
            for dp_shard in _DP_SHARDS
            if round(dropout * SHARD_SIZE) <= SHARD_SIZE - dp_shard
        ]
        for dropout in _DROPOUTS
    }
    clips = [(float(bits), results.of(label=f"{bits} bits")) for bits in _CLIPS]
    panels = [
        Panel(
            f"MSE, 1e-13: level {_LEVEL}, ε = 0.1", "shard size",
            [curve(f"{users:,} users", shards[users], UNIT) for users in _SHARD_SAMPLES], log_x=True,
        ),
        Panel(
            "MSE, 1e-13: Algorithm 2, ε = 1", "DP shard size",
            [curve(f"{dropout:.0%} drop out", dropouts[dropout], UNIT) for dropout in _DROPOUTS],
        ),
        Panel("MSE, 1e-13: Algorithm 2, ε = 1", "bits", [curve("modulo clip", clips, UNIT)]),
    ]  # fmt: skip
    caption = "As Figure 8: size of the shards, dropouts and modulo clip (both 10,000 users); bands are 95 % intervals"
    picture = Picture.curves("figure_8", panels, caption)
    lines = [
        *(
            (f"{users:,} users, shards of {x:,.0f}", found)
            for users in _SHARD_SAMPLES
            for x, found in shards[users]
        ),
        *((_dropout_label(lost, int(x)), found) for lost in _DROPOUTS for x, found in dropouts[lost]),
        *((f"{x:.0f} bits", found) for x, found in clips),
    ]
    rows = [[label, Shown(digits=3)(found)] for label, found in lines]
    table = Table("Figure 8: secure aggregation's parameters", ["", "MSE, 1e-13"], rows)
    return Report([table], [picture], _claims_8(shards, dropouts, dict(clips)))


def _claims_8(
    shards: dict[int, list[tuple[float, Summary]]],
    dropouts: dict[float, list[tuple[float, Summary]]],
    clips: dict[float, Summary],
) -> list[Claim]:
    # Above the sample size a larger shard is the same one.
    falling = [
        earlier.mean > later.mean
        for users, points in shards.items()
        for (_, earlier), (size, later) in pairwise(points)
        if size <= users
    ]
    few, many = (dict(shards[users])[10_000.0] for users in _SHARD_SAMPLES)
    plain, worst = dict(dropouts[0.0])[10_000.0], dict(dropouts[0.2])[8_000.0]
    wide = [found for bits, found in clips.items() if bits >= 16]
    same = all(found.low <= wide[-1].high and wide[-1].low <= found.high for found in wide)
    return [
        Claim(
            "Larger shards give less error",
            joint_verdict(falling),
            "; ".join(
                f"{users:,} users: {', '.join(f'{found.mean * UNIT:.3f}' for _, found in points)}e-13"
                for users, points in shards.items()
            ),
        ),
        Claim(
            "At shards of 10,000 a sample of 100,000 gives less error than one of 10,000",
            joint_verdict([many.mean < few.mean]),
            f"{many.mean * UNIT:.3f}e-13 against {few.mean * UNIT:.3f}e-13",
        ),
        Claim(
            "20 % dropouts with a DP shard of 8,000 cost at most 15 % of the error",
            joint_verdict([worst.mean <= 1.15 * plain.mean]),
            f"{worst.mean * UNIT:.3f}e-13 against {plain.mean * UNIT:.3f}e-13, {worst.mean / plain.mean - 1:+.1%}",
        ),
        Claim(
            "From 16 bits on the error stays the same, and fewer bits can overflow",
            joint_verdict([same, clips[8.0].low > wide[-1].high]),
            ", ".join(f"{bits:.0f} bits {found.mean * UNIT:.2f}e-13" for bits, found in clips.items()),
        ),
    ]


FIGURE_7: Final = Section("figure 7", _jobs_7, _report_7)
FIGURE_8: Final = Section("figure 8", _JOBS_8, _report_8)
