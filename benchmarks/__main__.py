"""``python -m benchmarks``: run all, print the table, write bench-results/."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.record import Context, Result, as_markdown, environment, with_lines

MODULES = (
    "noise",
    "noise_shares",
    "geometry",
    "reconstruction",
    "distance",
    "methods",
    "secure_sum",
    "two_operators",
    "distributed",
    "local",
    "retrieval",
    "release",
    "projection",
    "localisation",
    "flows",
    "series",
    "spark_scaling",
    "obfuscation",
    "collector",
    "collector_active",
    "collector_reports",
    "collector_million",
    "collector_rounds",
    "collector_busy",
    "collector_operators",
)
PAGE = """# Benchmarks

Made by `make bench` ({machine}). Each line compares with a
named peer or limit measured in the same run of its benchmark: look at the ratios; the absolute figures are one
machine's, and lines that a later run of one benchmark renewed (`--page`) met another hour of it.

{table}

Peers run in an environment of their own (`requirements/peers.lock`), scripted as their documentation shows
it; the scripts are in `benchmarks/peers/`. Import times are not counted for anybody.

Where a collection runs over HTTP, its server and its devices share the cores of one machine. A phase that loses a
device lasts as long as it may: that is in the wall time, and not in the messages a second.
"""


def main() -> int:
    """Run the benchmarks named on the command line, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", choices=[*MODULES, []], help="benchmarks to run")
    parser.add_argument("--peers", help="the Python of the peers' environment")
    parser.add_argument("--flower", help="the Python of Flower's environment")
    parser.add_argument("--spark", help="the Python of JVM Spark's environment")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all runs")
    parser.add_argument(
        "--page",
        type=Path,
        help="write the documentation's page here; of some benchmarks, renew their lines of it",
    )
    given = parser.parse_args()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="mapveil-bench-") as scratch:
        context = Context(Path(scratch), given.peers, given.quick, given.flower, given.spark)
        for name in given.only or MODULES:
            print(f"{name} ...", file=sys.stderr)
            results += importlib.import_module(f"benchmarks.{name}").run(context)
    table = as_markdown(results)
    print(table)
    out = Path("bench-results")
    out.mkdir(exist_ok=True)
    record = {"environment": environment(), "results": [row._asdict() for row in results]}
    (out / "benchmarks.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    if given.page and given.only:
        page = given.page.read_text(encoding="utf-8")
        given.page.write_text(with_lines(page, results), encoding="utf-8")
    elif given.page:
        machine = ", ".join(f"{key} {value}" for key, value in environment().items())
        given.page.write_text(PAGE.format(machine=machine, table=table), encoding="utf-8")
    missed = [row.name for row in results if row.holds is False]
    for name in missed:
        print(f"missed its goal: {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
