"""``python -m benchmarks.priors FOLDER``: the curator's default with good and with wrong priors, on tuning data.

Not private: it reads the true data, and makes priors of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

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
from mapveil.engines import UNIT, UserSums, user_sums
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.html_report import text_table
from mapveil.evaluation.scoring import Scoring
from mapveil.mechanisms.multiscale import Multiscale
from mapveil_client.arrays import FloatArray

METRICS: Final = ("kl", "similarity", "emd", "top_ten")
SETS: Final[dict[str, str | None]] = {
    "foursquare-san-francisco": "gowalla-san-francisco",
    "gowalla-new-york": "foursquare-us",
    "brightkite-us-300-users": "foursquare-us",
    "gowalla-us-1000-users": "foursquare-us",
    "raster-skewed-few-tune": None,
    "table-flat-few-tune": None,
}
"""Data sets, and the one whose people are the prior ``other people``, where there is one."""

_BLUR: Final = 1.5  # cells
_EARLIER: Final = 10.0  # users: the noise scale of an earlier release at epsilon 0.1
_BLOCKS: Final = (4, 8)  # cells a side, inside which a prior that is right about them is shuffled
_CITY: Final = 16  # rows and columns of a city made at random
_SEED: Final = 5000


class Measured(NamedTuple):
    """The change of every metric by a prior on one data set, as logarithms."""

    epsilon: float
    prior: str
    change: FloatArray  # shape (metrics,)


def priors_of(people: UserSums, other: mv.Points | mv.Counts | None) -> dict[str, FloatArray]:
    """Priors on the cells of a data set: good ones, good ones that say zero where somebody is, and wrong ones."""
    from scipy.ndimage import gaussian_filter

    lattice = people.tiling.lattice()
    rows, columns = int(lattice.row.max()) + 1, int(lattice.col.max()) + 1
    true = people.sums / people.sums.sum()
    image = np.zeros((rows, columns))
    image[lattice.row, lattice.col] = true
    rng = np.random.default_rng(_SEED)
    noisy = people.sums / UNIT + rng.laplace(0, _EARLIER, true.size)
    away = np.random.default_rng(_SEED + 1).pareto(1.0, (_CITY, _CITY))
    made = {
        "the people, blurred": gaussian_filter(image, _BLUR)[lattice.row, lattice.col],
        "upside down": image[::-1, ::-1][lattice.row, lattice.col],
        "shuffled": np.random.default_rng(_SEED).permutation(true),
        "inverse": 1 / (true + 1 / true.size),
        "even": np.ones(true.size),
        "another city": gaussian_filter(away, 1.0)[
            lattice.row * _CITY // rows, lattice.col * _CITY // columns
        ],
        "counts of 100 of the people": rng.multinomial(100, true).astype(np.float64),
        "an earlier release, cut at 0": np.maximum(noisy, 0.0),
    }
    for side in _BLOCKS:
        order = np.lexsort((rng.random(true.size), lattice.col // side, lattice.row // side))
        plain = np.lexsort((lattice.col // side, lattice.row // side))
        inside = np.empty(true.size)
        inside[plain] = true[order]
        made[f"shuffled inside blocks of {side} x {side}"] = inside
    if other is not None:
        made["other people"] = user_sums(other, people.tiling).sums.astype(np.float64)
    return {name: values for name, values in made.items() if values.any()}


def measure(name: str, folder: Path, epsilons: Sequence[Fraction], trials: int, cells: int) -> list[Measured]:
    """All priors on one data set of the role tune."""
    people = people_of(tuning_set(name, folder), cells).sums()
    other = SETS[name]
    priors: dict[str, mv.Prior | None] = {"none": None}
    for kind, values in priors_of(people, tuning_set(other, folder) if other else None).items():
        priors[kind] = mv.Prior(name=kind, digest="", values=values, tiling=people.tiling)
    score = Scoring(METRICS).against(people.sums / people.sums.sum(), people.tiling)
    found, plain = [], np.ones(len(METRICS))
    for epsilon in epsilons:
        for kind, prior in priors.items():
            mechanism = Multiscale(epsilon=epsilon, prior=prior)
            maps = [mechanism.release(people, account=None, rng=_SEED + trial) for trial in range(trials)]
            mean = np.mean([[score(heat.values)[each] for each in METRICS] for heat in maps], axis=0)
            plain = mean if prior is None else plain
            found.append(Measured(float(epsilon), kind, np.log(mean / plain)))
    return found


@click.command("priors")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="0.1,1", show_default=True,
              help="Budgets, separated by commas.")  # fmt: skip
@click.option("--trials", default=4, show_default=True, help="Releases of each row.")
@click.option("--cells", default=1024, show_default=True, help="Cells of a map at most.")
@console_options
def command(console: Console, folder: Path, epsilons: Sequence[Fraction], trials: int, cells: int) -> None:
    """Print the change of every metric by each prior: geometric means over the data sets, 95 % intervals."""
    found = [row for name in SETS for row in measure(name, folder, epsilons, trials, cells)]
    rows = []
    for epsilon in epsilons:
        for kind in dict.fromkeys(row.prior for row in found if row.prior != "none"):
            changes = np.array(
                [row.change for row in found if (row.prior, row.epsilon) == (kind, float(epsilon))]
            )
            cells_of = []
            for metric in changes.T:
                mean, _, high = interval_of_mean(metric)
                cells_of.append(f"{100 * np.expm1(mean):+.1f} % ± {100 * (high - mean):.1f}")
            worst = f"{100 * np.expm1(changes[:, METRICS.index('kl')].max()):+.1f} %"
            rows.append([f"{float(epsilon):g}", kind, *cells_of, worst])
    console.warn("it reads the true data: do not publish its figures for data of real people")
    header = ["epsilon", "prior", "KL", "similarity", "EMD", "top-ten mass", "KL, worst set"]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    console.result(text_table(header, rows), {"private": False, "rows": records})


if __name__ == "__main__":
    confine_to_tuning_data(sys.argv[1:])
    run(command=command, name="python -m benchmarks.priors")
