"""Errors of series on real tables with time, beside a map of each window with an equal part of epsilon.

    python -m benchmarks.series_error ../shared/data --page docs/reference/series.md

Both promise epsilon to a user over all windows. The rival divides epsilon by the number of windows and makes each
window's map by the same method. Each is compared with what it estimates, without noise: a user's rows divided over
all windows, or over the rows of each window alone. Both are compared as fractions of the window's total.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

import mapveil as mv
from benchmarks.data_sets import data_sets
from benchmarks.series_workloads import WorkloadErrors, as_users, workload_errors
from mapveil.engines import UserSums, user_sums
from mapveil.geo.counts import Counts
from mapveil.geo.windowed_points import Parts, windowed
from mapveil.local.local_series import LocalSeries
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.reported_cells import cells_in_windows
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

EPSILON: Final = 2
DEPTH: Final = 6
RANGES: Final = 300
CASES: Final = (
    ("gowalla-new-york", mv.Windows(every="2w", start="2010-03-14", until="2010-10-24")),
    ("gowalla-us-1000-users", mv.Windows(every="1mo", start="2009-10-01", until="2010-10-01")),
    ("foursquare-us", mv.Windows(every="1mo", start="2012-04-01", until="2013-10-01")),
    ("foursquare-us", mv.Windows(by="hour")),
    ("geolife-beijing", mv.Windows(every="1mo", start="2008-09-01", until="2009-09-01")),
    ("geolife-beijing", mv.Windows(by="hour", zone="Asia/Shanghai")),
    ("porto-taxis", mv.Windows(every="1h", start="2013-07-01", until="2013-07-01T09:00")),
)
"""Tables with times, by their names in ``data_sets.csv``."""


class Errors(NamedTuple):
    """Means over windows."""

    coarse: float  # total variation on 16 x 16 cells
    fine: float  # on 64 x 64 cells
    ranges: float  # mean absolute error of random rectangles, fraction of the window


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.series_error", description=__doc__)
    parser.add_argument("data", type=Path, help="folder of the shared tables")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--page", type=Path, help="write the documentation's page here")
    given = parser.parse_args()
    local = "\n".join(_local(name, windows, given.data, given.trials) for name, windows in CASES)
    rows = [_rows(name, windows, given.data, given.trials) for name, windows in CASES]
    table, workloads = ("\n".join(lines) for lines in zip(*rows, strict=True))
    text = _PAGE.format(trials=given.trials, table=table, workloads=workloads, local=local)
    if given.page is None:
        print(text)
    else:
        given.page.write_text(text, encoding="utf-8")


def _rows(name: str, windows: mv.Windows, folder: Path, trials: int) -> tuple[str, str]:
    """A line of each table."""
    data = next(each for each in data_sets() if each.name == name)
    points = mv.read_points(folder / f"{data.file}.parquet")
    tiling = mv.Quadtree(mv.Region.from_bbox(*data.box), depth=DEPTH)
    shares = user_sums(windowed(points, windows), tiling).sums
    alone = user_sums(windowed(points, windows, Parts(1)), tiling).sums
    series, parts = [], []
    answered: tuple[list[WorkloadErrors], list[WorkloadErrors]] = ([], [])
    for seed in range(trials):
        made = MultiscaleSeries(epsilon=EPSILON, windows=windows).release(UserSums(shares, tiling), rng=seed)
        assert isinstance(made, mv.SeriesMap)
        series.append(errors(made.by_window, shares))
        answered[0].append(workload_errors(made.by_window, as_users(shares)))
        each = Multiscale(epsilon=Fraction(EPSILON, windows.count))
        maps = [each.release(UserSums(one, tiling), rng=seed).values for one in alone]
        parts.append(errors(np.stack(maps), alone))
        answered[1].append(workload_errors(np.stack(maps), as_users(alone)))
    users = shares.sum() / 2**28
    cells = [f"{name} ({data.role})", str(windows), f"{windows.count}", f"{users:,.0f}"]
    for at in range(3):
        cells += [f"{np.mean([one[at] for one in found]):.3f}" for found in (series, parts)]
    answers = cells[:2]
    for field in WorkloadErrors._fields:
        answers += [f"{np.mean([getattr(one, field) for one in found]):.3f}" for found in answered]
    print(" | ".join((*cells, *answers[2:])), flush=True)
    return f"| {' | '.join(cells)} |", f"| {' | '.join(answers)} |"


def _local(name: str, windows: mv.Windows, folder: Path, trials: int) -> str:
    """A line of each table of randomized reports: truth are the most visited cells of a window's users."""
    data = next(each for each in data_sets() if each.name == name)
    tiling = mv.Quadtree(mv.Region.from_bbox(*data.box), depth=DEPTH)
    points, domain = windowed(mv.read_points(folder / f"{data.file}.parquet"), windows), Domain(tiling)
    every = cells_in_windows(points, domain, "most-visited", "drop", windows.count, Randomness(0))
    truth = np.zeros((windows.count, tiling.size), dtype=np.int64)
    np.add.at(truth, (every.windows, every.cells), 1)
    series, parts = [], []
    each = HierarchicalHashing(epsilon=Fraction(EPSILON, windows.count))
    for seed in range(trials):
        made = LocalSeries(epsilon=EPSILON, windows=windows).release(points, tiling, account=None, rng=seed)
        series.append(errors(made.by_window, truth))
        alone = (Counts(one, tiling, name) for one in truth)
        maps = [each.release(one, tiling, account=None, rng=seed).values for one in alone]
        parts.append(errors(np.stack(maps), truth))
    cells = [f"{name} ({data.role})", str(windows), f"{windows.count}", f"{truth.sum(axis=1).mean():,.0f}"]
    for at in range(3):
        cells += [f"{np.mean([one[at] for one in found]):.3f}" for found in (series, parts)]
    print("local", " | ".join(cells), flush=True)
    return f"| {' | '.join(cells)} |"


