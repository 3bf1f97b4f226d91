"""A device's log keeps its last lines, with what happened and why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mapveil_client.memory import DeviceLog, Line


def test_the_last_lines_are_kept_and_said_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mapveil_client")
    log = DeviceLog(now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    for number in range(600):
        log.add("refused" if number % 2 else "sent", f"line {number}", "a" * 32)
    assert len(log.lines) == 500
    assert log.lines[-1] == Line("2026-01-02T03:04:05+00:00", "a" * 32, "refused", "line 599")
    assert str(log.lines[0]) == f"2026-01-02T03:04:05+00:00 sent {'a' * 32}: line 100"
    assert log.reasons("refused")[0] == "line 101"
    assert len(caplog.records) == 600
    assert DeviceLog(log.lines).lines == log.lines
