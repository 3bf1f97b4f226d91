"""``python -m benchmarks.declared_users FOLDER``: what a declared number of users gains or costs, on tuning data.

By default on given cells, the same for every number. With ``--default-cells`` each release of a table chooses its own,
by the rule's k and by others, and the maps are compared on the given ones. Not private: it reads the true data.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import click
import numpy as np

import mapveil as mv
from benchmarks.curator_designs import SETS, TITLES, Design, Truth, changes
from benchmarks.data_sets import tuning_set
from benchmarks.tuning_sandbox import confine_to_tuning_data
from mapveil.cli.app import run
from mapveil.cli.arguments import epsilon_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.html_report import text_table
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms import default_tiling
from mapveil_client.arrays import FloatArray

DECLARED: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0)
"""Fractions of the true number of users."""

CROWDING: Final = (1.0, 2.0, 8.0, 16.0)
"""Values of k of :mod:`mapveil.mechanisms.default_tiling` beside its own, for default cells."""

_SEED: Final = 7000


@click.command("declared_users")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="0.1,1", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--trials", default=8, show_default=True, help="Releases of each row.")
@click.option("--cells", default=4096, show_default=True, help="Cells of a map at most.")
@click.option("--default-cells", is_flag=True, help="Let releases of the tables choose their cells.")
@console_options
def command(
    console: Console,
    folder: Path,
    epsilons: Sequence[Fraction],
    trials: int,
    cells: int,
    default_cells: bool,
) -> None:
    """Print the change of every metric by a declared number: mean over data sets, its interval, and the worst set."""
    designs = (Design("none"), *(Design(f"{times:g} x the truth", declared=times) for times in DECLARED))
    sources = [tuning_set(name, folder) for name in SETS]
    if default_cells:
        designs += tuple(
            Design(f"none, k = {times:g}", constant=(default_tiling, "_CROWDING", times))
            for times in CROWDING
        )
        tables = [each for each in sources if isinstance(each, mv.Points)]
        by_set = [changes_of_default(table, designs, epsilons, trials, cells) for table in tables]
    else:
        by_set = [changes(Truth.of(each, cells), designs, epsilons, trials) for each in sources]
    found = np.array(by_set)  # (sets, epsilons, designs, metrics)
    console.warn("it reads the true data: do not publish its figures for data of real people")
    rows = [
        [f"{float(epsilon):g}", design.name, *map(_shown, found[:, row, at].T, TITLES)]
        for row, epsilon in enumerate(epsilons)
        for at, design in enumerate(designs[1:], start=1)
    ]
    header = ["epsilon", "declared", *TITLES]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    console.result(text_table(header, rows), {"private": False, "rows": records})


def changes_of_default(
    table: mv.Points, designs: Sequence[Design], epsilons: Sequence[Fraction], trials: int, cells: int
) -> list[FloatArray]:
    """The change of every metric by a declared number where cells are the default ones, as :func:`changes`."""
    truth, found = Truth.of(table, cells), []
    for epsilon in epsilons:
        errors = []
        for design in designs:
            options = (
                {} if design.declared is None else {"users": max(round(design.declared * truth.users), 1)}
            )
            given: dict[str, Any] = {
                "region": table.region,
                "epsilon": epsilon,
                "options": options,
                "account": None,
            }
            with patch.object(*design.constant) if design.constant else nullcontext():
                maps = [mv.release(table, rng=_SEED + trial, **given) for trial in range(trials)]
            errors.append(
                np.mean([truth.errors(on_cells(heat, truth.people.tiling)) for heat in maps], axis=0)
            )
        of_designs = np.maximum(errors, 1e-9)
        found.append(np.log(of_designs / of_designs[0]))
    return found


def on_cells(heat: mv.DensityMap, tiling: Tiling) -> FloatArray:
    """A map of a quadtree on another of its region: sums of finer cells, even parts of coarser ones."""
    mine, other = heat.tiling.lattice(), tiling.lattice()
    image = np.zeros((1 << mine.depth,) * 2)
    image[mine.row, mine.col] = heat.values
    down = mine.depth - other.depth
    if down >= 0:
        side = 1 << other.depth
        image = image.reshape(side, 1 << down, side, 1 << down).sum(axis=(1, 3))
        return np.asarray(image[other.row, other.col])
    return np.asarray(image[other.row >> -down, other.col >> -down] / 4.0**-down)


def _shown(change: Sequence[float], metric: str) -> str:
    mean, _, high = interval_of_mean(np.asarray(change))
    worst = min(change) if metric in ("similarity", "top-ten mass") else max(change)
    return f"{100 * np.expm1(mean):+.1f} % ± {100 * (high - mean):.1f} ({100 * np.expm1(worst):+.0f})"


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    run(command=command, name="python -m benchmarks.declared_users")
