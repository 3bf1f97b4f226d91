"""Settings of all tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Final, TypeVar

import pytest
from hypothesis import settings

# The same examples every time: a red run can be repeated, and a green one was not luck.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

REQUIRED: Final = tuple(filter(None, os.environ.get("MAPVEIL_REQUIRE", "").lower().split(",")))
"""Programs that must be here (``postgresql,chromium,node``): a skip whose reason names one of them is a failure."""

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)


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
