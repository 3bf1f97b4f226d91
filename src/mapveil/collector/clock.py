"""Time, as an argument: whatever the collector does at a certain hour can be tested without waiting for it."""

import time
from datetime import UTC, datetime
from typing import Protocol

from mapveil_client.errors import InputError


class Clock(Protocol):
    """Source of the collector's time."""

    def now(self) -> datetime:
        """Current time in UTC; may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds from some moment on; never jumps, and means nothing to another process."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """Current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds from some moment on."""
        return time.monotonic()


def time_text(moment: datetime) -> str:
    """A moment as the store keeps it: UTC, ISO 8601, always 32 characters, so that texts sort as times do.

    Examples
    --------
    >>> time_text(datetime(2026, 3, 1, 12, tzinfo=UTC))
    '2026-03-01T12:00:00.000000+00:00'
    """
    if moment.utcoffset() is None:
        raise InputError(f"a moment needs a time zone, got {moment}")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def read_time(text: str) -> datetime:
    """The moment that :func:`time_text` wrote."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"a time must be ISO 8601 with a time zone, got {text[:40]!r}") from None
    if moment.utcoffset() is None:
        raise InputError(f"a time must be ISO 8601 with a time zone, got {text[:40]!r}")
    return moment.astimezone(UTC)
