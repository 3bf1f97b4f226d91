"""Flows in windows and their changes: errors by month beside an equal part of epsilon, false discoveries and power.

    python -m benchmarks.flow_changes ../shared/data --page docs/reference/flows-over-time.md

Of the windows, L1 between the true and the estimated distribution over pairs is a mean over windows; the rival is
Private-OD (:mod:`benchmarks.flow_errors`) on the same shares of users, whose sums of all windows need one epsilon too.
Of changes, both tables have Poisson numbers of users of one trip each, at the rates of a table's pairs; in the second
eight zones of the 24 busiest have half as many trips again within themselves.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

import mapveil as mv
from benchmarks.flow_errors import CASES, CHECK_INS, each_alone, l1, trips_of
from mapveil.analysis.flow_totals import end_changes, end_totals
from mapveil.engines import UNIT, user_sums
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.mechanisms.flow_blocks import FlowBlocks
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil_client.arrays import IntArray

MONTHS: Final = mv.Windows(every="1mo", start="2010-02-01", until="2010-10-01", zone="UTC")
USERS: Final = 20_000
FDR: Final = 0.05


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow_changes", description=__doc__)
    parser.add_argument("data", type=Path, help="folder of the shared tables")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--page", type=Path, help="write the documentation's page here")
    given = parser.parse_args()
    months = [months_row(given.data, depth, epsilon) for depth in (2, 3) for epsilon in (1, 2)]
    print("\n".join(months), flush=True)
    changes = [changes_row(given.data, epsilon, given.trials) for epsilon in (1, 2)]
    print("\n".join(changes), flush=True)
    text = _PAGE.format(
        trials=given.trials, months="\n".join(months), changes="\n".join(changes), users=USERS
    )
    if given.page is not None:
        given.page.write_text(text, encoding="utf-8")


def months_row(folder: Path, depth: int, epsilon: int) -> str:
    """Errors of a table in eight months, and coverage of the intervals of outflows and inflows."""
    case = CASES[0]
    file = folder / f"{case.file}.parquet"
    near = "later <= moment + INTERVAL 24 HOUR"
    with duckdb.connect() as opened:
        found = opened.execute(CHECK_INS.format(file=file, time="time", part="", near=near)).fetchnumpy()
    users, lon, lat, to_lon, to_lat = (
        np.asarray(found[name]) for name in ("user_id", "lon", "lat", "to_lon", "to_lat")
    )
    time = np.asarray(found["moment"]).astype("datetime64[us]")
    trips = mv.Points.from_arrays(users, lon, lat, to_lon=to_lon, to_lat=to_lat, time=time)
    zones = mv.Quadtree(mv.Region.from_bbox(*case.box), depth=depth)
    mechanism = FlowSeries(epsilon=epsilon, windows=MONTHS, most=zones.size**2)
    true = user_sums(mechanism.numbered(trips), zones).sums / UNIT
    ours, rival, held = [], [], []
    for seed in range(2):
        series = mechanism.release(trips, zones, rng=seed)
        assert isinstance(series, FlowSeriesMap)
        generator = np.random.default_rng(seed)
        for window, exact in enumerate(true):
            flows = series.window(window)
            ours.append(l1(exact, flows.matrix().toarray().ravel()))
            noisy = exact + generator.laplace(0, 1 / epsilon, exact.size)
            rival.append(l1(exact, np.where(noisy >= np.log(exact.size) / epsilon, noisy, 0.0)))
            square = exact.reshape(zones.size, zones.size)
            found_ends = end_totals(flows)
            for end, axis in ((found_ends.outflow, 1), (found_ends.inflow, 0)):
                held.append((end.low <= square.sum(axis=axis)) & (square.sum(axis=axis) <= end.high))
    ratio = np.mean(ours) / np.mean(rival)
    numbers = f"{np.mean(ours):.3f} | {np.mean(rival):.3f} | {ratio:.2f} | {100 * np.mean(held):.1f} %"
    return f"| {case.name} ({case.role}) | {true.sum():,.0f} | {zones.size} | {epsilon} | {numbers} |"


def changes_row(folder: Path, epsilon: int, trials: int) -> str:
    """False discoveries and power of calls of changed outflows and inflows."""
    case = CASES[0]
    zones = mv.Quadtree(mv.Region.from_bbox(*case.box), depth=3)
    sums = user_sums(each_alone(trips_of(case, folder)), zones).sums / UNIT
    rates = USERS * (sums / sums.sum()).reshape(zones.size, zones.size)
    busiest = np.argsort(-rates.sum(axis=1))[:24]
    false, power = [], []
    for seed in range(trials):
        generator = np.random.default_rng(seed)
        changed = generator.choice(busiest, 8, replace=False)
        more = rates.copy()
        more[changed, changed] *= 1.5
        mechanism = FlowBlocks(epsilon=epsilon)
        before, after = (
            mechanism.release(_points(generator.poisson(each), zones), zones, rng=2 * seed + at)
            for at, each in enumerate((rates, more))
        )
        found = end_changes(before, after, fdr=FDR)
        really = np.isin(np.arange(zones.size), changed)
        called = np.concatenate([found.outflow.changed, found.inflow.changed])
        really = np.concatenate([really, really])
        false.append((called & ~really).sum() / max(int(called.sum()), 1))
        power.append((called & really).sum() / really.sum())
    return f"| {epsilon} | {100 * np.mean(false):.1f} % | {100 * np.mean(power):.0f} % |"


def _points(numbers: IntArray, zones: mv.Quadtree) -> mv.Points:
    """A table of as many users of one trip each as the numbers of every pair say."""
    pair = np.repeat(np.arange(numbers.size), numbers.ravel())
    first, second = (zones.centres(each) for each in np.divmod(pair, zones.size))
    users, to_lon, to_lat = np.arange(pair.size), second.lon, second.lat
    return mv.Points.from_arrays(users, first.lon, first.lat, to_lon=to_lon, to_lat=to_lat)


_PAGE: Final = """# Errors of flows over time

Generated by `python -m benchmarks.flow_changes DATA --trials {trials} --page docs/reference/flows-over-time.md`; do
not edit.

## Eight months

L1 between the true and the estimated distribution of a month's users over pairs of zones (0 to 2), means over the
months of 2 draws of the noise, under a curator; epsilon is that of a user for all months. *Private-OD* adds Laplace
noise of scale 1 / epsilon to the users' shares in every pair and month, and suppresses pairs below ln(pairs) /
epsilon. *Cover* is the percentage of 95 % intervals of a month's outflows and inflows that hold. The shares of the
budget and the size of blocks were chosen on this table.

| table (role) | users | zones | epsilon | flows | Private-OD | ratio | cover |
|---|---|---|---|---|---|---|---|
{months}

## Calls of change

Two tables of about {users:,} users of one trip each, Poisson numbers at the rates of gowalla-new-york's pairs of 64
zones; in the second, eight zones of the 24 busiest have half as many trips again within themselves. *False* is the
mean fraction of calls, of outflows and inflows together at a false discovery rate of 5 %, that are of other zones;
*power* that of the sixteen changes that are called. {trials} draws of tables and noise.

| epsilon | false | power |
|---|---|---|
{changes}
"""

if __name__ == "__main__":
    main()
