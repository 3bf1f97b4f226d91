"""The constants of the default mechanism, one at a time: how much the error changes where each is varied.

Run: ``python -m benchmarks.mechanism_constants docs/reference/mechanism-constants.md`` (writes the page; 15 minutes of
one core).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np

import mapveil as mv
from benchmarks.data_sets import tuning_city
from benchmarks.estimator_constants import cases
from benchmarks.tuning_sandbox import confine_to_tuning_data
from mapveil.engines import UNIT, user_sums
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.inference import interpolation, local_dimension, shrinkage, split_prior, threshold_expansion
from mapveil.local.estimators import estimate_shrinkage
from mapveil.local.estimators.estimators import ESTIMATORS
from mapveil.mechanisms import multiscale
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.private_region import find_region
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Execution
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import PromiseError
from mapveil_client.randomness.random import Randomness

SEEDS: Final = range(8)
TILING: Final = mv.Quadtree(mv.Region.from_bbox(*mv.synthetic.SEA_BOX), depth=7)
USERS: Final = {"curator": (500, 5_000), "secure sums": (5_000, 20_000)}


class Constant(NamedTuple):
    """A constant, and values beside its own."""

    owner: ModuleType | None  # None: a parameter of the mechanism or of its trust model
    name: str
    values: Sequence[Any]


class Scene(NamedTuple):
    """Counts of one seed, a mechanism, and the map that it estimates."""

    counts: mv.Counts
    mechanism: Multiscale
    truth: FloatArray
    seed: int

    def error(self, changed: dict[str, Any]) -> float:
        """Root mean squared error of a cell, users."""
        mechanism = self.mechanism
        if "users_share" in changed:
            changed = {"trust": dataclasses.replace(mechanism.trust, **changed)}
        heat = dataclasses.replace(mechanism, **changed).release(self.counts, TILING, rng=self.seed)
        return float(np.sqrt(np.square(heat.values - self.truth).mean()))


WEIGHTS: Final = split_prior.PUBLIC_WEIGHTS
OF_PRIOR: Final = (
    Constant(split_prior, "_STRENGTH", (3.0, 30.0)),
    Constant(split_prior, "_CARRIED", (0.0, 0.9)),
    Constant(split_prior, "_ROUNDS", (10, 100)),
    Constant(split_prior, "PUBLIC_WEIGHTS", ((1 / len(WEIGHTS),) * len(WEIGHTS), WEIGHTS[::-1])),
)
OF_KINDS: Final = (
    Constant(split_prior, "_FLAT", (0.02, 0.5)),
    Constant(split_prior, "_TOLD", (0.25, 1.0)),
    Constant(shrinkage, "_JUDGED", (16, 256)),
)
OF_TABLES: Final = (
    Constant(
        split_prior, "CONCENTRATIONS", [tuple(f * a for a in split_prior.CONCENTRATIONS) for f in (0.5, 2)]
    ),
    Constant(split_prior, "_NODES", (20, 80)),
    Constant(split_prior, "_STEPS", (32, 128)),
    Constant(split_prior, "_BEND", (0.75, 3.0)),
)
VARIED: Final[dict[str, tuple[Constant, ...]]] = {
    "curator": (
        Constant(None, "users_share", (0.01, 0.05)),
        Constant(None, "first_share", (0.15, 0.4)),
        Constant(None, "leaf_signal", (1.0, 4.0)),
        Constant(None, "shifts", (2, 16)),
        Constant(multiscale, "_BLOCKS_OF_CURATOR", (0.4, 1.6)),
        Constant(multiscale, "_FULL", (1.0, 10.0)),
        Constant(local_dimension, "_LEAST", (0.3, 1.0, 2.0)),
        Constant(multiscale, "_DEEPEST", (2, 4)),
        Constant(shrinkage, "_WHOLE", (0.0, 3.99)),
        *OF_PRIOR,
        *OF_KINDS,
        *OF_TABLES,
    ),
    "secure sums": (
        Constant(None, "first_share", (0.1, 0.25)),
        Constant(None, "leaf_signal", (0.7, 2.8)),
        Constant(None, "shifts", (2, 16)),
        Constant(multiscale, "_BLOCKS", (0.8, 3.2)),
        Constant(multiscale, "_UNIFORM_CONCENTRATION", (0.5, 1.5, 4.0)),
        Constant(multiscale, "_UNIFORM_BLOCKS", (64, 1024)),
        Constant(multiscale, "_DEEPEST", (2, 4)),
        Constant(multiscale, "_FLOOR", (0.25, 1.0)),
        Constant(threshold_expansion, "_BEND", (6.0, 24.0)),
        Constant(threshold_expansion, "_HELD", (1.0, 16.0)),
        Constant(threshold_expansion, "_RIDGE", (1e-4, 1e-2)),
        Constant(shrinkage, "_WHOLE", (0.0, 3.99)),
        Constant(interpolation, "_USUAL", (0.1, 0.25)),
        Constant(interpolation, "_SPREAD", (0.05, 0.2)),
    ),
    "local reports": (
        Constant(estimate_shrinkage, "_TREES", (2, 16)),
        Constant(split_prior, "_SPREAD", (0.55, 2.2)),
        Constant(split_prior, "_POSSIBLE", (0.0125, 0.2)),
        *OF_PRIOR,
        *OF_TABLES[:1],
    ),
}


def scenes(kind: str) -> Iterator[Scene]:
    """Cities and flat maps."""
    trust = Curator() if kind == "curator" else SecureAggregation()
    for seed in SEEDS:
        city = tuning_city(users=20_000, seed=seed, region=TILING.region)
        density = user_sums(city, TILING).sums / UNIT
        for even in (False, True):
            p = np.full(TILING.size, 1 / TILING.size) if even else density / density.sum()
            for users, epsilon in zip(USERS[kind], ("0.5", "1"), strict=True):
                drawn = np.random.default_rng(seed).multinomial(users, p)
                truth = drawn.astype(np.float64) if kind == "curator" else users * p
                yield Scene(mv.Counts(drawn, TILING), Multiscale(epsilon=epsilon, trust=trust), truth, seed)


def errors_of(kind: str) -> Callable[[dict[str, Any]], FloatArray]:
    """The errors of all scenes of a kind, with some parameters changed."""
    if kind != "local reports":
        made = list(scenes(kind))
        return lambda changed: np.array([scene.error(changed) for scene in made])
    of_reports, estimate = list(cases()), ESTIMATORS["multiscale"]
    return lambda _changed: np.array(
        [
            np.abs(estimate(case.randomizer, case.tally, None).distribution - case.truth).sum()
            for case in of_reports
        ]
    )


def varied(errors: Callable[[dict[str, Any]], FloatArray], constant: Constant, value: Any) -> FloatArray:
    """The errors with one constant changed."""
    if constant.owner is None:
        return errors({constant.name: value})
    tables = [each for each in vars(split_prior).values() if hasattr(each, "cache_clear")]
    with patch.object(constant.owner, constant.name, value):
        for table in tables:
            table.cache_clear()
        found = errors({})
    for table in tables:
        table.cache_clear()
    return found


def shown(value: Any) -> str:
    """A value in a cell of the table."""
    return f"{value:g}" if not isinstance(value, tuple) else f"({', '.join(f'{part:g}' for part in value)})"


def by_seed(kind: str, changes: FloatArray) -> FloatArray:
    """Means over the scenes of each seed, which share a city: rows for cities and for flat maps, or one for all."""
    if kind == "local reports":
        return np.asarray(changes.reshape(1, -1, len(SEEDS)).mean(axis=1))
    return np.asarray(changes.reshape(len(SEEDS), 2, -1).mean(axis=2).T)


def rows(kind: str) -> str:
    """The table of one kind of scenes: cities and flat maps apart."""
    errors, found = errors_of(kind), []
    base = errors({})
    for constant in VARIED[kind]:
        cells, reached = [list[str]() for _ in by_seed(kind, base)], False
        for value in constant.values:
            ratio = np.log(varied(errors, constant, value) / base)
            reached |= bool(ratio.any())
            for cell, means in zip(cells, by_seed(kind, ratio), strict=True):
                mean, _, high = interval_of_mean(means)
                change = f"{100 * np.expm1(mean):+.1f} % ± {100 * (high - mean):.1f}"
                cell.append(f"{shown(value)}: {change}")
            print(kind, constant.name, [cell[-1] for cell in cells], flush=True)
        if not reached:
            cells = [["not reached on these sets"] for _ in cells]
        where = "" if constant.owner is None else f"{constant.owner.__name__.rpartition('.')[2]}."
        found.append(
            f"| `{where}{constant.name}` | {default_of(constant, kind)} | {' | '.join(map('; '.join, cells))} |"
        )
    return "\n".join(found)


def default_of(constant: Constant, kind: str) -> str:
    """The value of a constant, as the table of a kind of scenes shows it."""
    if constant.owner is not None:
        return shown(getattr(constant.owner, constant.name))
    of_curator = multiscale._OF_AIM[Multiscale.aim], multiscale._LEAF_SIGNAL_OF_CURATOR
    of_sums = multiscale._FIRST_SHARE, multiscale._LEAF_SIGNAL
    first_share, leaf_signal = of_curator if kind == "curator" else of_sums
    shifts = multiscale._SHIFTS_OF_CURATOR if kind == "curator" else multiscale._SHIFTS
    defaults = {"first_share": first_share, "leaf_signal": leaf_signal, "shifts": shifts}
    return shown({**defaults, "users_share": Curator.users_share}[constant.name])


def regions() -> str:
    """Regions found with a fraction of epsilon 1: rows inside, and area over that of the box of 99 % of the rows."""
    found = []
    for share in (Fraction(1, 20), Fraction(1, 10), Fraction(1, 5)):
        cells = []
        for users in (1_000, 10_000, 50_000):
            inside, area = [], []
            for seed in SEEDS:
                city = tuning_city(users=users, seed=seed, region=TILING.region)
                lon, lat = location(city)
                tight = mv.Region.from_bbox(
                    *(float(np.quantile(v, q)) for q in (0.005, 0.995) for v in (lon, lat))
                )
                try:
                    region = find_region(city, Curator(), share, Execution(Randomness(seed))).region
                except PromiseError:
                    continue
                inside.append(region.contains(lon, lat).mean())
                area.append(region.area_m2 / tight.area_m2)
            cells.append(
                f"{100 * np.mean(inside):.1f} %, {np.mean(area):.2g} ({len(inside)})"
                if inside
                else "none (0)"
            )
        found.append(f"| {share} | {' | '.join(cells)} |")
        print(found[-1], flush=True)
    return "\n".join(found)


def location(city: mv.Points) -> tuple[FloatArray, FloatArray]:
    """Longitudes and latitudes of all rows."""
    from mapveil.engines.contributions import user_rows

    parts = list(user_rows(city))
    return np.concatenate([part.lon for part in parts]), np.concatenate([part.lat for part in parts])


HEAD: Final = "| constant | default | value: change on cities | on flat maps |\n|---|---|---|---|"
TEXT: Final = """# Constants of the default mechanism

