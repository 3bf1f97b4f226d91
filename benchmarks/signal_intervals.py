"""Coverage of the 95 % intervals of maps of privatized rows, on later days: sets by role in ``signal_sets.csv``.

``python -m benchmarks.signal_intervals ROLE --shared FOLDER``: for each set of the role, rows are divided by days and
users, a privatizer is fitted on the pilot, the days between are reported, and the map is judged on true rows of later
days, without and with what the fit learnt of the map's error. ``--traces`` judges kriging of raw
rows instead, on users' days that it was not fitted on. Reads true data.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from mapveil.analysis.signal_mapping import signal_map
from mapveil.analysis.signal_models.kriging import Kriging
from mapveil.evaluation.html_report import text_table
from mapveil.geo.collection_roles import collection_roles, user_days
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.read_measurements import read_measurements
from mapveil.geo.region import Region
from mapveil.maps.signal_map import SignalMap
from mapveil.obfuscation.privatize import fit_privatizer
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness
from reproductions.data import shared_file

TABLE: Final = Path(__file__).with_name("signal_sets.csv")
_TRACE_BLOCKS: Final = 600  # of kriging by trace: a fit takes seconds
_DAY_US: Final = 86_400_000_000
_PRIVATIZERS: Final[dict[str, dict[str, Any]]] = {
    "codebook": {"mu": 1},
    "gaussian-noise": {"sigma": 0.2},
    "local-gaussian": {"epsilon": 100},
}
_MODELS: Final[dict[str, dict[str, Any]]] = {
    "cells": {},
    "linear": {},
    "random-forest": {},
    "kriging": {"blocks": 400},
}


def read_set(row: dict[str, str], shared: Path) -> Measurements:
    """The rows of a set: places and strengths of its file between its first and last day."""
    every = read_measurements(
        shared_file(shared, f"{row['file']}.parquet"), user=row["user"], rss=row["rss"], features=()
    )
    if every.time is None:
        raise InputError(f"{every.source}: no times; roles are by days")
    first, last = (int(np.datetime64(row[end], "D").astype(np.int64)) for end in ("first", "last"))
    day = every.time // _DAY_US
    return every.take((day >= first) & (day <= last))


def covered(found: SignalMap, later: Measurements) -> float:
    """The fraction of true rows, or of cells' true means, within the intervals."""
    cell = found.tiling.locate(later.rows[:, LON], later.rows[:, LAT])
    later, cell = later.take(cell >= 0), cell[cell >= 0]
    truth = later.rows[:, RSS]
    if found.deviation_of == SignalMap.deviation_of:
        count = np.bincount(cell, minlength=found.tiling.size)
        cell, sums = np.flatnonzero(count), np.bincount(cell, truth, found.tiling.size)
        truth = sums[cell] / count[cell]
    truth, cell = truth[found.known[cell]], cell[found.known[cell]]
    return float((np.abs(truth - found.mean_dbm[cell]) <= 1.96 * found.deviation_db[cell]).mean())


def covered_by_trace(measurements: Measurements, rng: Randomness) -> tuple[float, float, float, int]:
    """Held-out users' days in kriging's intervals: mean fraction of the days, of their rows; median width, dB; days."""
    traces = user_days(measurements)
    out = (
        rng.child("traces").generator().permutation(int(traces.max()) + 1)[: round(0.3 * (traces.max() + 1))]
    )
    held = np.isin(traces, out)
    fitted = Kriging(blocks=_TRACE_BLOCKS).fit(measurements.take(~held), rng=rng.child("map"))
    found, truth = fitted.predict(measurements.rows[held]), measurements.rows[held, RSS]
    half = 1.96 * fitted.interval_factor() * found.deviation_db
    within = np.abs(truth - found.mean_dbm) <= half
    day = np.unique(traces[held], return_inverse=True)[1]
    of_days = float((np.bincount(day, within) / np.bincount(day)).mean())
    return of_days, float(within.mean()), 2 * float(np.median(half)), len(out)


@click.command()
@click.argument("role", type=click.Choice(["tune", "test"]))
@click.option("--rows", default=20_000, show_default=True, help="Rows of a trial.")
@click.option("--trials", default=2, show_default=True, help="Splits by days and users of each set.")
@click.option("--traces", is_flag=True, help="Judge kriging of raw rows on users' days it was not fitted on.")
@click.option("--shared", type=click.Path(path_type=Path), default=Path("../shared"), show_default=True)
def command(role: str, rows: int, trials: int, traces: bool, shared: Path) -> None:
    """Measure how often intervals of maps of privatized rows cover later days."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        sets = [row for row in csv.DictReader(file) if row["role"] == role]
    table = []
    for row in sets:
        measurements = read_set(row, shared)
        for trial in range(trials):
            rng = Randomness(trial)
            sample = measurements.sample(rows, rng.child("rows"))
            if traces:
                table.append(
                    [row["name"], str(trial), *(f"{each:.4g}" for each in covered_by_trace(sample, rng))]
                )
                continue
            try:
                roles = collection_roles(sample.take(np.argsort(sample.positions)), rng.child("roles"))
            except InputError as error:
                click.echo(f"{row['name']}, trial {trial}: {error}", err=True)
                continue
            (south, west), (north, east) = (np.quantile(sample.rows[:, :2], end, axis=0) for end in (0, 1))
            region = Region.from_bbox(float(west), float(south), float(east) + 1e-4, float(north) + 1e-4)
            for name, options in _PRIVATIZERS.items():
                fitted = fit_privatizer(roles.pilot, name, options, rng=trial, days=None)
                sent = fitted.privatize_measurements(roles.held_out, rng=trial + 1)
                sent = sent.take(~fitted.normalisation.empty(sent.rows))
                for model, given in _MODELS.items():
                    maps = [
                        signal_map(
                            sent, "grid:40x40", region=region, guarantee=fitted.guarantee(seeded=True),
                            model=model, options=given, error=error, rng=trial,
                        )
                        for error in (None, fitted.map_error)
                    ]  # fmt: skip
                    rates = [f"{covered(each, roles.later):.3f}" for each in maps]
                    wide = f"{float(np.nanmedian(maps[1].deviation_db)):.1f}"
                    table.append([row["name"], str(trial), name, model, *rates, wide])
    header = ["set", "trial", "privatizer", "model", "of the reports", "with the map's error", "deviation dB"]
    if traces:
        header = ["set", "trial", "mean of users' days", "of their rows", "width dB", "users' days"]
    click.echo(text_table(header, table))


if __name__ == "__main__":
    command()
