"""``python -m benchmarks.heldout FOLDER``: every method of every trust model on data that nobody tuned on.

The roles of the data sets stand in ``data_sets.csv``. Not private: it reads the true data.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np

import mapveil as mv
from benchmarks.data_sets import LEFT_OUT, TABLE, DataSet, asked_for, files_in, open_set, other_files, sets_of
from benchmarks.heldout_looks import Looks, Rows, epsilons_in_question, judged, of_first_look
from benchmarks.heldout_tables import MSE, RULE, Measured, Standing, count_verdicts, mean_values, standings
from benchmarks.heldout_text import result_text
from mapveil.cli.app import run
from mapveil.cli.arguments import epsilon_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import Parsed, names_option, seed_option, table_source
from mapveil.evaluation.compare import COUNTED_UNITS, COUNTED_USERS, compare
from mapveil.evaluation.comparison import Row
from mapveil.evaluation.sampled_people import CountedUsers, Population, population
from mapveil.evaluation.scoring import EMD_EUCLIDEAN, L1_SQUARES
from mapveil.evaluation.trials import Progress, in_processes
from mapveil.mechanisms.methods import METHODS, find_method
from mapveil_client.errors import CuratorWarning, InputError, MapveilError, check

TRUSTS: Final = ("central", "distributed", "local")
VARIANTS: Final = (
    "distributed/multiscale:rounds=1",
    "local/olh-h:growth=2:site_weight=1",
    "local/olh-h:growth=8:site_weight=4",
)
"""Options that a default had before, or that rivalled it; compared as if they were methods."""

MAX_CELLS: Final = 16_384
"""Cells of a map at most, 128 x 128: a release and its distances then take seconds, whatever the method."""

MAX_USERS: Final = 100_000
"""Devices of a trial at most, under secure sums and in the local model."""

QUICK: Final = {"trials": 2, "max_cells": 256, "max_users": 2_000, "epsilons": "1"}  # defaults by --quick

HOT_SPOT: Final = 0.08
"""A data set is of the shape hot spot where one cell holds this fraction of all."""

FLAT: Final = 0.4
"""Else it is flat where moving this fraction of all makes 16 x 16 blocks of cells even, and skewed where it is not."""


class Job(NamedTuple):
    """One method on one data set at one epsilon; picklable."""

    people: Population
    method: str
    trust: str
    epsilon: Fraction
    trials: int
    users: int | None
    metrics: tuple[str, ...]
    uniform: bool
    seed: int
    first_trial: int = 0


class Ran(NamedTuple):
    """The rows of a job, or why there are none."""

    method: str
    trust: str
    epsilon: Fraction
    rows: tuple[Row, ...]
    refused: str


def run_job(job: Job) -> Ran:
    """Compare one method with the truth; samples and noise are the same as if all methods ran together."""
    try:
        found = compare(
            job.people, None, [job.method], [job.epsilon], job.trials, users=job.users, metrics=job.metrics,
            of_everybody=True, uniform=job.uniform, seed=job.seed, first_trial=job.first_trial,
        )  # fmt: skip
    except MapveilError as error:
        return Ran(job.method, job.trust, job.epsilon, (), str(error))
    except Exception as error:  # a bug in one method must not cost the hours of all others
        return Ran(job.method, job.trust, job.epsilon, (), f"internal error: {type(error).__name__}: {error}")
    return Ran(job.method, job.trust, job.epsilon, found.rows, "")


def default_of(trust: str) -> str:
    """The default method of a trust model, as a comparison names it."""
    return f"{trust}/{find_method(None, trust).name}"


def methods_of(trust: str) -> list[str]:
    """Every method of a trust model that makes a map of all users, the default first, and the variants."""
    names = [f"{trust}/{each.name}" for each in METHODS if each.trust == trust and not each.labels]
    names += [name for name in VARIANTS if name.startswith(f"{trust}/")]
    return sorted(names, key=lambda name: name != default_of(trust))


def metrics_on(people: Population, trust: str) -> tuple[str, ...]:
    """The metrics of a trust model, those in metres where there is georeference."""
    of_ground = (EMD_EUCLIDEAN, L1_SQUARES) if people.tiling.region.georeferenced else ()
    shape = ("kl", "jensen_shannon", "similarity", "emd", *of_ground, "top_ten")
    return (*shape, MSE) if trust == "distributed" else shape


def people_of(source: mv.Points | mv.Counts, max_cells: int) -> Population:
    """The people of a data set on at most so many cells: a quadtree for a table, blocks of a raster's cells.

    Rows and columns of a raster that fill no block are cut off in the south and in the east.
    """
    if isinstance(source, mv.Points):
        assert source.region is not None
        depth = (max_cells.bit_length() - 1) // 2
        return population(source, mv.Quadtree(source.region, min(depth, 8)))
    return CountedUsers(coarser(source, max_cells))


def coarser(counts: mv.Counts, max_cells: int) -> mv.Counts:
    """Counts summed over the smallest blocks with which there are few enough cells: square ones, or the whole height or
    width of a raster that is narrower than that.
    """
    grid = counts.tiling
    assert isinstance(grid, mv.Grid)
    down = across = 1
    while (grid.rows // down) * (grid.columns // across) > max_cells:
        down, across = min(down + 1, grid.rows), min(across + 1, grid.columns)
    rows, columns = grid.rows // down, grid.columns // across
    if (rows, columns) == (grid.rows, grid.columns):
        return counts
    image = counts.values.reshape(grid.rows, grid.columns)[: rows * down, : columns * across]
    values = image.reshape(rows, down, columns, across).sum(axis=(1, 3)).reshape(-1)
    region = mv.Region.without_georeference(columns, rows)
    if grid.region.georeferenced:
        x0, y0, x1, y1 = grid.region.bounds_m
        east = x0 + (x1 - x0) * columns * across / grid.columns
        south = y1 - (y1 - y0) * rows * down / grid.rows
        region = mv.Region.from_bounds_in(grid.region.crs, x0, south, east, y1)
    return mv.Counts(np.asarray(values), mv.Grid(region, rows=rows, columns=columns), counts.source)


def shape_of(people: Population) -> str:
    """The shape of a city whose shape nobody said."""
    values, lattice = people.sums().sums / people.sums().sums.sum(), people.tiling.lattice()
    shift = max(lattice.depth - 4, 0)
    block = ((lattice.row >> shift) << 4) + (lattice.col >> shift)
    uneven = np.abs(np.bincount(block, values - 1 / values.size)).sum() / 2
    return "hot spot" if values.max() >= HOT_SPOT else "flat" if uneven < FLAT else "skewed"


def jobs_on(
    people: Population,
    trusts: Sequence[str],
    epsilons: Sequence[Fraction],
    trials: int,
    max_users: int,
    seed: int,
) -> Iterator[Job]:
    """Everything to run on one data set. In the local model a user is at the cell most visited, as they report it."""
    for trust in trusts:
        asked: Population = CountedUsers(people.most_visited()) if trust == "local" else people
        users = max_users if trust != "central" and asked.users > max_users else None
        metrics = metrics_on(asked, trust)
        for method in methods_of(trust):
            uniform = method == default_of(trust)
            for epsilon in dict.fromkeys(epsilons):
                yield Job(asked, method, trust, epsilon, trials, users, metrics, uniform, seed)


def _quick(context: click.Context, _: click.Parameter, quick: bool) -> None:
    if quick:
        context.default_map = {**(context.default_map or {}), **QUICK}


@click.command("heldout", context_settings={"default_map": {"on_bad_rows": "drop"}})
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@names_option("--trust", ",".join(TRUSTS), "Trust models, separated by commas.")
@click.option("--epsilon", "epsilons", type=Parsed("epsilons", epsilon_list), default="0.1,0.5,1,2",
              show_default=True, help="Budgets, separated by commas.")  # fmt: skip
@click.option("--trials", default=5, show_default=True, help="Paired repetitions of each row.")
@click.option("--max-trials", type=int,
              help="Repeat rows that are not decided up to so many trials. [default: --trials]")  # fmt: skip
@click.option("--max-cells", default=MAX_CELLS, show_default=True, help="Maximum number of cells of a map.")
@click.option(
    "--max-users", default=MAX_USERS, show_default=True, help="Maximum number of devices in a trial."
)
@click.option("--role", type=click.Choice(["tune", "test"]), help="Run this role only. [default: both]")
@click.option("--synthetic", is_flag=True, help="Add the synthetic cities. [default: only without a folder]")
@click.option("--every-row", is_flag=True, help="Print every row and not only those where the default loses.")
@click.option(
    "--quick", is_flag=True, is_eager=True, expose_value=False, callback=_quick,
    help="See that all runs, by other defaults: 16 x 16 cells, 2,000 devices, epsilon 1, 2 trials."
)  # fmt: skip
@click.option("--workers", default=2, show_default=True, help="Number of processes.")
@table_source("user", "lon", "lat", "weight")
@seed_option("figures")
@console_options
def command(
    console: Console,
    folder: Path | None,
    trust: Sequence[str],
    epsilons: Sequence[Fraction],
    trials: int,
    max_trials: int | None,
    max_cells: int,
    max_users: int,
    role: str | None,
    synthetic: bool,
    every_row: bool,
    workers: int,
    columns: dict[str, Any],
    seed: int,
) -> None:
    """Compare every method on every table and raster of FOLDER. It reads the truth: NOT private.

    Without FOLDER it runs on the synthetic cities. A file that `data_sets.csv` does not name has the test role;
    options of columns are for tables of such files. Files that cannot be read, and rows that cannot be used, are left
    out with a warning.
    """
    for name in trust:
        check(name in TRUSTS, "--trust", f"one of {', '.join(TRUSTS)}", name)
    least = {"trials": (trials, 1), "max-trials": (trials if max_trials is None else max_trials, trials)}
    least |= {"max-cells": (max_cells, 16), "max-users": (max_users, 1), "workers": (workers, 1)}
    for name, (value, bound) in least.items():
        check(value >= bound, f"{name.replace('-', '_')} (--{name})", f"at least {bound}", value)

    def people_in(data: DataSet, path: Path | None) -> Population:
        people = people_of(open_set(data, path, columns), max_cells)
        if people.users == 0:
            raise InputError(f"{path}: no users; expected at least one")
        return people

    asked = asked_for(folder, synthetic, role)
    if folder is not None and (others := other_files(folder)):
        console.note(f"passed over (folders, links, other suffixes, or one name twice): {', '.join(others)}")
    if (max_trials or trials) == 1:
        console.warn("one trial has no interval, so that every row is a tie; --trials 5 tells more")
    chosen: list[tuple[DataSet, Path | None]] = []
    left_out = [
        {"data": data.name, "reason": f"{TABLE.name} leaves it out"}
        for path in (files_in(folder) if folder is not None else ())
        for data in sets_of(path)
        if data.role == LEFT_OUT
    ]
    for data, path in asked:
        try:
            if path is not None:
                # Every file is read, and let go again, before hours are spent on the first.
                people_in(data, path)
        except MapveilError as error:
            console.warn(f"left out: {data.name}: {error.in_flags()}")
            left_out.append({"data": data.name, "reason": error.in_flags()})
            continue
        chosen.append((data, path))
    if not chosen:
        raise InputError(f"{folder}: no file can be read; expected tables or rasters with users")
    measured: list[Measured] = []
    described: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    found: list[Standing] = []
    looks = Looks.up_to(trials, max_trials or trials)
    with console.progress() as progress:
        for at, (data, path) in enumerate(chosen):
            with warnings.catch_warnings():
                # What is dropped from the file was told when it was first read.
                warnings.simplefilter("ignore", CuratorWarning)
                people = people_in(data, path)
            data = data._replace(shape=data.shape or shape_of(people))
            sums = people.sums().sums
            size = {"users": people.users, "cells": sums.size, "fullest_cell": float(sums.max() / sums.sum())}
            kind = {"role": data.role, "shape": data.shape, "synthetic": data.synthetic}
            described.append({"name": data.name, **kind, **size})
            console.note(
                f"{at + 1} of {len(chosen)}: {data.name} ({data.role}, {data.shape}), {people.users:,} users, "
                f"{sums.size:,} cells, {size['fullest_cell']:.1%} of all in the fullest"
            )
            jobs = list(jobs_on(people, trust, epsilons, trials, max_users, seed))
            rows: dict[str, list[Row]] = {name: [] for name in trust}
            judgements: Rows = {}
            ended: set[tuple[str, Fraction]] = set()
            for before, total in itertools.pairwise((0, *looks.totals)):
                ready = (job for job in jobs if (job.method, job.epsilon) not in ended)
                again = list(_in_question(ready, judgements, before, total - before))
                start, end = ((at + each / looks.totals[-1]) / len(chosen) for each in (before, total))
                tell = _part(progress, start, end - start)
                for ran in in_processes(run_job, again, workers=workers, progress=tell, step="heldout"):
                    rows[ran.trust] += ran.rows
                    if ran.refused:
                        tell_of = console.warn if ran.refused.startswith("internal") else console.detail
                        where = f"{data.name} at epsilon {float(ran.epsilon):g}"
                        tell_of(f"{ran.method} does not run on {where}: {ran.refused}")
                        why = {"epsilon": float(ran.epsilon), "reason": ran.refused}
                        refused.append({"data": data.name, "method": ran.method, **why})
                        ended.add((ran.method, ran.epsilon))
                for name in trust:
                    of_trust = (job for job in jobs if job.trust == name)
                    asked_rows = tuple((float(job.epsilon), each) for job in of_trust for each in job.metrics)
                    now = Measured(data, name, tuple(rows[name]), asked_rows)
                    judgements = judged(judgements, standings(now, default_of(name), looks.level))
            found += judgements.values()
            measured += [Measured(data, name, of_first_look(rows[name], looks)) for name in trust]
    means = mean_values(measured)
    settings = {
        "epsilons": [float(each) for each in epsilons],
        "trials": trials,
        "max_trials": looks.totals[-1],
        "level": looks.level,
        "rule": RULE,
        "max_cells": max_cells,
        "max_users": max_users,
        "seed": seed,
        "counted": {"tables": COUNTED_USERS, "rasters": COUNTED_UNITS},
        "local": "each user at the cell most visited",
    }
    console.warn("it reads the true data: do not publish its figures for data of real people")
    record = {
        "private": False,
        "settings": settings,
        "data_sets": described,
        "left_out": left_out,
        "verdicts": count_verdicts(found),
        "means": means,
        "rows": [each._asdict() for each in found],
        "refused": refused,
    }
    console.result(result_text(record, found, every_row=every_row), record)


def _in_question(jobs: Iterable[Job], rows: Rows, before: int, trials: int) -> Iterator[Job]:
    """All jobs at first; then those of undecided rows, for so many trials more."""
    for job in jobs:
        if not before or float(job.epsilon) in epsilons_in_question(rows, job.trust, job.method):
            yield job._replace(trials=trials, first_trial=before)


def _part(progress: Progress, start: float, length: float) -> Progress:
    return lambda step, done: progress(step, start + done * length)


if __name__ == "__main__":
    run(command=command, name="python -m benchmarks.heldout")