def errors(found: FloatArray, truth: IntArray) -> Errors:
    """Errors of maps of windows, shape (windows, cells), as fractions of each window's total; empty ones left out."""
    there = truth.sum(axis=1) > 0
    kept, true = np.maximum(found[there], 0.0), truth[there].astype(np.float64)
    empty = kept.sum(axis=1) == 0
    kept[empty] = 1.0  # a window without an estimate is even
    kept, true = (each / each.sum(axis=1, keepdims=True) for each in (kept, true))
    fine = kept - true
    coarse = fine.reshape(len(fine), 256, -1).sum(axis=2)
    halved = [float(np.abs(each).sum(axis=1).mean() / 2) for each in (coarse, fine)]
    return Errors(halved[0], halved[1], _ranges(fine))


def _ranges(apart: FloatArray) -> float:
    """Mean absolute error of random rectangles of cells."""
    from mapveil_client.morton import deinterleave

    side, rng = 1 << DEPTH, np.random.default_rng(0)
    square = np.zeros((len(apart), side + 1, side + 1))
    row, col = deinterleave(np.arange(side * side))
    square[:, row + 1, col + 1] = apart
    summed = square.cumsum(axis=1).cumsum(axis=2)
    edges = np.sort(rng.integers(0, side + 1, (2, RANGES, 2)), axis=2)
    (top, bottom), (left, right) = edges[0].T, edges[1].T
    inside = summed[:, bottom, right] - summed[:, top, right] - summed[:, bottom, left] + summed[:, top, left]
    return float(np.abs(inside).mean())


_PAGE = """# Errors of series

Generated by `python -m benchmarks.series_error DATA --trials {trials} --page docs/reference/series.md`; do not edit.

Epsilon 2 for a user over all windows, cells of a quadtree of depth 6, means over windows and {trials} draws of the
noise. *Series* is {{func}}`mapveil.release_series`; *parts* is a map of each window by the same method with epsilon
divided by the number of windows. Each is compared with what it estimates, without noise, as fractions of a window's
total. *L1/2* is the total variation on 16 x 16 and on 64 x 64 cells, *ranges* the mean absolute error of 300 random
rectangles. The defaults of `pooled_share` and `window_signal` were chosen on tables of the tune role.

| table (role) | windows | number | users | L1/2, 16: series | parts | 64: series | parts | ranges: series | parts |
|---|---|---|---|---|---|---|---|---|---|
{table}

## From reports of devices

With trust `local` each user draws one window and reports about it with the whole epsilon; *parts* is a report of each
user about every window, by the same randomizer, with epsilon divided by the number of windows. *Users* is the mean
number in a window, each at the cell most visited in it.

| table (role) | windows | number | users | L1/2, 16: series | parts | 64: series | parts | ranges: series | parts |
|---|---|---|---|---|---|---|---|---|---|
{local}

## Three workloads of a rival

Ahuja, Ghinita and Shahabi, "A Neural Approach to Spatio-Temporal Data Release with User-Level Differential Privacy"
(2023), measure a generative model of space and time on three workloads. Here are the errors of the same kinds of
questions on the maps above; boxes, thresholds and the forecaster are ours (`benchmarks/series_workloads.py`), so the
figures of the paper do not compare. *Range*: mean relative error of 500 random boxes of cells and windows, its
divisor a thousandth of all users at least. *Spot*: the nearest hot spot, the error of its distance in sides of the
map, and *short*, by which fraction the cell that was found misses the threshold. *sMAPE*: symmetric mean absolute
percentage error (0 to 2) of forecasts of the last quarter of the windows.

| table, role | windows | range: series | parts | spot: series | parts | short: series | parts | sMAPE: series | parts |
|---|---|---|---|---|---|---|---|---|---|
{workloads}
"""

if __name__ == "__main__":
    main()
