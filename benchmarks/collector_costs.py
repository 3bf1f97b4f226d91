"""Costs of a collector, from a thousand devices to a hundred million: ``python -m benchmarks.collector_costs``.

Writes a page. Its constants are lines of the table that ``make bench`` writes, and the bytes that rows take in a store,
which are measured here. Everything else is a product of them, and the page says so.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import math
import re
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Column
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from benchmarks.collector_rounds import GOAL_MINUTES
from mapveil.collector.store import schema

PAGE: Final = Path("docs/reference/collector-costs.md")
BENCHMARKS: Final = Path("docs/reference/benchmarks.md")
DEVICES: Final = tuple(10**power for power in range(3, 9))
ROUNDS: Final = 2  # of the measured collection of secure sums
_ROWS: Final = 20_000
_REPORT: Final = 96  # bytes of a body whose row is measured; a report of the default local method takes fewer

_MALICIOUS: Final = "5% lost, a malicious server"
_CURIOUS: Final = "5% lost, an honest but curious server"
_SUMS: Final = f"multiscale in {ROUNDS} rounds, 10,000 devices over HTTP, shards of 1,000, {_CURIOUS}"
_ACTIVE: Final = f"multiscale in {ROUNDS} rounds, 1,000 devices over HTTP, shards of 1,000, {_MALICIOUS}"
_ROUND: Final = f"a round of secure sums, 10,000 devices over HTTP, shards of 1,000, l = 256, {_CURIOUS}"
_ACTIVE_ROUND: Final = (
    f"a round of secure sums, 4,000 devices over HTTP, shards of 1,000, l = 256, {_MALICIOUS}"
)
_OPERATORS: Final = "two operators, 10,000 devices over HTTP, multiscale in two rounds, 5% never come"
_LOCAL: Final = "local reports, 1,000,000 devices: durable in PostgreSQL"
LINES: Final = {
    "report_rate": (_LOCAL, "k/s"),
    "report_p99": (f"{_LOCAL}, 99th percentile", "ms"),
    "sum_cpu": (f"{_SUMS}: of these, the server", "s"),
    "sum_up": (f"{_SUMS}: a device sends", "kB"),
    "sum_down": (f"{_SUMS}: a device receives", "kB"),
    "active_cpu": (f"{_ACTIVE}: of these, the server", "s"),
    "active_up": (f"{_ACTIVE}: a device sends", "kB"),
    "active_down": (f"{_ACTIVE}: a device receives", "kB"),
    "round_cpu": (f"{_ROUND}: processor time of the collector, of a device", "ms"),
    "round_database": (f"{_ROUND}: processor time of PostgreSQL, of a device", "ms"),
    "round_memory": (f"{_ROUND}: peak memory of the collector, of every shard but the first", "MB"),
    "visit_cpu": (
        f"{_ROUND}: a visit of a device that waits, of the collector and PostgreSQL with their idle loops",
        "ms",
    ),
    "active_round_cpu": (f"{_ACTIVE_ROUND}: processor time of the collector, of a device", "ms"),
    "active_round_database": (f"{_ACTIVE_ROUND}: processor time of PostgreSQL, of a device", "ms"),
    "active_round_memory": (
        f"{_ACTIVE_ROUND}: peak memory of the collector, of every shard but the first",
        "MB",
    ),
    "operator_cpu": (f"{_OPERATORS}: processor seconds of the leader, of a report", "ms"),
    "helper_cpu": (f"{_OPERATORS}: processor seconds of the helper, of a report", "ms"),
    "operator_up": ("two operators, path of depth 10: upload", "kB"),
}
"""Lines of the benchmarks' table, each with the unit that it must have."""


class Prices(NamedTuple):
    """Assumed prices, in any currency: round figures, for want of a bill that fits everybody."""

    core_hour: float = 0.04
    gb_month: float = 0.10  # of the store's disk
    gb_out: float = 0.09  # that leaves the machine


class Need(NamedTuple):
    """Needs of one collection of a number of devices; of two operators, those of the leader's machines."""

    trust: str
    devices: int
    measured: frozenset[str]  # columns that a benchmark with as many devices measured
    core_hours: float
    gb_in: float
    gb_out: float
    store_gb: float

    def cost(self, prices: Prices) -> float:
        """Its cost, the store kept for a month."""
        return (
            self.core_hours * prices.core_hour + self.store_gb * prices.gb_month + self.gb_out * prices.gb_out
        )


def constants(page: str) -> dict[str, float]:
    """Figures of the lines of the benchmarks' page; a line that is missing or of another unit is a KeyError."""
    rows = re.findall(r"^\| (.*?) \| ([\d.e+-]+) (\S+) \|", page, re.MULTILINE)
    found = {(name, unit): float(figure) for name, figure, unit in rows}
    return {name: found[line] for name, line in LINES.items()}


