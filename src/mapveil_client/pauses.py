"""Pauses that a server names: ``Retry-After`` of a refusal, and ``Mapveil-Pause``, which spreads its devices evenly."""

import re
from collections.abc import Mapping
from typing import Final

_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_LONGEST_S: Final = 7200.0  # a server that names a longer pause is asked after this one


def seconds_of(headers: Mapping[str, str], name: str) -> float:
    """Seconds that a header names, 0 where it names none."""
    found = _SECONDS.fullmatch(headers.get(name, ""))
    return float(found[0]) if found else 0.0


class Pauses:
    """The pauses that a server named lately.

    Examples
    --------
    >>> pauses = Pauses()
    >>> pauses.note(600.0), pauses.note(5.0), pauses.next(1.0), pauses.next(1.0)
    (None, None, 5.0, 1.0)
    """

    def __init__(self) -> None:
        self._named: list[float] = []

    def note(self, seconds: float) -> None:
        """Remember a pause; 0 is none."""
        if seconds:
            self._named = [min(seconds, _LONGEST_S, *self._named)]

    def next(self, least: float) -> float:
        """The shortest pause since the last call, or ``least`` where that is longer."""
        named, self._named = self._named, []
        return max(least, *named, 0.0)
