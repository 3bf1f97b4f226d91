"""What a benchmark reports, and how it is shown."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parent


class Result(NamedTuple):
    """One line: what was measured, beside what, and the goal for their ratio."""

    name: str
    figure: float
    unit: str
    peer: str
    peer_figure: float
    ratio: float
    goal: str
    holds: bool | None  # None: reported only


def line(
    name: str,
    figure: float,
    unit: str,
    peer: str,
    peer_figure: float,
    goal: str = "",
    holds: bool | None = None,
) -> Result:
    """A line whose ratio says how many times better the figure is than the peer's."""
    ratio = figure / peer_figure if unit.endswith("/s") else peer_figure / figure
    return Result(name, figure, unit, peer, peer_figure, ratio, goal, holds)


class Context(NamedTuple):
    """Where a benchmark runs."""

    folder: Path  # scratch
    peers: str | None  # the Python of the peers' environment
    quick: bool
    flower: str | None = None  # the Python of Flower's environment
    spark: str | None = None  # the Python of JVM Spark's environment


def best_of(repeats: int, call: Callable[[], Any]) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def pin(process: int, core: int) -> None:
    """Keep a process, and the threads and processes that it starts from now on, on one core."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def in_process(python: str, script: str, *arguments: object) -> dict[str, Any]:
    """Run a script of this folder in a process of its own; it prints one JSON line."""
    done = subprocess.run(
        [python, str(FOLDER / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": _python_path()},
    )
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _python_path() -> str:
    """Where a script of this folder finds ``benchmarks.record``."""
    return os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")]))


def peak_mb(process: int | str = "self") -> float:
    """Peak resident memory of one process; ``ru_maxrss`` would count its parent's from before the start as well."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def environment() -> dict[str, str]:
    """What a reader of the figures must know of the machine."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "numpy": np.__version__,
        "openblas kernel": os.environ.get("OPENBLAS_CORETYPE", "chosen by OpenBLAS"),
        "platform": sys.platform,
    }


def as_markdown(results: list[Result]) -> str:
    """The table of the documentation."""
    lines = [
        "| what | mapveil | beside | its figure | times better | goal | holds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results:
        verdict = "" if row.holds is None else "yes" if row.holds else "**no**"
        lines.append(
            f"| {row.name} | {row.figure:.3g} {row.unit} | {row.peer} | {row.peer_figure:.3g} {row.unit} "
            f"| {row.ratio:.2f} | {row.goal} | {verdict} |"
        )
    return "\n".join(lines)


def with_lines(page: str, results: list[Result]) -> str:
    """A page whose table has these lines: in the place of those of the same names, or else at its end."""
    lines = page.splitlines()
    for row, new in zip(results, as_markdown(results).splitlines()[2:], strict=True):
        same = [at for at, line in enumerate(lines) if _named(line) == (row.name, row.peer)]
        if same:
            lines[same[0]] = new
        else:
            end = max(at for at, line in enumerate(lines) if line.startswith("|"))
            lines.insert(end + 1, new)
    return "\n".join(lines) + "\n"


def _named(line: str) -> tuple[str, str] | None:
    cells = [cell.strip() for cell in line.split("|")]
    return (cells[1], cells[3]) if len(cells) > 3 else None
