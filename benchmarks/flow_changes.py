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
from benchmarks.flow_errors import CASES, CHECK_INS, Case, each_alone, l1, trips_of
from mapveil.analysis.flow_totals import end_changes, end_totals
from mapveil.engines import UNIT, user_sums
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.mechanisms.flow_blocks import FlowBlocks
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil_client.arrays import IntArray

MONTHS: Final = mv.Windows(every="1mo", start="2010-02-01", until="2010-10-01", zone="UTC")
WEEKDAYS: Final = mv.Windows(by="weekday", zone="UTC")
DEPTHS: Final = (1, 2, 3)  # 4 to 64 zones
EPSILONS: Final = (1, 2)
USERS: Final = 20_000
FDR: Final = 0.05


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow_changes", description=__doc__)
    parser.add_argument("data", type=Path, help="folder of the shared tables")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--page", type=Path, help="write the documentation's page here")
    given = parser.parse_args()
    found: dict[str, str] = {}
    for role in ("tune", "test"):
        trips, windows, case = SERIES[role](given.data)
        rows = [
            windows_row(case, trips, windows, depth, epsilon, given.trials)
            for depth in DEPTHS
            for epsilon in EPSILONS
        ]
        changes = [changes_row(given.data, CHANGED[role], epsilon, given.trials) for epsilon in EPSILONS]
        found |= {f"windows_{role}": "\n".join(rows), f"changes_{role}": "\n".join(changes)}
        print(found[f"windows_{role}"], found[f"changes_{role}"], sep="\n", flush=True)
    text = _PAGE.format(trials=given.trials, users=USERS, **found)
    if given.page is not None:
        given.page.write_text(text, encoding="utf-8")


def check_ins(folder: Path) -> tuple[mv.Points, mv.Windows, Case]:
    """Trips of gowalla-new-york in eight months."""
    case = CASES[0]
    near = "later <= moment + INTERVAL 24 HOUR"
    file = folder / f"{case.file}.parquet"
    return _timed(CHECK_INS.format(file=file, time="time", part="", near=near)), MONTHS, case


def positions(folder: Path) -> tuple[mv.Points, mv.Windows, Case]:
    """Trips of geolife-beijing by weekday, each of a user of its own."""
    case = next(each for each in CASES if each.name == "geolife-beijing")
    sql = """
    SELECT traj_id AS user_id, ARG_MIN(lon, time) AS lon, ARG_MIN(lat, time) AS lat, ARG_MAX(lon, time) AS to_lon,
           ARG_MAX(lat, time) AS to_lat, MIN(time) AS moment FROM '{file}' GROUP BY traj_id ORDER BY traj_id
    """
    return _timed(sql.format(file=folder / f"{case.file}.parquet")), WEEKDAYS, case


def _timed(sql: str) -> mv.Points:
    with duckdb.connect() as opened:
        found = opened.execute(sql).fetchnumpy()
    users, *ends = (np.asarray(found[name]) for name in ("user_id", "lon", "lat", "to_lon", "to_lat"))
    time = np.asarray(found["moment"]).astype("datetime64[us]")
    return mv.Points.from_arrays(users, *ends[:2], to_lon=ends[2], to_lat=ends[3], time=time)


SERIES: Final = {"tune": check_ins, "test": positions}
CHANGED: Final = {"tune": "gowalla-new-york", "test": "foursquare-tokyo"}


