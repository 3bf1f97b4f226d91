"""``python -m benchmarks.curator_designs FOLDER``: the curator's default beside other designs, on tuning data.

Not private: it reads the true data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import click
import numpy as np

from benchmarks.data_sets import tuning_set
from benchmarks.heldout import people_of
from mapveil.cli.app import run
from mapveil.cli.arguments import epsilon_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.html_report import text_table
from mapveil.evaluation.scoring import Scoring
from mapveil.inference import local_dimension
from mapveil.mechanisms import multiscale
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.trust.curator import Curator
from mapveil_client.arrays import FloatArray

METRICS: Final = ("kl", "similarity", "emd", "top_ten")
SETS: Final = (
    *("gowalla-us-1000-users", "brightkite-us-300-users", "foursquare-los-angeles", "brightkite-los-angeles"),
    *("gowalla-austin", "table-skewed-few-tune", "table-hot-spot-few-tune", "table-flat-few-tune"),
    *("raster-flat-few-tune", "raster-skewed-few-tune", "raster-hot-spot-few-tune"),
)
_SEED: Final = 7000


class Design(NamedTuple):
    """A parameter of the mechanism, one of its curator, and a constant of a module."""

    name: str
    option: tuple[str, Any] | None = None
    users_share: float | None = None
    constant: tuple[Any, str, float] | None = None

    def errors(self, people: Any, epsilon: Fraction, trials: int, score: Any) -> FloatArray:
        """The mean of every metric."""
        with ExitStack() as stack:
            if self.constant is not None:
                stack.enter_context(patch.object(*self.constant))
            options = dict([self.option]) if self.option else {}
            trust = Curator() if self.users_share is None else Curator(users_share=self.users_share)
            mechanism = dataclasses.replace(Multiscale(epsilon=epsilon), trust=trust, **options)
            maps = [mechanism.release(people, account=None, rng=_SEED + trial) for trial in range(trials)]
        scores = [score(heat.values) for heat in maps]
        return np.asarray(np.mean([[each[metric] for metric in METRICS] for each in scores], axis=0))


DESIGNS: Final = (
    Design("default"),
    Design("aim places", ("aim", "places")),
    Design("aim totals or distance", ("aim", "distance")),
    Design("users_share .05, first_share .25 (before)", ("first_share", 0.25), 0.05),
    Design("first_share .25", ("first_share", 0.25)),
    Design("first_share .35", ("first_share", 0.35)),
    Design("leaf_signal 1.4", ("leaf_signal", 1.4)),
    Design("leaf_signal 3", ("leaf_signal", 3.0)),
    Design("shifts 8", ("shifts", 8)),
    Design("slope", ("slope", True)),
    Design("no local dimension", constant=(local_dimension, "_LEAST", 2.0)),
    Design("half as many blocks", constant=(multiscale, "_BLOCKS_OF_CURATOR", 0.4)),
    Design("twice as many blocks", constant=(multiscale, "_BLOCKS_OF_CURATOR", 1.6)),
)


def changes(
    name: str, folder: Path, epsilons: Sequence[Fraction], trials: int, cells: int
) -> list[FloatArray]:
    """The change of every metric by each design on one data set, as logarithms: shape (designs, metrics) an epsilon."""
    people = people_of(tuning_set(name, folder), cells).sums()
    score = Scoring(METRICS).against(people.sums / people.sums.sum(), people.tiling)
    found = []
    for epsilon in epsilons:
        errors = np.array([design.errors(people, epsilon, trials, score) for design in DESIGNS])
        found.append(np.log(np.maximum(errors, 1e-9) / np.maximum(errors[0], 1e-9)))
    return found


@click.command("curator_designs")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="1,2", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--trials", default=4, show_default=True, help="Releases of each row.")
@click.option("--cells", default=4096, show_default=True, help="Cells of a map at most.")
@console_options
def command(console: Console, folder: Path, epsilons: Sequence[Fraction], trials: int, cells: int) -> None:
    """Print the change of every metric by each design: geometric means, 95 % intervals over data sets and epsilons."""
    found = np.array([each for name in SETS for each in changes(name, folder, epsilons, trials, cells)])
    rows = []
    for at, design in enumerate(DESIGNS[1:], start=1):
        shown = []
        for metric in found[:, at].T:
            mean, _, high = interval_of_mean(metric)
            shown.append(f"{100 * np.expm1(mean):+.1f} % ± {100 * (high - mean):.1f}")
        rows.append([design.name, *shown])
    console.warn("it reads the true data: do not publish its figures for data of real people")
    header = ["design", "KL", "similarity", "EMD", "top-ten mass"]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    console.result(text_table(header, rows), {"private": False, "rows": records})


if __name__ == "__main__":
    run(command=command, name="python -m benchmarks.curator_designs")
