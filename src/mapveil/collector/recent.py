"""A mapping of bounded size for what the collector can read again."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most ``size`` entries, the least recently used ones forgotten; any thread may use it.

    Parameters
    ----------
    size : int
        Entries or, with ``weigh``, the weight of all but the newest together.
    weigh : callable, optional
        Weight of a value, such as its bytes, whenever it is put.

    Examples
    --------
    >>> recent = Recent[str, int](2)
    >>> [recent.put(name, number) for number, name in enumerate("abc")]
    [0, 1, 2]
    >>> recent.get("a"), recent.get("c")
    (None, 2)
    """

    def __init__(self, size: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._size, self._weigh = size, weigh
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0

    def get(self, key: K) -> V | None:
        """The value of a key, which is thereby the last one used; None where there is none."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V) -> V:
        """Keep a value; returns it."""
        weight = self._weigh(value)
        with self._lock:
            self._drop(key)
            self._entries[key] = value, weight
            self._weight += weight
            while self._weight > self._size and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))
        return value

    def _drop(self, key: K) -> None:
        self._weight -= self._entries.pop(key, (None, 0))[1]

    def pop(self, key: K) -> None:
        """Forget a key."""
        with self._lock:
            self._drop(key)

    def __len__(self) -> int:
        return len(self._entries)
