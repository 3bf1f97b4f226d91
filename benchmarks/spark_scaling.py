"""Sums on Spark of the JVM: two executors beside one, more rows beside fewer, and a user with a third of the rows.

Executors are processes of one machine, each kept to a core of its own: this shows that partitions are worked on side by
side, and nothing of a network.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import duckdb

from benchmarks.jvm_spark import spark_server
from benchmarks.record import Context, Result, in_process, line
from benchmarks.release import BOX, make_table

_FILES = 32
_REPEATS = 5
_SKEW = 0.3  # fraction of the rows that one user has


def run(context: Context) -> list[Result]:
    """Measure sums of up to forty million rows in 32 files."""
    if context.spark is None:
        return []
    rows = 100_000 if context.quick else 10_000_000
    base = make_table(context.folder / "base.parquet", rows, rows // 50)
    tables = {times: _files(context.folder / f"times-{times}", base, times) for times in (1, 2, 4)}
    skewed = _files(context.folder / "skewed", base, 1, _SKEW)
    one, two = "local-cluster[1,1,1024]", "local-cluster[2,1,1024]"
    with spark_server(context.spark, one) as single, spark_server(context.spark, two) as double:
        pairs = [[_seconds(url, tables[4]) for url in (single, double)] for _ in range(_REPEATS)]
        by_rows = {
            times: statistics.median(_seconds(double, tables[times]) for _ in range(3)) for times in tables
        }
        with_skew = statistics.median(_seconds(double, skewed) for _ in range(3))
    alone, together = (statistics.median(each) for each in zip(*pairs, strict=True))
    speed_up = statistics.median(first / second for first, second in pairs)
    marginal = (by_rows[4] - by_rows[2]) / (2 * (by_rows[2] - by_rows[1]))
    return [
        line(
            f"sums of {4 * rows:,} rows in {_FILES} files on Spark, two executors",
            *(together, "s", "one executor", alone, ">= 1.7 x (median of pairs)", speed_up >= 1.7),
        ),
        line(
            f"sums on Spark, a row of the last {2 * rows:,} of {4 * rows:,}",
            *((by_rows[4] - by_rows[2]) / (2 * rows) * 1e6, "us"),
            *(f"of the last {rows:,} of {2 * rows:,}", (by_rows[2] - by_rows[1]) / rows * 1e6),
            *("within 15 %", abs(marginal - 1) <= 0.15),
        ),
        line(
            f"sums on Spark of {rows:,} rows, {_SKEW:.0%} of them one user's",
            *(
                with_skew,
                "s",
                "the same rows without such a user",
                by_rows[1],
                ">= 0.5 x",
                with_skew <= 2 * by_rows[1],
            ),
        ),
    ]


def _seconds(url: str, path: str) -> float:
    return float(in_process(sys.executable, "spark_sums.py", url, path, *BOX)["seconds"])


def _files(folder: Path, base: str, times: int, skew: float = 0.0) -> str:
    """Parquet files with the rows of a table several times over, each time as other users."""
    folder.mkdir()
    with duckdb.connect() as connection:
        users = connection.execute(f"SELECT max(user_id) + 1 FROM '{base}'").fetchone()
        assert users is not None
        connection.execute("SELECT setseed(0.5); SET threads = 1")
        for file in range(_FILES):
            connection.execute(
                f"""
                COPY (
                    SELECT CASE WHEN random() < {skew} THEN -1 ELSE user_id + {users[0]} * again END AS user_id,
                           lon, lat
                    FROM read_parquet('{base}', file_row_number = true), range({times}) AS copies(again)
                    WHERE file_row_number % {_FILES} = {file}
                ) TO '{folder}/{file:02}.parquet' (FORMAT parquet)
                """
            )
    return str(folder)