@functools.cache
def row_bytes(table: str, **filled: int) -> float:
    """Bytes that a row takes in an SQLite store, with its indices; columns of bytes hold as many as are given."""
    made = schema.METADATA.tables[table]
    columns = [each for each in made.columns if not each.nullable]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.sqlite")
        with sqlite3.connect(path) as file:
            file.execute("CREATE TABLE empty (x)")
            file.execute(str(CreateTable(made).compile(dialect=sqlite.dialect())))
            for index in made.indexes:
                names = ", ".join(each.name for each in index.columns)
                file.execute(f"CREATE INDEX {index.name} ON {table} ({names})")
            file.commit()
            before = path.stat().st_size
            places = ", ".join("?" * len(columns))
            names = ", ".join(each.name for each in columns)
            rows = (tuple(_value(each, number, filled) for each in columns) for number in range(_ROWS))
            file.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)
        file.close()
        return (path.stat().st_size - before) / _ROWS


def _value(column: Column[object], number: int, filled: dict[str, int]) -> object:
    """A value of full length for a column of the row of a number; keys of rows differ."""
    kind = column.type.__class__.__name__
    if kind == "LargeBinary":
        length = filled.get(column.name, getattr(column.type, "length", None) or 32)
        return hashlib.shake_128(f"{column.name} {number}".encode()).digest(length)
    if kind in ("Integer", "Boolean"):
        return number + 1 if column.name in ("id", "device", "client") else 1
    return "2026-03-01T12:00:00.000000+00:00"[: getattr(column.type, "length", None) or 32]


def needs(found: dict[str, float], devices: int) -> list[Need]:
    """One collection of so many devices, by each kind of trust."""
    enrolled = row_bytes("devices")
    report = enrolled + row_bytes("reports", body=_REPORT)
    member = enrolled + row_bytes("members") + ROUNDS * row_bytes("assignments")
    # The benchmark's senders ran on the same two cores, so that a core of a server alone takes more.
    report_cpu = 2 / (1e3 * found["report_rate"])
    sum_cpu, active_cpu = found["sum_cpu"] / 10_000, found["active_cpu"] / 1_000
    operator_cpu = 1e-3 * found["operator_cpu"]
    gb = devices * 1e-6  # of kilobytes
    sums, nothing = frozenset({"core-hours", "GB in", "GB out"}), frozenset[str]()
    return [
        Need(
            *("local reports", devices),
            frozenset({"time"}) if devices == 1_000_000 else nothing,
            devices * report_cpu / 3600,
            *(gb, gb, devices * report * 1e-9),
        ),
        Need(
            *("secure sums, malicious server", devices),
            sums if devices == 1_000 else nothing,
            devices * active_cpu / 3600,
            *(gb * found["active_up"], gb * found["active_down"], devices * member * 1e-9),
        ),
        Need(
            *("secure sums, honest but curious server", devices),
            sums if devices == 10_000 else nothing,
            devices * sum_cpu / 3600,
            *(gb * found["sum_up"], gb * found["sum_down"], devices * member * 1e-9),
        ),
        Need(
            *("two operators, the leader", devices, nothing, devices * operator_cpu / 3600),
            *(gb * found["operator_up"], gb, devices * (report + 1e3 * found["operator_up"]) * 1e-9),
        ),
    ]


def page(found: dict[str, float], prices: Prices) -> str:
    """The page of the documentation."""
    rows = [need for devices in DEVICES for need in needs(found, devices)]
    table = [
        "| devices | trust | core-hours | time on 2 cores | cores for one hour | GB in | GB out | GB stored | cost |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {each.devices:,} | {each.trust} | {_marked(each, 'core-hours', _two(each.core_hours))} "
            f"| {_marked(each, 'time', _time(each.core_hours / 2))} | {_two(max(1, math.ceil(each.core_hours)))} "
            f"| {_marked(each, 'GB in', _two(each.gb_in))} | {_marked(each, 'GB out', _two(each.gb_out))} "
            f"| {_two(each.store_gb)} | {_two(each.cost(prices))} |"
            for each in rows
        ),
    ]
    used = [
        "| constant | figure | line of the benchmarks |",
        "|---|---|---|",
        *(f"| {name} | {found[name]:g} {unit} | {line} |" for name, (line, unit) in LINES.items()),
    ]
    alone = [
        "| a million devices, one round, against | minutes of the collector | of PostgreSQL | memory of each intake |",
        "|---|---|---|---|",
        *(
            f"| {against} | {found[f'{kind}_cpu'] * 1e3 / 60:.0f} | {found[f'{kind}_database'] * 1e3 / 60:.0f} "
            f"| {_two(found[f'{kind}_memory'])} GB |"  # of a thousand shards
            for kind, against in (
                ("active_round", "a malicious server (the default)"),
                ("round", "an honest but curious server"),
            )
        ),
    ]
    both = (found["round_cpu"] + found["round_database"]) * 1e3 / 60  # minutes of a million devices
    return _PAGE.format(
        table="\n".join(table),
        constants="\n".join(used),
        rounds=ROUNDS,
        alone="\n".join(alone),
        p99=found["report_p99"],
        helper=found["helper_cpu"] / found["operator_cpu"],
        report=_REPORT,
        goal=GOAL_MINUTES,
        met="met" if both <= GOAL_MINUTES else "missed",
        visit=found["visit_cpu"],
        busy=found["visit_cpu"],  # seconds of each of 1,000
        **prices._asdict(),
    )


