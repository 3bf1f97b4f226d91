"""Settings of all tests."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import settings

# The same examples every time: a red run can be repeated, and a green one was not luck.
# `make nightly` explores instead.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=300, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

REQUIRED: Final = tuple(filter(None, os.environ.get("MAPVEIL_REQUIRE", "").lower().split(",")))
"""Programs that must be here (``postgresql,chromium,node``): a skip whose reason names one of them is a failure."""

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)

_STARTED: Final = time.time()

# Each worker computes in one thread, and so do the processes it starts: threads of several workers that wait for one
# another on the same cores made tests of networks and trees up to 30 times as slow. OpenMP reads it once, when NumPy,
# PyTorch or scikit-learn is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _insist((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _insist((yield))


def _insist(report: _Report) -> _Report:
    """Fail where a test was skipped for want of a program that this run requires."""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        missing = [name for name in REQUIRED if name in reason.lower()]
        if missing:
            report.outcome = "failed"
            report.longrepr = f"MAPVEIL_REQUIRE asks for {', '.join(missing)}, but: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the browser tests kept their pictures."""
    folder = Path(__file__).resolve().parents[1] / "build" / "screenshots"
    kept = sum(path.stat().st_mtime >= _STARTED for path in folder.glob("*.png"))
    if kept:
        terminalreporter.write_line(f"{kept} screenshots in {folder}")
