"""The cost of one round of a collection to each device: coordinates, bits, bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class RoundCost(NamedTuple):
    """One round of sums, as a device sees it."""

    purpose: str
    length: int  # coordinates of the vector a device sends
    bits: int  # each coordinate is sent modulo 2**bits
    devices: int  # asked to take part
    included: int  # in the sums
    shards: int
    bytes_up: Mapping[str, int]  # per phase, the most that one device sends
    bytes_down: Mapping[str, int]  # per phase, the most that one device receives

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {**self._asdict(), "bytes_up": dict(self.bytes_up), "bytes_down": dict(self.bytes_down)}

    def in_words(self) -> str:
        """The cost in one line."""
        up, down = (sum(each.values()) / 1024 for each in (self.bytes_up, self.bytes_down))
        counted = f"{self.included} of {self.devices} devices in the sum{'s' if self.shards > 1 else ''}"
        if not self.bytes_down:  # one report to two operators: shares, which may be shorter than the numbers
            return f"one report about {self.length} sites; {up:.1f} KiB up; {counted}"
        return f"{self.length} numbers of {self.bits} bits; {up:.1f} KiB up, {down:.1f} KiB down at most; {counted}"

    @staticmethod
    def total_length(rounds: Iterable[RoundCost]) -> int:
        """Coordinates a device sends in all rounds: the communication overhead of Bagdasaryan et al. (2022)."""
        return sum(each.length for each in rounds)