Generated by `python -m benchmarks.mechanism_constants`; do not edit.

The tables vary the constants of `multiscale` one at a time and show the change of the error: the geometric mean over
the scenes, and half its 95 % interval over the seeds. A value whose interval includes 0 is not told apart from the
default here. Where no value changes the error of any scene, the constant was not reached on these sets. The constants
were chosen on other data ([where](../explanation/multiscale.md)). These scenes have the role `tune` too, but none was
tuned on them.

## A curator, and secure sums

The error is the root mean squared error of a cell. {scenes} scenes each: {seeds} synthetic cities of 20,000 users and
as many flat maps, from which users are drawn; 500 users at epsilon 0.5 and 5,000 at epsilon 1 for a curator, 5,000 and
20,000 for secure sums, 128 x 128 cells.

By a curator:

{head}
{curator}

Over secure sums:

{head}
{secure}

A curator's `leaf_signal`, `_BLOCKS_OF_CURATOR`, `_FULL` and the kinds of maps (`_FLAT`, `_TOLD`) were chosen on the
data sets of the role `tune`, by KL, similarity, earth mover's distance and top-ten mass together. Over secure sums
`leaf_signal` 0.7 adds two thirds to the error on flat maps.

`split_prior._SHARES`, `_REACH`, `_BELOW`, `_FIRST_OCTAVE`, `_OCTAVES`, `_SURE_S` and `_SURE_T` bound the tables of the
prior: outside them the measurement or the even split stands.

