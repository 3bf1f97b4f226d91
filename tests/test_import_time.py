"""``import mapveil`` stays cheap, and heavy libraries load only when they are used."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("numpy", "scipy", "duckdb", "pyarrow", "pyproj", "shapely", "matplotlib", "rasterio", "pandas", "h3")


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}; import sys, json; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_nothing_heavy() -> None:
    assert loaded_after("import mapveil") == set()


def test_the_command_line_starts_without_heavy_libraries() -> None:
    assert loaded_after("import mapveil.cli.app") == set()


def test_a_mechanism_loads_no_reader_and_no_plotter() -> None:
    heavy = loaded_after("import mapveil; mapveil.central.LaplaceHistogram(epsilon=1)")
    assert heavy <= {"numpy"}


def test_import_takes_about_a_tenth_of_a_second() -> None:
    # Against an empty interpreter in the same run, the best of five, so that load cancels out.
    code = "import time; t = time.perf_counter(); import mapveil; print(time.perf_counter() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.1
