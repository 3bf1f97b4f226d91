"""A mapping of bounded size for what the collector can read again."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most ``size`` entries, the least recently used ones forgotten; any thread may use it.

    Examples
    --------
    >>> recent = Recent[str, int](2)
    >>> [recent.put(name, number) for number, name in enumerate("abc")]
    [0, 1, 2]
    >>> recent.get("a"), recent.get("c")
    (None, 2)
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value of a key, which is thereby the last one used; None where there is none."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: K, value: V) -> V:
        """Keep a value; returns it."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return value

    def pop(self, key: K) -> None:
        """Forget a key."""
        with self._lock:
            self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
