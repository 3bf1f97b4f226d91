"""Modules of pages run in Node, for tests that compare them with Python."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

MODULES = Path(__file__).resolve().parent.parent / "src" / "mapveil" / "collector" / "device_page"
"""The modules of the browser device."""


@functools.cache
def _found() -> list[str] | None:
    node = shutil.which("node")
    if node is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    version = int(re.match(r"v(\d+)", said)[1])
    # Node 18 has WebCrypto behind a switch.
    return None if version < 18 else [node, *(["--experimental-global-webcrypto"] if version == 18 else [])]


def node() -> list[str]:
    """The command that runs Node, or a skip; a failure where the environment requires Node."""
    found = _found()
    if found is None:
        reason = "Node 18 or newer is not installed: the pages' modules cannot be run"
        if "node" in os.environ.get("MAPVEIL_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def run_in_node(script: str, given: Any, *, folder: Path | None = None) -> Any:
    """Run a module that prints JSON, where ``given`` is a constant, and return what it printed.

    ``load`` imports a module of the browser device by its name.
    """
    head = (
        "import { readFileSync } from 'node:fs'; const given = JSON.parse(readFileSync(0, 'utf8'));"
        f"const load = (name) => import(`file://{MODULES}/${{name}}.mjs`);"
    )
    return _run([*node(), "--input-type=module", "--eval", f"{head}\n{script}"], given, folder)


def run_file(path: Path, given: Any) -> Any:
    """Run a file that reads JSON from its standard input and prints JSON."""
    return _run([*node(), str(path)], given, None)


def _run(command: list[str], given: Any, folder: Path | None) -> Any:
    done = subprocess.run(
        command,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=600,  # ends what hangs
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
