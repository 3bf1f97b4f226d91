"""How long is left of a phase, whatever the machine's clock does.

Within a process a rest is counted on the monotonic clock, from when the process first saw it. What it was then follows
from the stored time, held between nothing and the whole: a clock that jumps ends a phase early at worst, and never
makes it last longer than twice.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from datetime import datetime

from mapveil.collector.clock import Clock


class Deadlines:
    """The ends of what a process waits for.

    Parameters
    ----------
    clock : Clock
        Where the time comes from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: dict[tuple[str, Hashable], float] = {}

    def left(self, collection: str, what: Hashable, began: datetime, seconds: float) -> float:
        """Seconds left, 0 once it is over.

        Parameters
        ----------
        collection : str
            Whose.
        what : hashable
            Tells it from everything else that this collection waits for.
        began : datetime
            As stored.
        seconds : float
            How long it lasts.
        """
        now = self._clock.monotonic()
        key = (collection, what)
        with self._lock:
            if key not in self._ends:
                passed = (self._clock.now() - began).total_seconds()
                self._ends[key] = now + min(max(seconds - passed, 0.0), seconds)
            return max(0.0, self._ends[key] - now)

    def forget(self, collection: str) -> None:
        """Drop what a collection that ended waited for."""
        with self._lock:
            for key in [key for key in self._ends if key[0] == collection]:
                del self._ends[key]
