"""Simulated collections: every user of the paper's image through all rounds, and one release of each method."""

from __future__ import annotations

import sys

from benchmarks.record import Context, Result, in_process, line
from mapveil.mechanisms.methods import METHODS

EVERYBODY = 54_565_579
"""Users in the image of Bagdasaryan et al. (2022): each unit of its brightness."""

USERS = 100_000


def run(context: Context) -> list[Result]:
    """Measure seconds and peak memory, devices and server in one process, with ideal sums."""
    everybody, users = (200_000, 20_000) if context.quick else (EVERYBODY, USERS)
    results = []
    for method, most in (("adaptive", 60.0), ("multiscale", 25.0)):
        found = in_process(sys.executable, "collection.py", method, everybody)
        seconds, peak = found["seconds"], found["peak_mb"]
        name = f"{method}, all {everybody:,} users of the image in {found['rounds']} rounds"
        results += [
            line(
                name,
                seconds,
                "s",
                "the limit",
                most,
                ">= 1 x",
                seconds <= most,
            ),
            line(
                f"{name}: peak memory",
                peak,
                "MB",
                "the limit",
                4096,
                ">= 1 x",
                peak <= 4096,
            ),
        ]
    seconds = {
        method.name: min(
            in_process(sys.executable, "collection.py", method.name, users)["seconds"] for _ in range(3)
        )
        for method in METHODS
        if method.trust == "distributed" and method.name != "proportions"  # asks for labels
    }
    return results + [
        line(
            f"{name}, a collection from {users:,} users, 1024 x 1024",
            taken,
            "s",
            "uniform",
            seconds["uniform"],
        )
        for name, taken in seconds.items()
        if name != "uniform"
    ]
