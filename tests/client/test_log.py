"""A device's log keeps its last lines, with what happened and why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mapveil_client.memory import DeviceLog, Line


def test_the_last_lines_are_kept_and_said_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mapveil_client")
    log, before = DeviceLog(), datetime.now(UTC).replace(microsecond=0)
    for number in range(600):
        log.add("refused" if number % 2 else "sent", f"line {number}", "a" * 32)
    assert len(log.lines) == 500
    last, first = log.lines[-1], log.lines[0]
    assert last == Line(last.at, "a" * 32, "refused", "line 599")
    assert before <= datetime.fromisoformat(first.at) <= datetime.now(UTC)
    assert str(first) == f"{first.at} sent {'a' * 32}: line 100"
    assert len(caplog.records) == 600
    assert DeviceLog(log.lines).lines == log.lines
