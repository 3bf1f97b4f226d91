"""Beyond Bagdasaryan et al. (2022): error against communication, skewed maps, and the bytes of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mapveil.evaluation.html_report import Panel
from mapveil.maps.round_cost import RoundCost
from reproductions.bagdasaryan.data import MANHATTAN
from reproductions.bagdasaryan.figures import OTHER_IMAGES
from reproductions.bagdasaryan.runs import PLAIN, Asked, Crowd, Job, jobs_of
from reproductions.bagdasaryan.sections import UNIT, Plan, Shown, at_most
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict, judged
from reproductions.results import Results, Summary, curve

_USERS: Final = (10_000, 100_000, 1_000_000)
_DEPTHS: Final = {10_000: (3, 4, 5, 6), 100_000: (4, 5, 6, 7), 1_000_000: (5, 6, 7, 8)}

TARGETS: Final = {10_000: {5: 7.35, 6: 7.23}, 100_000: {6: 6.36}, 1_000_000: {7: 5.11}}
"""Errors (1e-13) that one round must reach, by users and depth of the grid asked for."""

_ADAPTIVE: Final = "Algorithm 2"
_DEFAULT: Final = "multiscale, its own depth"


def _uniform(depth: int) -> str:
    return f"uniform grid, depth {depth}"


def _multiscale(depth: int) -> str:
    return f"multiscale, depth {depth}"


def _asked(users: int) -> tuple[Asked, ...]:
    return (
        Asked("non-private", PLAIN, best_level=True),
        Asked(_ADAPTIVE, "adaptive"),
        *(Asked(_uniform(depth), "uniform", (("depth", depth),)) for depth in _DEPTHS[users]),
        *(
            Asked(_multiscale(depth), "multiscale", (("rounds", 1), ("depth", depth)))
            for depth in _DEPTHS[users]
        ),
        Asked(_DEFAULT, "multiscale", (("rounds", 1),)),
    )


def _report_beyond(results: Results) -> Report:
    rows, panels, claims = [], [], []
    for users in _USERS:
        found = {asked.label: results.of(label=asked.label, users=users) for asked in _asked(users)}
        targets = {_multiscale(depth): f"{error:.2f}" for depth, error in TARGETS[users].items()}
        rows += [
            [f"{users:,} users: {label}", Shown()(mine), f"{mine.length:,.0f}", targets.get(label, "")]
            for label, mine in found.items()
        ]
        depths = _DEPTHS[users]
        panels.append(
            Panel(
                f"MSE, 1e-13: {users:,} users",
                "vector length",
                [
                    curve("uniform grid", [_point(found[_uniform(depth)]) for depth in depths], UNIT),
                    curve("multiscale", [_point(found[_multiscale(depth)]) for depth in depths], UNIT),
                    curve(_ADAPTIVE, [_point(found[_ADAPTIVE])], UNIT),
                    curve(
                        "non-private, best level",
                        [(4.0**depth, found["non-private"]) for depth in depths[:: len(depths) - 1]],
                        UNIT,
                    ),
                ],
                log_x=True,
                ticks=[4.0**depth for depth in depths],
            )
        )
        claims += _claims_beyond(users, found)
    caption = "Error against communication on Manhattan, ε = 1, shards of 10,000; bands are 95 % intervals"
    picture = Picture.curves("beyond", panels, caption)
    table = Table(
        "Beyond the paper: error against communication, Manhattan, ε = 1, shards of 10,000",
        ["users and method", "MSE, 1e-13", "vector", "to reach"],
        rows,
    )
    return Report([table], [picture], claims)


def _point(found: Summary) -> tuple[float, Summary]:
    return found.length, found


def _cost(found: Summary) -> str:
    return f"{found.mean * UNIT:.3f}e-13 at {found.length:,.0f}"


def _claims_beyond(users: int, found: dict[str, Summary]) -> list[Claim]:
    ours = {depth: found[_multiscale(depth)] for depth in _DEPTHS[users]}
    grids = {depth: found[_uniform(depth)] for depth in _DEPTHS[users]}
    adaptive = found[_ADAPTIVE]
    short = [each for each in ours.values() if each.length <= adaptive.length]
    nearest = min(short, key=lambda each: each.mean, default=None)
    best_grid = min(grids.values(), key=lambda each: each.mean)
    rival = min(
        (each for each in ours.values() if each.length <= best_grid.length), key=lambda each: each.mean
    )
    claims = [
        Claim(
            f"{users:,} users: multiscale has less error than Algorithm 2 at no longer a vector",
            joint_verdict([nearest is not None and nearest.mean < adaptive.mean]),
            f"{_cost(nearest) if nearest else 'no vector is as short'} against {_cost(adaptive)}",
        ),
        Claim(
            f"{users:,} users: multiscale has less error than the uniform grid of the same vector, at every depth, "
            "and than the best uniform grid at no longer a vector",
            joint_verdict(
                [*(ours[depth].mean < grids[depth].mean for depth in ours), rival.mean < best_grid.mean]
            ),
            "; ".join(
                f"{ours[depth].length:,.0f}: {ours[depth].mean * UNIT:.2f} against {grids[depth].mean * UNIT:.2f}e-13"
                for depth in ours
            ),
        ),
    ]
    for depth, target in TARGETS[users].items():
        claims.append(
            Claim(
                f"{users:,} users: multiscale reaches {target}e-13 at {4**depth:,}",
                at_most(ours[depth].mean * UNIT, target),
                f"{Shown(digits=3)(ours[depth])}e-13",
            )
        )
    default, plain = found[_DEFAULT], found["non-private"]
    claims.append(
        Claim(
            f"{users:,} users: the default's map has less error than the best level of the sample without privacy",
            joint_verdict([default.mean < plain.mean]),
            f"{_cost(default)} against {plain.mean * UNIT:.3f}e-13",
        )
    )
    return claims


_JOBS_BEYOND: Final = jobs_of(*(Crowd("table beyond", users, _asked(users)) for users in _USERS))
BEYOND: Final = Section("table beyond", _JOBS_BEYOND, _report_beyond)

_SKEWED_USERS: Final = (10_000, 100_000)
_SKEWED: Final = (
    Asked("non-private", PLAIN, best_level=True),
    Asked(_ADAPTIVE, "adaptive"),
    Asked("uniform grid", "uniform"),
    Asked("multiscale, one round", "multiscale", (("rounds", 1),)),
    Asked("multiscale, two rounds", "multiscale", (("rounds", 2),)),
)


def _figures(value: float) -> str:
    """Three figures, without powers of ten: the maps differ by orders of magnitude."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _report_skewed(results: Results) -> Report:
    rows, ahead, earns, gains = [], [], [], []
    labels = [asked.label for asked in _SKEWED]
    for image in (MANHATTAN, *OTHER_IMAGES):
        for users in _SKEWED_USERS:
            found = {label: results.of(label=label, image=image, users=users) for label in labels}
            best = min(mine.mean for label, mine in found.items() if label != "non-private")
            for label, mine in found.items():
                mark = "*" if mine.mean == best else ""
                half = (mine.high - mine.mean) * UNIT
                error = _figures(mine.mean * UNIT) + (f" ± {_figures(half)}" if np.isfinite(half) else "")
                name = f"{image}, {users:,} users: {label}"
                rows.append([name, f"{mark}{error}", f"{mine.length:,.0f}", f"{mine.rounds:.1f}"])
            one, two = found["multiscale, one round"], found["multiscale, two rounds"]
            gains.append(f"{image} {users:,}: {two.mean / one.mean - 1:+.1%}")
            if image != MANHATTAN:
                earns.append(two.mean < one.mean)
                ours, theirs = min(one.mean, two.mean), found[_ADAPTIVE].mean
                evidence = f"{image} {users:,}: {ours * UNIT:.4g} against {theirs * UNIT:.4g}e-13"
                ahead.append((ours < theirs, evidence))
    claims = [
        judged("Multiscale has less error than Algorithm 2 on skewed maps", ahead),
        Claim(
            "A second round has less error than one on skewed maps (all but Manhattan)",
            joint_verdict(earns),
            "; ".join(gains),
        ),
    ]
    table = Table(
        "Skewed maps: with and without the second round, ε = 1, shards of 10,000",
        ["map, users and method", "MSE, 1e-13", "vector", "rounds"],
        rows,
    )
    return Report([table], claims=claims)


