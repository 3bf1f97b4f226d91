"""``python -m benchmarks.curator_aims FOLDER``: what aims of a curator's map gain on data of the role test.

Not private: it reads the true data.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import click

from benchmarks.curator_designs import AIMS, Truth, changes, show, table
from benchmarks.data_sets import asked_for, open_set
from mapveil.cli.app import run
from mapveil.cli.arguments import epsilon_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed


@click.command("curator_aims")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="1,2", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--trials", default=4, show_default=True, help="Releases of each row.")
@click.option("--cells", default=4096, show_default=True, help="Cells of a map at most.")
@console_options
def command(console: Console, folder: Path, epsilons: Sequence[Fraction], trials: int, cells: int) -> None:
    """Print the change of every metric by the aim, and by one that was taken back: means and intervals over data sets.

    The data sets are the synthetic ones of the role test and the files of FOLDER that have it by name.
    """
    asked = [(data, path) for data, path in asked_for(folder, True, "test") if data.shape]
    sets = [Truth.of(open_set(data, path), cells) for data, path in asked]
    found = [changes(truth, AIMS, epsilons, trials) for truth in sets]
    console.warn("it reads the true data: do not publish its figures for data of real people")
    console.note("data sets: " + ", ".join(data.name for data, _ in asked))
    show(console, table(found, AIMS))


if __name__ == "__main__":
    run(command=command, name="python -m benchmarks.curator_aims")
