"""Changes of single parts of a message, for the messages that must be refused."""

from __future__ import annotations

from collections.abc import Callable

Change = Callable[[list], list]


def put(at: int, value: int | bytes) -> Change:
    """Replace one value of a message."""
    return lambda values: [*values[:at], value, *values[at + 1 :]]


def turn(at: int, change: Callable[[bytes], bytes]) -> Change:
    """Change one byte string of a message."""
    return lambda values: [*values[:at], change(values[at]), *values[at + 1 :]]


def keep(at: int, members: int, unit: int) -> Change:
    """Leave only the first members of the set that stands at ``at``, and what belongs to them."""
    return lambda values: [
        *values[:at],
        bytes([(1 << members) - 1]),
        values[at + 1][: members * unit],
        *values[at + 2 :],
    ]


def claim(at: int, members: bytes, more: int) -> Change:
    """Give a set other members, and so many zeros more to what belongs to them."""
    return lambda values: [*values[:at], members, values[at + 1] + bytes(more), *values[at + 2 :]]


def complains(slots: int, shown: bytes) -> Change:
    """Complain of the boxes of a set of slots."""
    return lambda values: [*values[:5], bytes([slots]), shown, *values[7:]]


def flip(data: bytes, at: int) -> bytes:
    """Turn the lowest bit of one byte."""
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
