"""The npm package, packed, installed in an empty folder, and used from there by an app in Node."""

from __future__ import annotations

import json
import math
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from mapveil.collector.rounds import collection as operators
from mapveil_client import __version__
from mapveil_client.two_operators import field_arithmetic, turbo_shake
from tests.node import node, run_in_node

from .live import Live, LiveLeader, live_collector, served

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


def test_a_helper_is_trusted_once_and_only_by_its_key(app: Path) -> None:
    script = """
      const { Device, RecordStorage, Refusal } = await import('mapveil-client');
      let kept = null;
      const storage = new RecordStorage({ load: async () => kept, save: async (text) => { kept = text; } });
      const device = await Device.open({ storage });
      const said = [];
      for (const key of given) {
        said.push(await device.trustHelper(key).catch((error) => (error instanceof Refusal ? error.message : null)));
      }
      console.log(JSON.stringify(said));
    """
    first, other = "0a" * 32, "0b" * 32
    malformed, none, kept, again, refused = run_in_node(
        script, ["abc", None, first, first.upper(), other], folder=app
    )
    assert "64 hexadecimal digits" in malformed
    assert none == malformed
    assert kept == again == first
    assert "trusts another second operator already" in refused


def test_an_app_takes_part_in_a_local_collection(app: Path, tmp_path: Path) -> None:
    with live_collector(tmp_path) as live:
        given = {"devices": DEVICES, "minimum": DEVICES}
        collection = live.open(trust="local", method="olh-h", **given)
        live.open(**given)  # a secure sum, which the package leaves out
        said = run_app(app, live, DEVICES)
        assert said["sent"] == said["again"] == said["outside"] == DEVICES
        assert len(said["refused"]) == DEVICES
        assert {"needs the Mapveil app" in each for each in said["refused"]} == {True}
        assert said["spent"] == "1"
        assert (said["same"], said["place"]) == (True, False)
        assert "differential privacy" not in said["words"]
        assert "factor of at most 2.72" in said["words"]
        assert stat.S_IMODE((app / "device.json").stat().st_mode) == 0o600
        assert finished(live, collection) == "done"
        assert live.engine.map(collection).values.sum() > 0


def test_apps_and_a_third_party_report_to_two_operators(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (field_arithmetic, turbo_shake):
        monkeypatch.setattr(module, "COMPILE_AFTER_S", math.inf)
    monkeypatch.setattr(operators, "forget_sums", lambda connection, identifier: None)  # to look at them
    with served(LiveLeader(tmp_path)) as live:
        (app / "device.json").unlink(missing_ok=True)
        collection = live.open(
            trust="operators", method="multiscale", epsilon="2", devices=DEVICES, minimum=DEVICES
        )
        said = run_app(app, live, DEVICES - 1, live.helper_key)
        assert (said["sent"], said["spent"]) == (DEVICES - 1, "2")
        assert "If the contribution of one user is replaced by zero" in said["words"]
        device = Path(__file__).with_name("third_party") / "operators_device.py"
        command = [sys.executable, device, live.url, live.token, tmp_path, live.helper_key, "5"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.stdout == f"{collection} 204\n", done.stderr[-3000:]
        assert finished(live, collection) == "done"
        # A third party, apps in the east, apps in the west.
        assert sorted(live.exact(collection))[-3:] == [1, 6, 13]
        assert live.engine.map(collection).guarantee.model == "operators"


def run_app(app: Path, live: Live, devices: int, *helper: str) -> dict[str, Any]:
    """The record that the devices of an app print of their part."""
    shutil.copy(Path(__file__).with_name("app.mjs"), app)
    done = subprocess.run(
        [*node(), "app.mjs", live.url, live.token, str(devices), *helper],
        cwd=app,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def finished(live: Live, collection: str) -> str:
    """The state in which a collection ends."""
    while (state := live.engine.collection(collection)["state"]) not in ("done", "aborted"):
        time.sleep(0.02)
    return str(state)
