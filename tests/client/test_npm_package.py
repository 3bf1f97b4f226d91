"""The npm package, packed, installed in an empty folder, and used from there by an app in Node."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import httpx
import pytest

from mapveil_client import __version__
from tests.node import node, run_in_node

from .live import live_collector

ROOT = Path(__file__).resolve().parents[2]
DEVICES = 20
MOST_KB = 100


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = subprocess.run(
        [sys.executable, ROOT / "packaging" / "npm" / "pack.py", tmp_path_factory.mktemp("packed")],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def app(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder into which the package was installed."""
    node()
    folder = tmp_path_factory.mktemp("app")
    npm = shutil.which("npm")
    if npm is not None:
        command = [npm, "install", "--offline", "--no-audit", "--no-fund", "--silent", tarball]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    else:  # what npm does with a package that has no dependency
        with tarfile.open(tarball) as archive:
            archive.extractall(folder / "node_modules", filter="data")
        (folder / "node_modules" / "package").rename(folder / "node_modules" / "mapveil-client")
    return folder


def test_the_package_is_small_and_has_the_version_of_the_python_one(tarball: Path, app: Path) -> None:
    assert tarball.name == f"mapveil-client-{__version__}.tgz"
    assert tarball.stat().st_size < MOST_KB * 1000
    record = json.loads((app / "node_modules" / "mapveil-client" / "package.json").read_text())
    assert record["version"] == __version__
    assert not [name for name in record if name.endswith("ependencies")]


def test_every_export_is_declared_and_nothing_else(app: Path) -> None:
    found = run_in_node(
        "import * as all from 'mapveil-client'; console.log(JSON.stringify(Object.keys(all)))",
        None,
        folder=app,
    )
    declared = (app / "node_modules" / "mapveil-client" / "index.d.ts").read_text()
    values = re.findall(r"^export (?:class|function|const) (\w+)", declared, re.MULTILINE)
    assert sorted(found) == sorted(values)


def test_an_app_takes_part_in_a_local_collection(app: Path, tmp_path: Path) -> None:
    with live_collector(tmp_path) as live:
        given = {"devices": DEVICES, "minimum": DEVICES}
        collection = live.open(trust="local", method="olh-h", **given)
        live.open(**given)  # a secure sum, which the package leaves out
        shutil.copy(Path(__file__).with_name("app.mjs"), app)
        done = subprocess.run(
            [*node(), "app.mjs", live.url, live.token, str(DEVICES)],
            cwd=app,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said = json.loads(done.stdout)
        assert said["sent"] == said["again"] == said["outside"] == DEVICES
        assert len(said["refused"]) == DEVICES
        assert {"needs the Mapveil app" in each for each in said["refused"]} == {True}
        assert said["spent"] == "1"
        assert (said["same"], said["place"]) == (True, False)
        assert "differential privacy" not in said["words"]
        assert "factor of at most 2.72" in said["words"]
        assert stat.S_IMODE((app / "device.json").stat().st_mode) == 0o600
        progress = f"{live.url}/v1/collections/{collection}/progress"
        while (state := httpx.get(progress).json()["state"]) not in ("done", "aborted"):
            time.sleep(0.02)
        assert state == "done"
        assert live.engine.map(collection).values.sum() > 0
