"""Errors of flows by a curator on real trips, beside Private-OD: Laplace noise on every pair, and suppression.

    python -m benchmarks.flow_errors ../shared/data --page docs/reference/flows.md

Private-OD adds Laplace noise of scale 1 / epsilon to every pair of zones and suppresses what is below a threshold, of
:math:`\\ln(pairs) / \\epsilon` trips: of pairs without a trip about half of one is then released. Its best threshold in
hindsight, which no release could know, stands beside it. Both estimate the same: a user's trips count 1 together.
Trips of check-ins are consecutive ones of a user within 24 hours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

import mapveil as mv
from benchmarks.record import peak_mb
from mapveil.analysis.trips import read_trips
from mapveil.engines import UNIT, user_sums
from mapveil.maps.flow_map import FlowMap
from mapveil.mechanisms.flow_blocks import FlowBlocks
from mapveil_client.arrays import FloatArray

THRESHOLDS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Thresholds in noise scales, of which the best in hindsight is taken."""

CHECK_INS: Final = """
SELECT user_id, lon, lat, to_lon, to_lat, moment FROM (
    SELECT user_id, lon, lat, {time} AS moment, LEAD(lon) OVER w AS to_lon, LEAD(lat) OVER w AS to_lat,
           LEAD({time}) OVER w AS later FROM '{file}' WINDOW w AS (PARTITION BY user_id {part} ORDER BY {time})
) WHERE {near} AND to_lon IS NOT NULL AND (lon <> to_lon OR lat <> to_lat)
"""


class Case(NamedTuple):
    """A table of trips; its role is that of its data set in ``data_sets.csv``."""

    name: str
    role: str
    file: str
    box: tuple[float, float, float, float]
    depth: int
    kind: str = "check-ins"


CASES: Final = (
    Case("gowalla-new-york", "tune", "gowalla_nyc_checkins", (-74.05, 40.65, -73.85, 40.85), 3),
    Case("gowalla-new-york", "tune", "gowalla_nyc_checkins", (-74.05, 40.65, -73.85, 40.85), 4),
    Case("gowalla-us-1000-users", "tune", "gowalla_us_1000users_checkins", (-125, 25, -66, 50), 3),
    Case("foursquare-san-francisco", "tune", "foursquare_us_checkins", (-122.55, 37.6, -122.3, 37.9), 3),
    Case(
        "foursquare-tokyo", "test", "foursquare_tokyo_sequences", (139.5, 35.55, 139.9, 35.82), 3, "sessions"
    ),
    Case(
        "foursquare-tokyo", "test", "foursquare_tokyo_sequences", (139.5, 35.55, 139.9, 35.82), 4, "sessions"
    ),
    Case("geolife-beijing", "test", "geolife_beijing_15s", (116.2, 39.8, 116.5, 40.05), 2, "positions"),
    Case("porto-taxis", "test", "porto_taxi_1000trips_od", (-8.7, 41.1, -8.52, 41.22), 2, "trips"),
    Case("porto-taxis", "test", "porto_taxi_1000trips_od", (-8.7, 41.1, -8.52, 41.22), 3, "trips"),
)


class Errors(NamedTuple):
    """Means over trials: L1 between distributions over pairs, from 0 to 2."""

    ours: float
    rival: float
    hindsight: float
    covered: float  # fraction of 95 % intervals of margins that hold


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow_errors", description=__doc__)
    parser.add_argument("data", type=Path, help="folder of the shared tables")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--page", type=Path, help="write the documentation's page here")
    given = parser.parse_args()
    rows = []
    for case in CASES:
        for unit in ("user", "trip"):
            trips = trips_of(case, given.data)
            if unit == "trip":
                trips = each_alone(trips)
            rows.append(_row(case, unit, trips, given.trials))
            print(rows[-1], flush=True)
    taken, peak = fresh_large_release()
    held = f"the process held {peak:,.0f} MiB at most."
    large = f"4,096 zones, 1,000,000 users of one trip each: {taken:.1f} s of CPU; {held}"
    print(large)
    text = _PAGE.format(trials=given.trials, table="\n".join(rows), large=large, columns=_COLUMNS)
    if given.page is not None:
        given.page.write_text(text, encoding="utf-8")


def trips_of(case: Case, folder: Path) -> mv.Points:
    """The trips of a table, with destinations."""
    file = folder / f"{case.file}.parquet"
    if case.kind in ("trips", "positions"):
        return read_trips(str(file), trip="traj_id" if case.kind == "positions" else None).as_points()
    within = case.kind == "sessions"
    near = "TRUE" if within else "later <= moment + INTERVAL 24 HOUR"
    part, order = (", session", "pos") if within else ("", "time")
    sql = CHECK_INS.format(file=file, time=order, part=part, near=near)
    with duckdb.connect() as opened:
        found = opened.execute(sql).fetchnumpy()
    return _points(found, np.asarray(found["user_id"]), case.name)


def each_alone(trips: mv.Points) -> mv.Points:
    """The same trips, each of a user of its own."""
    with duckdb.connect() as opened:
        found = opened.execute(f"SELECT lon, lat, to_lon, to_lat FROM ({trips.scan(opened)})").fetchnumpy()
    return _points(found, np.arange(found["lon"].size), trips.source)