def windows_row(
    case: Case, trips: mv.Points, windows: mv.Windows, depth: int, epsilon: int, trials: int
) -> str:
    """Errors of a table's windows, and coverage of the intervals of outflows and inflows, with standard errors."""
    zones = mv.Quadtree(mv.Region.from_bbox(*case.box), depth=depth)
    mechanism = FlowSeries(epsilon=epsilon, windows=windows, most=zones.size**2)
    true = user_sums(mechanism.numbered(trips), zones).sums / UNIT
    of_draws = []
    for seed in range(trials):
        series = mechanism.release(trips, zones, rng=seed)
        assert isinstance(series, FlowSeriesMap)
        every = "no" if series.window_sums.margins else "yes"
        generator = np.random.default_rng(seed)
        ours, rival, held, squares = [], [], [], []
        for window, exact in enumerate(true):
            flows = series.window(window)
            ours.append(l1(exact, flows.matrix().toarray().ravel()))
            noisy = exact + generator.laplace(0, 1 / epsilon, exact.size)
            rival.append(l1(exact, np.where(noisy >= np.log(exact.size) / epsilon, noisy, 0.0)))
            square = exact.reshape(zones.size, zones.size)
            found = end_totals(flows)
            for end, axis in ((found.outflow, 1), (found.inflow, 0)):
                held.append((end.low <= square.sum(axis=axis)) & (square.sum(axis=axis) <= end.high))
                squares.append(np.square(end.estimate - square.sum(axis=axis)))
        root = np.sqrt(np.mean(squares))
        of_draws.append([np.mean(ours), np.mean(rival), root, 100 * np.mean(held)])
    mean, error = np.mean(of_draws, axis=0), np.std(of_draws, axis=0, ddof=1) / trials**0.5
    cells = [case.name, f"{true.sum():,.0f}", str(windows.count), str(zones.size), str(epsilon), every]
    cells += [f"{mean[at]:.3f} ± {error[at]:.3f}" for at in (0, 1)] + [f"{mean[0] / mean[1]:.2f}"]
    cells += [f"{mean[2]:.2f} ± {error[2]:.2f}", f"{mean[3]:.1f} ± {error[3]:.1f} %"]
    return f"| {' | '.join(cells)} |"


def changes_row(folder: Path, name: str, epsilon: int, trials: int) -> str:
    """False discoveries and power of calls of changed outflows and inflows, with standard errors."""
    case = next(each for each in CASES if each.name == name)
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
    rates = (100 * np.array(each) for each in (false, power))
    numbers = (f"{each.mean():.1f} ± {each.std(ddof=1) / trials**0.5:.1f} %" for each in rates)
    return f"| {name} | {epsilon} | {' | '.join(numbers)} |"


def _points(numbers: IntArray, zones: mv.Quadtree) -> mv.Points:
    """A table of as many users of one trip each as the numbers of every pair say."""
    pair = np.repeat(np.arange(numbers.size), numbers.ravel())
    first, second = (zones.centres(each) for each in np.divmod(pair, zones.size))
    users, to_lon, to_lat = np.arange(pair.size), second.lon, second.lat
    return mv.Points.from_arrays(users, first.lon, first.lat, to_lon=to_lon, to_lat=to_lat)


_PAGE: Final = """# Errors of flows over time

Generated by `python -m benchmarks.flow_changes DATA --trials {trials} --page docs/reference/flows-over-time.md`; do
not edit.

## Flows of windows

L1 between the true and the estimated distribution of a window's users over pairs of zones (0 to 2), means over the
windows, under a curator; epsilon is that of a user for all windows. *Private-OD* adds Laplace noise of scale
1 / epsilon to the users' shares in every pair and window, and suppresses pairs below ln(pairs) / epsilon. *Pairs* says
whether every pair was measured in each window, in place of margins and blocks, as it is on few zones. *Ends* is the
root mean square error of outflows and inflows, users; *cover* the percentage of their 95 % intervals that hold. Means
over {trials} draws of the noise, and their standard errors. Windows of gowalla-new-york are eight months, those of
geolife-beijing weekdays, where each trip is of a user of its own.

On the table of the tune role, on which the shares of the budget, the size of blocks and the rule for pairs were chosen:

| table | users | windows | zones | epsilon | pairs | flows | Private-OD | ratio | ends | cover |
|---|---|---|---|---|---|---|---|---|---|---|
{windows_tune}

On the table of the test role:

| table | users | windows | zones | epsilon | pairs | flows | Private-OD | ratio | ends | cover |
|---|---|---|---|---|---|---|---|---|---|---|
{windows_test}

## Calls of change

Two tables of about {users:,} users of one trip each, Poisson numbers at the rates of a table's pairs of 64 zones; in
the second, eight zones of the 24 busiest have half as many trips again within themselves. *False* is the mean fraction
of calls, of outflows and inflows together at a false discovery rate of 5 %, that are of other zones; *power* that of
the sixteen changes that are called. Means over {trials} draws of tables and noise, and their standard errors.

Of the tune role:

| table | epsilon | false | power |
|---|---|---|---|
{changes_tune}

Of the test role:

| table | epsilon | false | power |
|---|---|---|---|
{changes_test}
"""

if __name__ == "__main__":
    main()
