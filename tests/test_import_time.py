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
    heavy = loaded_after("import mapveil; mapveil.mechanisms.LaplaceHistogram(epsilon=1)")
    assert heavy <= {"numpy"}


def test_import_loads_a_handful_of_modules() -> None:
    # Counted, not timed: a busy machine is slow at everything. `make bench` has the milliseconds.
    code = "import sys; before = set(sys.modules); import mapveil; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40