_PAGE: Final = """# Sizes and costs of a collector

Generated by `python -m benchmarks.collector_costs` from [the benchmarks](benchmarks.md); do not edit.

**Bold** figures were measured as they stand, on one machine of two cores. Every other figure is computed: that of one
device, measured with 1,000,000 devices for local reports, 1,000 for secure sums against a malicious server (the
default) and 10,000 for the others, times the number of devices; the time on two cores is half of the core-hours. Ten
million devices and more were never run, nor several machines: measure your own before you buy for them.

Secure sums are in shards of 1,000 devices (the option `shard_size`). By default a shard has 10,000: less noise, but
more bytes for a device to receive against a malicious server. A device sends more where there are more devices, since
their map has more blocks, so GB in of the larger rows is rather too small.
[A forecast](../how-to/million-phones.md#ask-for-a-forecast) has both figures of your collection.

{table}

Cost is computed, in the currency of the prices, which are assumed: {core_hour:g} for a core-hour, {gb_month:g} for a
gigabyte of disk and month, {gb_out:g} for a gigabyte that leaves the machines. Replace them: `python -m
benchmarks.collector_costs --core-hour 0.05 --page -`. Memory is not in the cost: rent machines that have
[what a round keeps](#a-round-of-secure-sums-alone).

## What is in it

{constants}

- **Local reports**: two cores divided by the reports that they made durable a second, senders included: an
  upper limit of the server's part. That a device sends and receives a kilobyte, requests and headers together, is
  assumed. The 99th percentile of the wait was {p99:g} ms.
- **Secure sums**: processor seconds of the server of the {rounds} rounds of one collection, divided by devices, and
  their bytes, of the default method. Enrolment is in them, and so are the minutes for which a phase waited for those
  who were lost, which do not grow with the devices: an upper limit for many, of which the table of a round alone is
  the lower one. Another method, map or number of devices makes vectors of other lengths or more rounds. A simulated
  fleet prints what its devices sent and received.
- **Two operators**: processor seconds of the leader in a collection of two rounds over HTTP, enrolment included,
  divided by its reports; the helper takes {helper:.0%} of them. The upload is that of a raster of 1,024 by 1,024
  sites, more than a collection may have; that a device receives a kilobyte is assumed. Bytes between the two are not
  counted.
- **Store**: rows of a device and of one collection, each measured in SQLite with bodies of {report} bytes, times their
  number. Messages of secure sums are deleted once their round is over: while it runs they take what came in.

## A round of secure sums alone

{alone}

Its messages were made beforehand, and all came at once, to one process with PostgreSQL below it: 4,000 devices for the
first row, 10,000 for the second, from which all figures are computed. The minutes are those of one core. The project's
goal for the second row, which the benchmark checks, is {goal:g} minutes of both together: it is {met}. An
intake, a process that answers devices, keeps what it needs of every shard of 1,000 devices until the round is over. A
worker holds one shard at a time.

## What is not in it

Enrolment in a burst, maps and exports (a worker's minutes, whatever the number of devices), backups, the proxy,
and phases that wait for devices: with phones, hours by the clock whatever the cores do. Devices that wait look again
and again, all together as often as `--device-requests` says. Such a visit takes {visit:.2g} ms of a core (measured by
visits all at once while a phase waited for those who were lost): at 1,000 a second {busy:.0%} of a core for as long
as they wait.
"""


def _marked(need: Need, column: str, figure: str) -> str:
    """The figure, bold where it was measured as it stands."""
    return f"**{figure}**" if column in need.measured else figure


def _time(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 120:
        return f"{_two(seconds)} s"
    return f"{_two(seconds / 60)} min" if seconds < 7200 else f"{_two(hours)} h"


def _two(figure: float) -> str:
    """Two significant digits, written out."""
    return f"{float(f'{figure:.2g}'):,.7f}".rstrip("0").rstrip(".")


def price(text: str) -> float:
    """Read a price."""
    given = float(text)
    if not (math.isfinite(given) and given >= 0):
        raise argparse.ArgumentTypeError(f"a price must be a finite number of at least 0, got {text}")
    return given


def main() -> int:
    """Write the page, or show it with ``--page -``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collector_costs", description=__doc__)
    parser.add_argument("--page", default=str(PAGE), help="where it is written; - shows it")
    for name, default in Prices()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=price, default=default)
    given = parser.parse_args()
    prices = Prices(given.core_hour, given.gb_month, given.gb_out)
    text = page(constants(BENCHMARKS.read_text(encoding="utf-8")), prices)
    if given.page == "-":
        print(text)
    else:
        try:
            Path(given.page).write_text(text, encoding="utf-8")
        except OSError as error:
            parser.error(f"--page {given.page} cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
