"""``python -m benchmarks.curator_designs FOLDER``: the curator's default beside other designs, on tuning data.

Not private: it reads the true data.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import click
import numpy as np

import mapveil as mv
from benchmarks.data_sets import tuning_set
from benchmarks.heldout import people_of
from benchmarks.tuning_sandbox import confine_to_tuning_data
from mapveil.cli.app import run
from mapveil.cli.arguments import epsilon_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed
from mapveil.engines import UNIT, UserSums
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.html_report import text_table
from mapveil.evaluation.scoring import Scoring
from mapveil.inference import local_dimension
from mapveil.mechanisms import multiscale
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.trust.curator import Curator
from mapveil_client.arrays import FloatArray

METRICS: Final = ("kl", "similarity", "emd", "top_ten")
TITLES: Final = ("KL", "similarity", "EMD", "top-ten mass", "L1 of districts")
SETS: Final = (
    *("gowalla-us-1000-users", "brightkite-us-300-users", "foursquare-los-angeles", "brightkite-los-angeles"),
    *("gowalla-austin", "table-skewed-few-tune", "table-hot-spot-few-tune", "table-flat-few-tune"),
    *("raster-flat-few-tune", "raster-skewed-few-tune", "raster-hot-spot-few-tune"),
)
_SEED: Final = 7000
_DISTRICTS: Final = 3  # halvings along either axis: 8 x 8 districts


class Truth(NamedTuple):
    """A data set, and the errors of its maps."""

    people: UserSums
    score: Callable[[FloatArray], Mapping[str, float]]

    @property
    def users(self) -> float:
        """The true number of users."""
        return float(self.people.sums.sum()) / UNIT

    @classmethod
    def of(cls, source: mv.Points | mv.Counts, cells: int) -> Truth:
        """A data set on at most so many cells."""
        people = people_of(source, cells).sums()
        return cls(people, Scoring(METRICS).against(people.sums / people.sums.sum(), people.tiling))

    def errors(self, values: FloatArray) -> list[float]:
        """Every one of :data:`TITLES`."""
        found, kept = self.score(values), np.maximum(values, 0.0)
        mine, true = (self._districts(each / max(each.sum(), 1e-300)) for each in (kept, self.people.sums))
        return [*(found[metric] for metric in METRICS), float(np.abs(mine - true).sum())]

    def _districts(self, values: FloatArray) -> FloatArray:
        lattice = self.people.tiling.lattice()
        shift = max(lattice.depth - _DISTRICTS, 0)
        district = ((lattice.row >> shift) << _DISTRICTS) + (lattice.col >> shift)
        return np.asarray(np.bincount(district, values, 1 << 2 * _DISTRICTS), dtype=np.float64)


class Design(NamedTuple):
    """Parameters of the mechanism, one of its curator, a constant of a module, and a declared number of users."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    users_share: float | None = None
    constant: tuple[Any, str, float] | None = None
    declared: float | None = None  # of the true number

    def errors(self, truth: Truth, epsilon: Fraction, trials: int) -> FloatArray:
        """The mean of every metric."""
        with ExitStack() as stack:
            if self.constant is not None:
                stack.enter_context(patch.object(*self.constant))
            trust = Curator() if self.users_share is None else Curator(users_share=self.users_share)
            if self.declared is not None:
                trust = dataclasses.replace(trust, users=max(round(self.declared * truth.users), 1))
            mechanism = dataclasses.replace(Multiscale(epsilon=epsilon), trust=trust, **self.options)
            maps = [
                mechanism.release(truth.people, account=None, rng=_SEED + trial) for trial in range(trials)
            ]
        return np.asarray(np.mean([truth.errors(heat.values) for heat in maps], axis=0))


AIMS: Final = (
    Design("default"),
    Design("aim totals", {"aim": "totals"}),
    Design("leaf_signal 1", {"leaf_signal": 1.0}),
)
DESIGNS: Final = (
    *AIMS,
    Design("first_share .5, leaf_signal 3 (aim totals before)", {"first_share": 0.5, "leaf_signal": 3.0}),
    Design("users_share .05, first_share .25 (before)", {"first_share": 0.25}, 0.05),
    Design("first_share .25", {"first_share": 0.25}),
    Design("first_share .35", {"first_share": 0.35}),
    Design("leaf_signal 1.4", {"leaf_signal": 1.4}),
    Design("leaf_signal 3", {"leaf_signal": 3.0}),
    Design("shifts 8", {"shifts": 8}),
    Design("shifts 2", {"shifts": 2}),
    Design("slope", {"slope": True}),
    Design("no local dimension", constant=(local_dimension, "_LEAST", 2.0)),
    Design("half as many blocks", constant=(multiscale, "_BLOCKS_OF_CURATOR", 0.4)),
    Design("twice as many blocks", constant=(multiscale, "_BLOCKS_OF_CURATOR", 1.6)),
)


def changes(
    truth: Truth, designs: Sequence[Design], epsilons: Sequence[Fraction], trials: int
) -> list[FloatArray]:
    """The change of every metric against the first design, as logarithms: shape (designs, metrics) an epsilon."""
    found = []
    for epsilon in epsilons:
        errors = np.array([design.errors(truth, epsilon, trials) for design in designs])
        found.append(np.log(np.maximum(errors, 1e-9) / np.maximum(errors[0], 1e-9)))
    return found


def table(found: Sequence[Sequence[FloatArray]], designs: Sequence[Design]) -> list[list[str]]:
    """Geometric means over data sets and epsilons with 95 % intervals over data sets, a row for each further design.

    ``found`` holds :func:`changes` of each data set. They are averaged over its epsilons, which share its people.
    """
    rows = []
    for at, design in enumerate(designs[1:], start=1):
        shown = []
        for metric in np.mean(found, axis=1)[:, at].T:
            mean, _, high = interval_of_mean(metric)
            shown.append(f"{100 * np.expm1(mean):+.1f} % ± {100 * (high - mean):.1f}")
        rows.append([design.name, *shown])
    return rows


@click.command("curator_designs")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="1,2", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--trials", default=4, show_default=True, help="Releases of each row.")
@click.option("--cells", default=4096, show_default=True, help="Cells of a map at most.")
@console_options
def command(console: Console, folder: Path, epsilons: Sequence[Fraction], trials: int, cells: int) -> None:
    """Print the change of every metric by each design: geometric means, 95 % intervals over data sets."""
    sets = [Truth.of(tuning_set(name, folder), cells) for name in SETS]
    found = [changes(truth, DESIGNS, epsilons, trials) for truth in sets]
    console.warn("it reads the true data: do not publish its figures for data of real people")
    show(console, table(found, DESIGNS))


def show(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Print a table of designs."""
    header = ["design", *TITLES]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    console.result(text_table(header, rows), {"private": False, "rows": records})


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    run(command=command, name="python -m benchmarks.curator_designs")
