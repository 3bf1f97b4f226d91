"""Commands that choose defaults run where no data file of the role test can be read, by whatever means."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from benchmarks.tuning_sandbox import can_confine, confine_to_tuning_data, tuning_files
from mapveil_client.errors import InputError

ROOT: Final = Path(__file__).parents[2]
DOOR: Final = {"tuning_set", "tuning_city"}
SYNTHETIC: Final = {"open_set", "synthetic_sets", "synthetic_table", "synthetic_raster"}
"""Other names of the synthetic cities of the role test, which are no files."""

ENTER: Final = "confine_to_tuning_data(sys.argv[1:])"


def names_in(source: str) -> set[str]:
    """Every name, attribute and imported name of a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {*(node.module or "").split("."), *(each.name for each in node.names)}
    return found


TUNING: Final = [
    path
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if path.name != "data_sets.py" and ("constants" in path.name or names_in(path.read_text("utf-8")) & DOOR)
]
"""Code that chooses defaults, or measures what hangs on them."""

READ: Final = {
    "a path joined by hand": "np.load('{folder}/' + 'population_somewhere.npz')['values']",
    "the folder listed": "[path.read_bytes() for path in Path('{folder}').glob('pop*')][0]",
    "the environment": "open(os.environ['DATA'] + '/population_somewhere.npz', 'rb').read()",
    "a system call": "os.read(os.open('{folder}/population_somewhere.npz', os.O_RDONLY), 9)",
    "another process": "subprocess.run(['cat', '{folder}/population_somewhere.npz'], check=True, stdout=-3)",
    "a shell": "subprocess.run('cat {folder}/population_somewhere.npz', shell=True, check=True, stdout=-3)",
    "a fresh interpreter": (
        "subprocess.run([sys.executable, '-c', \"open('{folder}/population_somewhere.npz')\"], check=True)"
    ),
    "a module by its name": "importlib.import_module('nump' + 'y').load('{folder}/population_somewhere.npz')",
    "DuckDB": "duckdb.sql(\"FROM '{folder}/foursquare_tokyo_sequences.parquet'\").fetchall()",
    "Arrow": "pyarrow.parquet.read_table('{folder}/foursquare_tokyo_sequences.parquet')",
    "mapveil": "mv.read_counts('{folder}/population_somewhere.npz')",
    "another thread": "ThreadPoolExecutor(1).submit(np.load, '{folder}/population_somewhere.npz').result()",
    "a copy": "shutil.copyfile('{folder}/population_somewhere.npz', tempfile.mktemp())",
    "a hard link": (
        "os.link('{folder}/population_somewhere.npz', tempfile.gettempdir() + '/x'),"
        "open(tempfile.gettempdir() + '/x', 'rb').read()"
    ),
    "a symbolic link": (
        "os.symlink('{folder}/population_somewhere.npz', tempfile.gettempdir() + '/y'),"
        "open(tempfile.gettempdir() + '/y', 'rb').read()"
    ),
    "the file system of a process": "open('/proc/self/root{folder}/population_somewhere.npz', 'rb').read()",
    "the way out of the code": "open('{way_out}/population_somewhere.npz', 'rb').read()",
    "another name": (
        "os.replace('{folder}/population_somewhere.npz', '{folder}/manhattan_luminosity_1024.npz'),"
        "open('{folder}/manhattan_luminosity_1024.npz', 'rb').read()"
    ),
}
SCRIPT: Final = """
import importlib, json, os, shutil, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import duckdb, numpy as np, pyarrow.parquet
import mapveil as mv
from benchmarks.data_sets import tuning_set
from benchmarks.tuning_sandbox import confine_to_tuning_data
if sys.argv[1] != "open":
    confine_to_tuning_data(sys.argv[1:])
for name in json.loads(os.environ["TUNING"]):
    importlib.import_module(name)
found = {}
for name, source in json.loads(os.environ["READ"]).items():
    try:
        eval(source)
        found[name] = "read"
    except Exception as error:
        found[name] = "refused"
found["tuning data"] = int(tuning_set("dpbench-gowalla", Path(os.environ["DATA"])).values.sum())
print(json.dumps(found))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "dpbench_gowalla_256.npz", values=np.ones((4, 4)))
    np.savez(tmp_path / "population_somewhere.npz", values=np.ones((4, 4)))
    pyarrow.parquet.write_table(
        pyarrow.table({"user_id": [1], "lon": [139.7], "lat": [35.7]}),
        tmp_path / "foursquare_tokyo_sequences.parquet",
    )
    return tmp_path


def attempts(folder: Path, argument: str) -> dict[str, object]:
    """The end of every attempt in a process of its own."""
    way_out = os.path.relpath(folder, ROOT / "benchmarks")
    read = {
        name: source.format(folder=folder, way_out=ROOT / "benchmarks" / way_out)
        for name, source in READ.items()
    }
    modules = [f"benchmarks.{path.stem}" for path in TUNING]
    given = {"READ": json.dumps(read), "DATA": str(folder), "TUNING": json.dumps(modules)}
    (folder / "temporary").mkdir()
    given["TMPDIR"] = str(folder / "temporary")
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, argument],
        env={**os.environ, **given, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.skipif(not can_confine(), reason="this system has no Landlock")
def test_no_way_to_test_data_is_open_and_tuning_data_are_read(folder: Path) -> None:
    assert attempts(folder, str(folder)) == {**dict.fromkeys(READ, "refused"), "tuning data": 16}


def test_without_the_sandbox_every_way_is_open(folder: Path) -> None:
    assert attempts(folder, "open") == {**dict.fromkeys(READ, "read"), "tuning data": 16}


def test_only_files_that_the_table_names_for_tuning_may_be_read(folder: Path) -> None:
    assert [path.name for path in tuning_files([str(folder), "--trials", "3"])] == ["dpbench_gowalla_256.npz"]


def test_nothing_is_tuned_where_test_data_cannot_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.tuning_sandbox.can_confine", lambda: False)
    with pytest.raises(InputError, match="needs Landlock"):
        confine_to_tuning_data([])


@pytest.mark.skipif(not can_confine(), reason="this system has no Landlock")
def test_a_folder_where_every_file_can_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "code" / "data"
    inside.mkdir(parents=True)
    (tmp_path / "link").symlink_to(inside)
    monkeypatch.setattr("benchmarks.tuning_sandbox.CODE", (tmp_path / "code",))
    for folder in (inside, tmp_path / "link", inside / ".." / "data"):
        with pytest.raises(InputError, match="all of which this command can read"):
            confine_to_tuning_data(["--trials", "3", str(folder)])


@pytest.mark.skipif(not can_confine(), reason="this system has no Landlock")
def test_shared_memory_is_no_way_to_test_data() -> None:
    read = (
        "import pathlib; from benchmarks.tuning_sandbox import confine_to_tuning_data; confine_to_tuning_data([]);"
        "pathlib.Path('/dev/urandom').open('rb').read(1); pathlib.Path('/dev/shm/{name}').read_bytes()"
    )
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        ran = subprocess.run(
            [sys.executable, "-c", read.format(name=Path(file.name).name)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            capture_output=True,
            text=True,
        )
    assert "PermissionError" in ran.stderr
    assert "/dev/shm" in ran.stderr


@pytest.mark.parametrize("path", TUNING, ids=lambda path: path.name)
def test_tuning_code_enters_the_sandbox_first(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    last = ast.parse(source).body[-1]
    assert isinstance(last, ast.If)
    assert ast.unparse(last.test) == "__name__ == '__main__'"
    assert ast.unparse(last.body[0]) == ENTER
    assert not names_in(source) & SYNTHETIC
    assert "synthetic.city" not in source


def test_there_is_tuning_code_to_check() -> None:
    found = {path.stem for path in TUNING}
    constants = {f"{of}_constants" for of in ("estimator", "flow", "mechanism")}
    assert found == {"curator_designs", "declared_users", "local_priors", "priors", *constants}
