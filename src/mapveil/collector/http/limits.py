"""Rate limits: token buckets by address and device, and the bytes of bodies held in memory."""

import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

from mapveil.collector.recent import Recent
from mapveil.collector.refusals import StoreUnavailable, TooLarge, TooMany

_MOST_KEYS: Final = 1 << 17


class Buckets:
    """A token bucket for each key: ``burst`` at once, then ``rate`` a second.

    Memory is bounded: of more than 131,072 keys the ones not seen for longest begin anew.

    Parameters
    ----------
    rate, burst : float
        Tokens a second, and the most that are kept; a rate of 0 sets no limit.
    what : str
        Name of the client that is limited, for the message.
    monotonic : callable
        Clock, seconds.

    Examples
    --------
    >>> buckets = Buckets(1, 2, "this test", monotonic=lambda: 0.0)
    >>> buckets.take("a"), buckets.take("a"), buckets.wait("a")
    (None, None, 1.0)
    """

    def __init__(
        self, rate: float, burst: float, what: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self.what = float(rate), float(max(burst, 1)), what
        self._monotonic = monotonic
        self._kept: Recent[Hashable, tuple[float, float]] = Recent(_MOST_KEYS)  # tokens, and when

    def wait(self, key: Hashable) -> float:
        """Seconds until one token is there; 0 where it is."""
        if not self.rate:
            return 0.0
        return max(0.0, (1.0 - self._tokens(key)) / self.rate)

    def take(self, key: Hashable) -> None:
        """Take one token."""
        if not self.rate:
            return
        tokens = self._tokens(key)
        if tokens < 1:
            raise TooMany(f"too many requests of {self.what}", self.wait(key))
        self._kept.put(key, (tokens - 1, self._monotonic()))

    def _tokens(self, key: Hashable) -> float:
        found = self._kept.get(key)
        if found is None:
            return self.burst
        tokens, since = found
        return min(self.burst, tokens + (self._monotonic() - since) * self.rate)


class Bodies:
    """Bytes of bodies that are held at one time, together.

    Parameters
    ----------
    most : int
        Maximum; more are refused for now.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._of: Counter[str] = Counter()  # of these, by address

    def hold(self, size: int, address: str = "") -> None:
        """Hold some more of an address, which has a quarter of them at most once half are held: others need room."""
        mine = self._of[address] + size
        crowded = self.held + size > self.most // 2 and mine > self.most // 4
        if self.held + size > self.most or crowded:
            raise StoreUnavailable("too many bodies are being received; ask again in a moment")
        self.held += size
        self._of[address] = mine

    def release(self, size: int, address: str = "") -> None:
        """Hold them no longer."""
        self.held -= size
        self._of[address] -= size
        if self._of[address] <= 0:
            del self._of[address]


def declared_length(headers: list[tuple[bytes, bytes]], most: int) -> int | None:
    """The length that a head declares, None where it declares none."""
    for name, value in headers:
        if name == b"content-length":
            length = int(value) if value.isdigit() and len(value) <= 18 else most + 1
            if length > most:
                raise TooLarge(
                    f"a body of {value.decode('ascii', 'replace')[:20]} bytes", f"up to {most} bytes"
                )
            return length
    return None
