"""A program that a run requires cannot be skipped quietly: a skip for want of it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = {
    "test_one.py": 'import pytest\ndef test_a():\n    pytest.skip("no chromium here")\ndef test_b():\n    pass\n',
    "test_two.py": 'import pytest\npytest.skip("no PostgreSQL here", allow_module_level=True)\n',
}


@pytest.mark.parametrize(
    ("require", "outcome"),
    [
        (None, "1 passed, 2 skipped"),
        ("chromium", "1 failed, 1 passed, 1 skipped"),
        ("postgresql", "1 error"),
    ],
)
def test_a_required_program_cannot_be_skipped(tmp_path: Path, require: str | None, outcome: str) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    for name, text in _TESTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "MAPVEIL"))
    }
    if require is not None:
        environment["MAPVEIL_REQUIRE"] = require
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in run.stdout.splitlines()[-1], run.stdout
    assert (run.returncode == 0) == (require is None)
