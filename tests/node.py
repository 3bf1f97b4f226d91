"""Modules of pages run in Node, for tests that compare them with Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest


def run_in_node(script: str, given: Any) -> Any:
    """Run a module that prints JSON, where ``given`` is a constant, and return what it printed."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to run the pages' modules with")
    head = "import { readFileSync } from 'node:fs'; const given = JSON.parse(readFileSync(0, 'utf8'));"
    done = subprocess.run(
        [node, "--input-type=module", "--eval", f"{head}\n{script}"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=600,  # ends what hangs
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
