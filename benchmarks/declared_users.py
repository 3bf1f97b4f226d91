"""``python -m benchmarks.declared_users FOLDER``: what a declared number of users gains or costs, on tuning data.

Not private: it reads the true data.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

import click
import numpy as np

from benchmarks.curator_designs import SETS, TITLES, Design, Truth, changes
from benchmarks.data_sets import tuning_set
from benchmarks.tuning_sandbox import confine_to_tuning_data
from mapveil.cli.app import run
from mapveil.cli.arguments import epsilon_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.html_report import text_table

DECLARED: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0)
"""Fractions of the true number of users."""


@click.command("declared_users")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="0.1,1", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--trials", default=8, show_default=True, help="Releases of each row.")
@click.option("--cells", default=4096, show_default=True, help="Cells of a map at most.")
@console_options
def command(console: Console, folder: Path, epsilons: Sequence[Fraction], trials: int, cells: int) -> None:
    """Print the change of every metric by a declared number: mean over data sets, its interval, and the worst set."""
    designs = (Design("none"), *(Design(f"{times:g} x the truth", declared=times) for times in DECLARED))
    sets = [Truth.of(tuning_set(name, folder), cells) for name in SETS]
    found = np.array(
        [changes(truth, designs, epsilons, trials) for truth in sets]
    )  # (sets, epsilons, designs, metrics)
    console.warn("it reads the true data: do not publish its figures for data of real people")
    rows = [
        [f"{float(epsilon):g}", design.name, *map(_shown, found[:, row, at].T, TITLES)]
        for row, epsilon in enumerate(epsilons)
        for at, design in enumerate(designs[1:], start=1)
    ]
    header = ["epsilon", "declared", *TITLES]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    console.result(text_table(header, rows), {"private": False, "rows": records})


def _shown(change: Sequence[float], metric: str) -> str:
    mean, _, high = interval_of_mean(np.asarray(change))
    worst = min(change) if metric in ("similarity", "top-ten mass") else max(change)
    return f"{100 * np.expm1(mean):+.1f} % ± {100 * (high - mean):.1f} ({100 * np.expm1(worst):+.0f})"


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    run(command=command, name="python -m benchmarks.declared_users")
