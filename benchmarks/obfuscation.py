"""Privatized measurements: a million rows by every privatizer, training of the network, one row on a phone."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.record import Context, Result, best_of, line
from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.export.phone import read_phone_privatizer
from mapveil.obfuscation.export.phone_export import export_privatizer
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS, find_privatizer

ROWS = 1_000_000
PILOT = 300_000
USERS = 9
FEATURES = 17  # of the paper's first data set
OPTIONS: dict[str, dict[str, Any]] = {
    "gaussian-noise": {"sigma": 0.5},
    "local-gaussian": {"epsilon": 10},
    "truncated-laplacian": {"epsilon": 10},
}
ON_DEVICE = ("gaussian-noise", "local-gaussian", "truncated-laplacian")  # JSON, the others ONNX


def run(context: Context) -> list[Result]:
    """Measure every privatizer of the table, and the training of ``gap``."""
    rows = ROWS // 20 if context.quick else ROWS
    table, pilot = made_up(rows), made_up(2_000 if context.quick else 20_000)
    results = []
    for row in PRIVATIZERS:
        options = dict(OPTIONS.get(row.name, {}))
        if row.name == "gap":
            options["steps"] = 50  # what it learnt does not change how fast it privatizes
        fitted = row.make(options).fit(pilot, rng=1)
        seconds = best_of(2, functools.partial(fitted.privatize, table.rows))
        results.append(
            line(
                f"{rows:,} rows of {FEATURES} features privatized, {row.name}",
                seconds,
                "s",
                "the limit",
                10.0,
                "<= 10 s",
                seconds <= 10,
            )
        )
        path = context.folder / f"{row.name}.{'json' if row.name in ON_DEVICE else 'onnx'}"
        export_privatizer(fitted, path)
        phone = read_phone_privatizer(path)
        results.append(
            line(
                f"one row on a phone, {row.name} ({path.stat().st_size / 1e3:.0f} kB)",
                1e3 * per_call(functools.partial(phone.privatize, table.rows[0])),
                "ms",
                "the limit",
                1.0,
                "<= 1 ms",
            )
        )
    results = [each._replace(holds=each.figure <= each.peer_figure) for each in results]
    return [*results, training(context)]


def training(context: Context) -> Result:
    """Fit ``gap`` as it is by default."""
    pilot = made_up(PILOT // 100 if context.quick else PILOT)
    privatizer = find_privatizer("gap").make({"steps": 50} if context.quick else {})
    start = time.perf_counter()
    privatizer.fit(pilot, rng=1)
    seconds = time.perf_counter() - start
    return line(
        f"gap trained on {len(pilot):,} rows", seconds, "s", "the limit", 600.0, "<= 600 s", seconds <= 600
    )


def made_up(rows: int) -> Measurements:
    """Users around their homes, with features that follow place and user."""
    rng = np.random.default_rng(1)
    users = rng.integers(USERS, size=rows)
    place = rng.normal(size=(USERS, 2))[users] * 0.01 + rng.normal(size=(rows, 2)) * 0.004
    rss = np.clip(-60 - 2000 * np.hypot(*place.T) + 4 * rng.normal(size=rows), -120, -20)
    further = place @ rng.normal(size=(2, FEATURES - 3)) * 50 + rng.normal(size=(rows, FEATURES - 3))
    names = ("lat", "lon", "rss_dbm", *(f"x{at}" for at in range(FEATURES - 3)))
    return Measurements(
        np.column_stack([place + np.array([35.5, 24.0]), rss, further]),
        names,
        users,
        tuple(f"user{at}" for at in range(USERS)),
        np.arange(rows),
        np.arange(rows),
    )


def per_call(call: Callable[[], object]) -> float:
    """Seconds of one call, the best of five hundreds."""
    call()
    return best_of(5, lambda: [call() for _ in range(100)]) / 100