def _points(found: Mapping[str, Any], users: npt.NDArray[Any], source: str) -> mv.Points:
    lon, lat, to_lon, to_lat = (np.asarray(found[name]) for name in ("lon", "lat", "to_lon", "to_lat"))
    return mv.Points.from_arrays(users, lon, lat, to_lon=to_lon, to_lat=to_lat, source=source)


def _row(case: Case, unit: str, trips: mv.Points, trials: int) -> str:
    zones = mv.Quadtree(mv.Region.from_bbox(*case.box), depth=case.depth)
    true = user_sums(trips, zones).sums / UNIT
    cells = [f"{case.name} ({case.role})", unit, f"{true.sum():,.0f}", f"{zones.size:,}"]
    within = np.trace(true.reshape(zones.size, zones.size)) / true.sum()
    cells += [f"{100 * within:.0f} %", f"{l1(true, np.where(true < 1, 0.0, true)):.3f}"]
    for epsilon in (1, 2):
        found = measure(true, trips, zones, epsilon, trials)
        ratio = found.ours / found.rival
        cells += [f"{found.ours:.3f}", f"{found.rival:.3f}", f"{found.hindsight:.3f}", f"{ratio:.2f}"]
        cells += [f"{100 * found.covered:.0f} %"]
    return f"| {' | '.join(cells)} |"


def measure(true: FloatArray, trips: mv.Points, zones: mv.Quadtree, epsilon: int, trials: int) -> Errors:
    """Errors of flows, and of Private-OD with both thresholds."""
    pairs = zones.size**2
    made, held, rival = [], [], []
    for seed in range(trials):
        mechanism = FlowBlocks(epsilon=epsilon, most=pairs)
        flows = mechanism.release(trips, zones, rng=seed)
        made.append(l1(true, flows.matrix().toarray().ravel()))
        held.append(coverage(flows, true.reshape(zones.size, zones.size)))
        noisy = true + np.random.default_rng(seed).laplace(0, 1 / epsilon, pairs)
        levels = (np.log(pairs), *THRESHOLDS)
        rival.append([l1(true, np.where(noisy >= level / epsilon, noisy, 0.0)) for level in levels])
    mean = np.mean(rival, axis=0)
    return Errors(float(np.mean(made)), float(mean[0]), float(mean[1:].min()), float(np.mean(held)))


def l1(true: FloatArray, found: FloatArray) -> float:
    """Between both as distributions over pairs; an estimate without any trip is wrong by 1."""
    total = found.sum()
    return 1.0 if total <= 0 else float(np.abs(true / true.sum() - found / total).sum())


def coverage(flows: FlowMap, true: FloatArray) -> float:
    """The fraction of 95 % intervals of margins that hold."""
    held = []
    for zone in range(flows.tiling.size):
        for total, exact in (
            (flows.outflow(zone), true[zone].sum()),
            (flows.inflow(zone), true[:, zone].sum()),
        ):
            low, high = total.interval()
            held.append(low <= exact <= high)
    return float(np.mean(held))


def fresh_large_release(users: int = 1_000_000, depth: int = 6) -> tuple[float, float]:
    """CPU seconds, and peak memory in MiB, of a release between ``4**depth`` zones, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_large_release, users, depth).result()


def _large_release(count: int, depth: int) -> tuple[float, float]:
    region = mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
    generator = np.random.default_rng(0)
    hubs = generator.uniform([-8.69, 41.11], [-8.53, 41.21], (30, 2))
    start = hubs[generator.choice(30, count)] + generator.normal(0, 0.006, (count, 2))
    end = start + generator.normal(0, 0.015, (count, 2))
    table = dict(zip(("lon", "lat", "to_lon", "to_lat"), (*start.T, *end.T), strict=True))
    trips = _points(table, np.arange(count), "hubs")
    began = time.process_time()
    FlowBlocks(epsilon=1).release(trips, mv.Quadtree(region, depth=depth), rng=1)
    return time.process_time() - began, peak_mb()


_COLUMNS: Final = "flows | Private-OD | hindsight | ratio | cover"

_PAGE: Final = """# Errors of flows

Generated by `python -m benchmarks.flow_errors DATA --trials {trials} --page docs/reference/flows.md`; do not edit.

L1 between the true and the estimated distribution of trips over pairs of zones (0 to 2), means over {trials} draws of
the noise, under a curator. *Flows* is `mapveil flows --trust central`; *Private-OD* adds Laplace noise of scale 1 /
epsilon to every pair and suppresses pairs below ln(pairs) / epsilon; *hindsight* is Private-OD with the best of ten
thresholds for each table, which no release could know; *ratio* is flows over Private-OD. *Cover* is the percentage of
95 % intervals of trips from and to a zone that hold. Of a user all trips count 1 together; with unit trip every trip
is taken for a user's only one. The rules were chosen on tables of the tune role. The left five columns of errors are of
epsilon 1, the right five of epsilon 2.

*Within* is the percentage of users within a zone. *Exact* is the error of exact flows whose pairs below one user are
suppressed: that of a release without noise that lists no pair of less. Where it is most of both errors, as on
gowalla-us-1000-users by user, little is left for a method to gain.

| table (role) | unit | users | zones | within | exact | {columns} | {columns} |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
{table}

{large}
"""

if __name__ == "__main__":
    main()