_JOBS_SKEWED: Final = jobs_of(
    *(
        Crowd("table skewed", users, _SKEWED, image)
        for image in (MANHATTAN, *OTHER_IMAGES)
        for users in _SKEWED_USERS
    )
)
SKEWED: Final = Section("table skewed", _JOBS_SKEWED, _report_skewed)

_PROVISION: Final = (("tolerated_dropout", 0.1), ("corrupt", 0.05))
_COSTED: Final = (
    Asked("Algorithm 2", "adaptive", _PROVISION),
    Asked("adaptive grid", "adaptive-grid", _PROVISION),
    Asked("uniform grid (ours)", "uniform", _PROVISION),
    Asked("multiscale (ours)", "multiscale", (*_PROVISION, ("rounds", 1))),
    Asked("flat", "laplace", _PROVISION),
)


def _jobs_communication(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    few = plan._replace(trials=min(plan.trials, 5))
    return jobs_of(Crowd("table communication", 100_000, _COSTED, keep_maps=True))(few, shared, seed)


def _report_communication(results: Results) -> Report:
    costs = {asked.label: results.costs[MANHATTAN, asked.label] for asked in _COSTED}
    phases = {
        way: list(
            dict.fromkeys(phase for each in costs.values() for cost in each for phase in getattr(cost, way))
        )
        for way in ("bytes_up", "bytes_down")
    }
    header = ["method", "MSE, 1e-13", "rounds", "vector", "bits"]
    header += [f"{phase} {arrow}" for arrow, way in zip("↑↓", phases, strict=True) for phase in phases[way]]
    header += ["bytes up", "bytes down"]
    rows = []
    for asked in _COSTED:
        mine = costs[asked.label]
        line = [
            asked.label,
            Shown()(results.of(label=asked.label)),
            f"{len(mine)}",
            f"{RoundCost.total_length(mine):,}",
            f"{max(cost.bits for cost in mine)}",
        ]
        totals = []
        for way, names in phases.items():
            sums = [sum(getattr(cost, way).get(name, 0) for cost in mine) for name in names]
            line += [f"{each:,}" for each in sums]
            totals.append(f"{sum(sums):,}")
        rows.append(line + totals)
    table = Table(
        "Communication: bytes of one device by phase of the protocol, all rounds; 100,000 users, 10 % dropouts and 5 % "
        "corrupt devices provisioned for",
        header,
        rows,
        "The largest message of each phase, as the protocol encodes it. The errors are with that provision of noise.",
    )
    return Report([table])


COMMUNICATION: Final = Section("table communication", _jobs_communication, _report_communication)
