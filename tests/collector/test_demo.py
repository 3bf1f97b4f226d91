"""The demo of the collector runs to its end, and says so where it does not."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "collector_demo.py"

pytestmark = pytest.mark.xdist_group("browser")  # heavy too: not beside the browser


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, DEMO, "--folder", folder, "--exit", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_the_demo_ends_with_a_map_and_no_server_behind_it(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = run(tmp_path, "--devices", "60", "--port", str(port))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Done: epsilon 1 spent; 60 of 60 devices in the sums." in done.stdout
    seconds = re.search(r"From the last report to the map: (\d+\.\d) s\.", done.stdout)
    assert seconds is not None
    assert 0 < float(seconds[1]) < 30  # the figure that is promised of 2,000 devices
    assert f"http://127.0.0.1:{port}/#token=mvo_" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("The page answers"), "and not that it is at a dead address"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    # Twice in the same folder: it begins anew.
    assert run(tmp_path, "--devices", "60").returncode == 0


def test_a_collection_that_fails_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "--devices", "2")
    assert done.returncode == 1
    assert "422" in done.stderr
    assert "Traceback" not in done.stderr
