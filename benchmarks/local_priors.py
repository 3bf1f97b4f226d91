"""``python -m benchmarks.local_priors FOLDER``: local maps with good and with wrong priors, on tuning data.

One to two minutes of one core. Not private: it reads the true data, and makes priors of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np

import mapveil as mv
from benchmarks.data_sets import tuning_set
from benchmarks.heldout import people_of
from benchmarks.priors import priors_of
from benchmarks.tuning_sandbox import confine_to_tuning_data
from mapveil.cli.app import run
from mapveil.cli.arguments import epsilon_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed
from mapveil.engines import UNIT, UserSums
from mapveil.evaluation.html_report import text_table
from mapveil.local.estimators.prior_evidence import leaning_to
from mapveil.local.estimators.smoothed_likelihood import smooth_likelihood
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil_client.arrays import FloatArray
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

SETS: Final[dict[str, str | None]] = {
    "foursquare-san-francisco": "gowalla-san-francisco",
    "gowalla-new-york": "foursquare-us",
    "brightkite-us-300-users": "foursquare-us",
    **dict.fromkeys(("foursquare-los-angeles", "raster-skewed-many-tune")),
    **{f"table-{shape}-many-tune": None for shape in ("skewed", "hot-spot", "flat")},
}
"""Data sets, and the one whose people are the prior ``other people``, where there is one."""

SPOTS: Final = {
    "spot of 40 %": (0.6, 1),
    "two spots of 25 %": (0.5, 2),
    "six spots of 5 %": (0.7, 6),
    "twenty spots of 2 %": (0.6, 20),
    "spot of 15 % on uneven cells": (0.85, 1),
    "forty empty cells": (1.0, 40),
}
"""Synthetic maps: the fraction of users that is not in spots, and the number of spots; with 1, of empty cells."""

USERS: Final = (2_000, 8_000, 32_000, 128_000, 512_000)
_WORSE: Final = 1.03  # times the error without the prior
_SIDE: Final = 32
_SPOT: Final = 10  # times the even density
_SEED: Final = 77  # of wrong priors and places of spots


class Scene(NamedTuple):
    """A true distribution, and priors on its cells."""

    name: str
    tiling: mv.Quadtree | mv.Grid
    truth: FloatArray
    priors: dict[str, FloatArray]


def scenes(folder: Path, cells: int) -> Iterator[Scene]:
    """The data sets, then maps with spots."""
    for name, other in SETS.items():
        people = people_of(tuning_set(name, folder), cells).sums()
        yield _scene(name, people, tuning_set(other, folder) if other else None)
    tiling = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=5)
    for name, (rest, spots) in SPOTS.items():
        truth = (
            np.random.default_rng(1).gamma(0.5, size=tiling.size)
            if "uneven" in name
            else np.ones(tiling.size)
        )
        truth *= rest / truth.sum()
        chosen = np.random.default_rng(_SEED).choice(tiling.size, spots, replace=False)
        truth[chosen] = truth[chosen] + (1 - rest) / spots if rest < 1 else 0
        yield _scene(name, UserSums(np.rint(truth * 1e5 * UNIT).astype(np.int64), tiling), None)


def _scene(name: str, people: UserSums, other: mv.Points | mv.Counts | None) -> Scene:
    lattice = people.tiling.lattice()
    rows, columns = int(lattice.row.max()) + 1, int(lattice.col.max()) + 1
    true = people.sums / people.sums.sum()
    made = priors_of(people, other) | _adversarial(true)
    parts = {
        "east": lattice.col >= columns // 2,
        "west": lattice.col < columns // 2,
        "north": lattice.row >= rows // 2,
        "quarter": (lattice.col < columns // 2) & (lattice.row < rows // 2),
    }
    for part, inside in parts.items():
        made[f"the people, in the {part} only"] = true * inside
        made[f"the people, blurred, in the {part} only"] = made["the people, blurred"] * inside
    usable = {kind: values / values.sum() for kind, values in made.items() if values.sum() > 0}
    assert isinstance(people.tiling, mv.Quadtree | mv.Grid)
    return Scene(name, people.tiling, true, usable)


def _adversarial(true: FloatArray) -> dict[str, FloatArray]:
    """Priors that are right where reports tell most, and wrong elsewhere; the first is right everywhere."""
    rng = np.random.default_rng(_SEED)
    spots = true > _SPOT / true.size
    others, quarter = np.flatnonzero(~spots), ~spots & (rng.random(true.size) < 0.25)
    shuffled, moved, cold = true.copy(), true.copy(), true <= np.quantile(true, 0.8)
    shuffled[others] = true[rng.permutation(others)]
    swapped = [int(true.argmax()), int(rng.integers(true.size))]
    moved[swapped] = true[swapped[::-1]]
    return {
        "the people": true,
        "counts of 1,000 of the people": rng.multinomial(1000, true).astype(np.float64),
        "spots right, the rest on a quarter of the cells": np.where(spots, true, 0.0)
        + quarter * true[others].sum() / max(quarter.sum(), 1),
        "spots right, the rest shuffled": shuffled,
        "the hottest cell moved": moved,
        "the people, times a heavy factor": true * rng.lognormal(0, 1.5, true.size),
        "empty cells right, the others 15 % off": true * (1 + 0.15 * rng.choice((-1.0, 1.0), true.size)),
        "the people, squared": true**2,
        "the colder 80 % of the cells inverted": np.where(cold, true[cold].max() - true, true),
    }


class Change(NamedTuple):
    """The mean L1 error with a prior over that without one, over seeds."""

    ratio: float
    surely_worse: bool  # than 1.03, by two standard errors


def measure(scene: Scene, epsilon: Fraction, users: int, seeds: Sequence[int]) -> dict[str, Change]:
    """The change by each prior."""
    domain = Domain(scene.tiling)
    randomizer = HierarchicalHashing(epsilon=epsilon).on(domain)
    errors: dict[str, list[float]] = {}
    for seed in seeds:
        drawn = np.random.default_rng(100 + seed).choice(scene.truth.size, users, p=scene.truth)
        tally = randomizer.tally(randomizer.randomize(domain.cells[drawn], Randomness(seed)))
        truth = np.bincount(drawn, minlength=scene.truth.size) / users
        plain, likelihood = smooth_likelihood(randomizer, tally).distribution, randomizer.likelihood(tally)
        found = {kind: leaning_to(likelihood, plain, prior) for kind, prior in scene.priors.items()}
        for kind, distribution in {"none": plain, **found}.items():
            errors.setdefault(kind, []).append(float(np.abs(distribution - truth).sum()))
    without = np.array(errors.pop("none"))
    return {kind: _change(np.array(each), without) for kind, each in errors.items()}


def _change(errors: FloatArray, without: FloatArray) -> Change:
    excess = errors - _WORSE * without
    least = excess.mean() - 2 * excess.std(ddof=1) / math.sqrt(excess.size)
    return Change(float(errors.mean() / without.mean()), bool(least > 0))


@click.command("local_priors")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="0.5,1,2", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--seeds", type=Parsed("seeds", str), default="0-3", show_default=True, help="Range of seeds.")
@click.option("--cells", default=_SIDE**2, show_default=True, help="Cells of a map at most.")
@console_options
def command(console: Console, folder: Path, epsilons: Sequence[Fraction], seeds: str, cells: int) -> None:
    """Print the change of the L1 error by each prior: geometric mean over maps and budgets, and the worst map."""
    first, last = map(int, seeds.split("-"))
    found: dict[str, dict[int, list[Change]]] = {}
    for scene in scenes(folder, cells):
        for epsilon in epsilons:
            for users in USERS:
                for kind, change in measure(scene, epsilon, users, range(first, last + 1)).items():
                    found.setdefault(kind, {}).setdefault(users, []).append(change)
    rows = []
    for kind, of_users in found.items():
        ratios = [np.array([each.ratio for each in of_users[users]]) for users in USERS]
        every = [each for changes in of_users.values() for each in changes]
        worse = sum(each.ratio > _WORSE for each in every)
        surely = sum(each.surely_worse for each in every)
        shown = [
            f"{100 * np.expm1(np.log(each).mean()):+.1f} % ({100 * (each.max() - 1):+.0f})" for each in ratios
        ]
        rows.append([kind, *shown, f"{worse} of {len(every)}", str(surely)])
    console.warn("it reads the true data: do not publish its figures for data of real people")
    header = ["prior", *(f"{users:,} users" for users in USERS), "worse by 3 %", "surely"]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    console.result(text_table(header, rows), {"private": False, "rows": records})


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    run(command=command, name="python -m benchmarks.local_priors")
