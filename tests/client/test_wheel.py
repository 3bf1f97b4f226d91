"""The slim wheel in an empty environment: a device enrols, reports and takes part in a secure sum."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from mapveil_client import __version__
from tests.authority import NAMED

from .live import live_collector

ROOT = Path(__file__).resolve().parents[2]
DEVICES = 20
MOST_MODULES = 86  # twelve are of sums by two operators and three of series, which no other mode loads
MOST_LOADED = 67
MOST_MB = 100
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")  # of the environment, not of the client


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT / "packaging" / "client",
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("device")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")
    return python


def test_the_wheel_holds_the_client_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"mapveil_client-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "mapveil_client",
        f"mapveil_client-{__version__}.dist-info",
    }
    assert sum(name.endswith(".py") for name in names) <= MOST_MODULES
    assert "mapveil_client/py.typed" in names


def test_a_device_of_the_wheel_reports_and_takes_part_in_a_sum(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = Path(
        subprocess.run(
            [python, "-c", "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    size: dict[str, float] = {}
    for file in packages.rglob("*"):
        name = file.relative_to(packages).parts[0].split("-")[0].removesuffix(".libs")
        if file.is_file() and name not in TOOLS:
            size[name] = size.get(name, 0.0) + file.stat().st_size / 1e6
    whole = sum(size.values())
    with capsys.disabled():
        largest = sorted(size.items(), key=lambda each: -each[1])[:4]
        sys.stdout.write(f"\ninstalled: {whole:.1f} MB; {', '.join(f'{n} {s:.1f}' for n, s in largest)}\n")
    assert whole < MOST_MB
    with live_collector(tmp_path) as live:
        given = {"devices": DEVICES, "minimum": DEVICES}
        collections = [
            live.open(trust="local", method="olh-h", **given),
            live.open(trust="distributed", epsilon="1/2", tiling="quadtree:1", **given),
        ]
        program = Path(__file__).with_name("device_program.py")
        done = subprocess.run(
            [python, "-I", program, live.url, live.token, str(DEVICES), tmp_path, str(NAMED), *collections],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said = json.loads(done.stdout)
        assert said["states"] == dict.fromkeys(collections, "done")
        assert set(said["spent"]) == {"3/2"}
        assert len(said["modules"]) <= MOST_LOADED
        assert all(name.startswith("mapveil_client") for name in said["modules"])
        for collection in collections:
            heat = live.engine.map(collection)
            assert heat.values.sum() > 0
