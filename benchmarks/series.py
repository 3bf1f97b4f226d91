"""A year of weekly maps of 512 x 512 cells from ten million rows: time and memory of the whole release."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.record import Context, Result, in_process, line, peak_mb

ROWS = 10_000_000
WEEKS = 52
GOAL_S = 60.0
GOAL_MB = 2048.0
_PLACES = 40
_BOX = (-74.03, 40.69, -73.90, 40.83)


def run(context: Context) -> list[Result]:
    """Measure a release in a process of its own."""
    rows, depth = (100_000, 6) if context.quick else (ROWS, 9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.parquet"
        write_visits(path, rows)
        found = in_process(sys.executable, "series.py", path, depth)
    name = f"series of {WEEKS} windows, {2**depth} x {2**depth} cells, {rows:,} rows"
    seconds, peak = found["seconds"], found["peak_mb"]
    return [
        line(name, seconds, "s", "the limit", GOAL_S, ">= 1 x", seconds <= GOAL_S),
        line(f"{name}: peak memory", peak, "MB", "the limit", GOAL_MB, ">= 1 x", peak <= GOAL_MB),
    ]


def write_visits(path: Path, rows: int) -> None:
    """Visits of a tenth as many users to places of a city, on days of a year."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(1)
    place, width = rng.integers(0, _PLACES, rows), rng.gamma(2, 0.004, _PLACES)
    west, south, east, north = _BOX
    lon = rng.uniform(west + 0.03, east - 0.03, _PLACES)[place] + width[place] * rng.normal(size=rows)
    lat = rng.uniform(south + 0.02, north - 0.02, _PLACES)[place] + width[place] * rng.normal(size=rows)
    day = np.datetime64("2026-01-05") + rng.integers(0, 7 * WEEKS, rows)
    columns = {"user": rng.integers(0, max(rows // 10, 1), rows), "lon": lon, "lat": lat, "time": day}
    parquet.write_table(pa.table(columns), path)


def _released(path: str, depth: int) -> None:
    import mapveil as mv

    region = mv.Region.from_bbox(*_BOX)
    weeks = mv.Windows(every="1w", start="2026-01-05", until="2027-01-04")
    start = time.perf_counter()
    points, tiling = mv.read_points(path), mv.Quadtree(region, depth=depth)
    mv.release_series(points, weeks, tiling, epsilon=2, account=None)
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    _released(sys.argv[1], int(sys.argv[2]))
