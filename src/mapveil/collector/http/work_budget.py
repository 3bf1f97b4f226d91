"""Work that one token may order of the service: files and scenes of maps, so many at once and so many an hour."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from mapveil.collector.http.limits import Buckets
from mapveil.collector.refusals import TooMany
from mapveil.collector.store.principals import Operator

_HOUR: Final = 3600
_ONE_SECONDS: Final = 5.0  # after which a file that is being made may be there


class WorkBudget:
    """Budgets of the tokens of one process; every method may be called from any thread.

    Parameters
    ----------
    at_once : int
        Requests of one token that wait for work.
    hourly : int
        Pieces of work that one token orders in an hour; 0 sets no limit. What was made already is free.
    """

    def __init__(self, at_once: int, hourly: int) -> None:
        self._at_once, self._hourly = at_once, hourly
        self._ordered = Buckets(hourly / _HOUR, hourly, "this token")
        self._lock = threading.Lock()
        self._waiting: Counter[int] = Counter()

    def charge_of(self, who: Operator) -> Callable[[], None]:
        """The charge for a piece of work of a token, to be called before the work is ordered; raises TooMany."""
        return partial(self._charge, who.id)

    def _charge(self, token: int) -> None:
        with self._lock:
            wait = self._ordered.wait(token)
            if wait:
                raise TooMany(
                    f"this token ordered {self._hourly} files and maps within the hour, as many as it may; the next in "
                    f"{wait:.0f} s",
                    wait,
                )
            self._ordered.take(token)

    @contextlib.contextmanager
    def waiting(self, who: Operator) -> Iterator[None]:
        """Count a request that waits for work, from the beginning to the end of the block; raises TooMany."""
        with self._lock:
            if self._waiting[who.id] >= self._at_once:
                raise TooMany(
                    f"this token waits for {self._at_once} files and maps, as many as it may at once; "
                    "ask again when one is there",
                    _ONE_SECONDS,
                )
            self._waiting[who.id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[who.id] -= 1
                if not self._waiting[who.id]:
                    del self._waiting[who.id]
