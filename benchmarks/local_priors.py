"""``python -m benchmarks.local_priors FOLDER``: local maps with good and with wrong priors, on tuning data.

Ten minutes of one core. Not private: it reads the true data, and makes priors of them.
"""

from __future__ import annotations

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
    "spot of 15 % on uneven cells": (0.85, 1),
}
"""Synthetic maps: the fraction of users that is not in spots, and the number of spots."""

USERS: Final = (2_000, 8_000, 32_000, 128_000)
_WORSE: Final = 1.03  # times the error without the prior
_SIDE: Final = 32


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
    lattice = tiling.lattice()
    for name, (rest, spots) in SPOTS.items():
        truth = (
            np.random.default_rng(1).gamma(0.5, size=tiling.size)
            if "uneven" in name
            else np.ones(tiling.size)
        )
        truth *= rest / truth.sum()
        for col, row in ((24, 10), (6, 20))[:spots]:
            truth[(lattice.col == col) & (lattice.row == row)] += (1 - rest) / spots
        yield _scene(name, UserSums(np.rint(truth * 1e5 * UNIT).astype(np.int64), tiling), None)


def _scene(name: str, people: UserSums, other: mv.Points | mv.Counts | None) -> Scene:
    lattice = people.tiling.lattice()
    rows, columns = int(lattice.row.max()) + 1, int(lattice.col.max()) + 1
    made, true = priors_of(people, other), people.sums / people.sums.sum()
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


def measure(scene: Scene, epsilon: Fraction, users: int, seeds: Sequence[int]) -> dict[str, float]:
    """Mean L1 error with each prior over that without one, as a logarithm."""
    domain = Domain(scene.tiling)
    randomizer = HierarchicalHashing(epsilon=epsilon).on(domain)
    errors: dict[str, list[float]] = {}
    for seed in seeds:
        drawn = np.random.default_rng(100 + seed).choice(scene.truth.size, users, p=scene.truth)
        tally = randomizer.tally(randomizer.randomize(domain.cells[drawn], Randomness(seed)))
        truth = np.bincount(drawn, minlength=scene.truth.size) / users
        for kind, prior in {"none": None, **scene.priors}.items():
            made = smooth_likelihood(randomizer, tally, prior).distribution
            errors.setdefault(kind, []).append(float(np.abs(made - truth).sum()))
    without = np.mean(errors.pop("none"))
    return {kind: float(np.log(np.mean(each) / without)) for kind, each in errors.items()}


@click.command("local_priors")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="1", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--seeds", type=Parsed("seeds", str), default="0-3", show_default=True, help="Range of seeds.")
@click.option("--cells", default=_SIDE**2, show_default=True, help="Cells of a map at most.")
@console_options
def command(console: Console, folder: Path, epsilons: Sequence[Fraction], seeds: str, cells: int) -> None:
    """Print the change of the L1 error by each prior: geometric mean over maps and budgets, and the worst map."""
    first, last = map(int, seeds.split("-"))
    found: dict[tuple[str, int], list[float]] = {}
    for scene in scenes(folder, cells):
        for epsilon in epsilons:
            for users in USERS:
                for kind, change in measure(scene, epsilon, users, range(first, last + 1)).items():
                    found.setdefault((kind, users), []).append(change)
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in found):
        of_users = [np.expm1(found[kind, users]) for users in USERS]
        shown = [
            f"{100 * np.expm1(np.log1p(each).mean()):+.1f} % ({100 * each.max():+.0f})" for each in of_users
        ]
        rows.append([kind, *shown, str(sum(int((each > _WORSE - 1).sum()) for each in of_users))])
    console.warn("it reads the true data: do not publish its figures for data of real people")
    header = ["prior", *(f"{users:,} users" for users in USERS), "rows worse by 3 %"]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    console.result(text_table(header, rows), {"private": False, "rows": records})


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    run(command=command, name="python -m benchmarks.local_priors")
