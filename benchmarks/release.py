"""Whole releases and their accounts: beside DuckDB's bare group-by, and beside OpenDP, diffprivlib and PipelineDP."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

from benchmarks.record import Context, Result, in_process, line

BOX = (-74.3, 40.4, -73.7, 41.0)
PEERS = {
    "OpenDP with Polars (10 rows a user)": "peers/opendp_counts.py",
    "diffprivlib (users not bounded)": "peers/diffprivlib_counts.py",
    "PipelineDP (10 cells a user)": "peers/pipelinedp_counts.py",
}


def make_table(path: Path, rows: int, users: int) -> str:
    """Check-ins around users' homes, homes around a centre: made by DuckDB, the same every time."""
    west, south, east, north = BOX
    bell = "0.04 * sqrt(-2 * ln(1 - random())) * cos(6.2831 * random())"
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SELECT setseed(0.5)")
        connection.execute(
            f"""
            COPY (
                WITH homes AS (
                    SELECT user_id, {(west + east) / 2} + {bell} AS x, {(south + north) / 2} + {bell} AS y
                    FROM (SELECT unnest(range({users})) AS user_id)
                ),
                visits AS (
                    SELECT CAST(floor(random() * {users}) AS BIGINT) AS user_id, random() AS a, random() AS b
                    FROM range({rows})
                )
                SELECT user_id,
                       greatest({west}, least({east} - 1e-9, x + 0.05 * (a - 0.5) * (a + b))) AS lon,
                       greatest({south} + 1e-9, least({north}, y + 0.05 * (b - 0.5) * (a + b))) AS lat
                FROM visits JOIN homes USING (user_id)
            ) TO '{path}' (FORMAT parquet)
            """
        )
    return str(path)


def run(context: Context) -> list[Result]:
    """Measure ten million check-ins, then one million beside the peers."""
    return _large(context) + (_peers(context) if context.peers else [])


def _large(context: Context) -> list[Result]:
    rows, users = (1_000_000, 20_000) if context.quick else (10_000_000, 200_000)
    path = make_table(context.folder / "large.parquet", rows, users)
    bare = min(
        in_process(sys.executable, "duckdb_group_by.py", path, 1024, *BOX)["seconds"] for _ in range(3)
    )
    results = []
    for method in ("laplace", "multiscale"):
        runs = [in_process(sys.executable, "mapveil_release.py", path, 1024, method, *BOX) for _ in range(3)]
        seconds, peak = min(run["seconds"] for run in runs), max(run["peak_mb"] for run in runs)
        name = f"{method}, {rows:,} check-ins of {users:,} users to 1024 x 1024"
        results += [
            line(name, seconds, "s", "DuckDB's group-by alone", bare, ">= 0.5 x", seconds <= 2 * bare),
            line(f"{name}: peak memory", peak, "MB", "the limit", 2048, ">= 1 x", peak <= 2048),
        ]
    return results + [_accounting(context, path, spends) for spends in (0, 20_000)]


def _accounting(context: Context, path: str, spends: int) -> Result:
    """The cost that an account adds to the default release, in a ledger of so many spends."""
    script, ledger = "mapveil_accounting.py", context.folder / "ledger.sqlite"
    runs = [in_process(sys.executable, script, path, ledger, spends, *BOX) for _ in range(5)]
    accounted, seconds = min(run["accounted"] for run in runs), min(run["seconds"] for run in runs)
    name = f"the account of the default release, in a ledger of {spends:,} spends"
    goal = (">= 20 x", 20 * accounted <= seconds) if not spends else ("", None)
    return line(name, accounted, "s", "the whole release", seconds, *goal)


def _peers(context: Context) -> list[Result]:
    assert context.peers
    rows, users = (100_000, 10_000) if context.quick else (1_000_000, 100_000)
    path = make_table(context.folder / "million.parquet", rows, users)
    results = []
    for side, goal in ((256, 3), (1024, 20)):
        ours = min(
            in_process(sys.executable, "mapveil_release.py", path, side, "laplace", *BOX)["seconds"]
            for _ in range(3)
        )
        theirs = {}
        for name, script in PEERS.items():
            try:
                theirs[name] = in_process(context.peers, script, path, side, *BOX)["seconds"]
            except RuntimeError as error:
                print(f"{name} did not run: {error}", file=sys.stderr)
        if not theirs:
            continue
        fastest = min(theirs.values())
        for name, seconds in theirs.items():
            decides = seconds == fastest
            results.append(
                line(
                    f"laplace, {rows:,} points of {users:,} users, {side} x {side}",
                    ours,
                    "s",
                    name,
                    seconds,
                    f">= {goal} x (fastest peer)" if decides else "",
                    seconds >= goal * ours if decides else None,
                )
            )
    return results