Not varied here, but measured elsewhere: k of the default cells and the check of a declared number of users
(`default_tiling._CROWDING`, `multiscale._CHECK` and `_FAR`) by `benchmarks/declared_users.py`; what weighs a prior by
`benchmarks/priors.py` (`prior_mixture`) and `benchmarks/local_priors.py` (`prior_evidence`). The constants of
`empty_cells` count where every cell is measured at once, which these scenes do not reach.

## Estimator `multiscale` of local reports

L1 error of the distribution, over the collections of [the local estimator's page](estimator-constants.md).

| constant | default | value: change of the error |
|---|---|---|
{local}

## Fraction of epsilon that finds the region

Where no region is given, `REGION_SHARE`, a tenth of epsilon, finds one. The table shows, at epsilon 1, the rows inside
the region found, and its area over that of the box of the middle 99 % of longitudes and latitudes; in brackets of
{seeds} cities those whose region was found.

| fraction | 1,000 users | 10,000 users | 50,000 users |
|---|---|---|---|
{regions}
"""


def page() -> str:
    """The page."""
    return TEXT.format(
        head=HEAD,
        seeds=len(SEEDS),
        scenes=4 * len(SEEDS),
        curator=rows("curator"),
        secure=rows("secure sums"),
        local=rows("local reports"),
        regions=regions(),
    )


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    Path(sys.argv[1]).write_text(page(), "utf-8")
