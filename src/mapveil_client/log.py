"""A device's own log: what it did and what it refused, and why. Never where it was, nor any key."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

_LOGGER: Final = logging.getLogger("mapveil_client")
_MOST_LINES: Final = 500
_LONGEST: Final = 300


def one_line(text: str) -> str:
    """What may be kept of a text that a server had a part in: one printable line of at most 300 characters.

    Examples
    --------
    >>> one_line("no method is called 'a\\nb'" + 1000 * "!")[:30]
    "no method is called 'a b'!!!!!"
    """
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 2 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


class Line(NamedTuple):
    """One line."""

    at: str  # UTC, ISO 8601
    collection: str  # its identifier, or empty
    event: str  # enrolled | joined | refused | charged | sent | unsent | waiting | left | ended
    text: str

    def __str__(self) -> str:
        return f"{self.at} {self.event} {self.collection or '-'}: {self.text}"


class DeviceLog:
    """The last lines of a device's log; each also goes to the logger ``mapveil_client``.

    Parameters
    ----------
    lines : iterable of Line
        Those kept from before.
    now : callable
        The time, UTC.
    """

    def __init__(
        self, lines: Iterable[Line] = (), *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._lines: deque[Line] = deque(lines, maxlen=_MOST_LINES)
        self._now = now

    @property
    def lines(self) -> tuple[Line, ...]:
        """The last 500 lines, the oldest first."""
        return tuple(self._lines)

    def add(self, event: str, text: str, collection: str = "") -> None:
        """Write a line."""
        text = one_line(text)
        line = Line(self._now().isoformat(timespec="seconds"), collection, event, text)
        self._lines.append(line)
        _LOGGER.info("%s %s: %s", event, collection or "-", text)

    def reasons(self, *events: str) -> tuple[str, ...]:
        """The texts of the lines of these events."""
        return tuple(line.text for line in self._lines if line.event in events)
