"""Altered messages: bits flipped, bytes cut, spliced and put in, fields swapped, heads and senders of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mapveil_client.canonical_cbor import NotCanonical, decode, encode

__all__ = ["KINDS", "Mutants", "Spoken"]

KINDS: Final = (
    *("flip", "truncate", "cut", "splice", "insert", "noise"),
    *("swap fields", "other field", "other head", "other sender", "other message"),
)
_DIGEST: Final = 2  # of the head: version, kind, digest of the round, client
_HEAD: Final = 4


class Spoken(NamedTuple):
    """A message that an honest device sent, wherever that was."""

    device: int
    round: int
    phase: str
    body: bytes


class Mutants:
    """A stream of altered messages, the same for the same seed.

    Parameters
    ----------
    seed : int
        Chooses everything.
    corpus : sequence of Spoken
        What honest devices sent in other rounds, shards, phases and collections.
    """

    def __init__(self, seed: int, corpus: Sequence[Spoken]) -> None:
        self.chance = np.random.default_rng(seed)
        self.corpus = list(corpus)

    def below(self, top: int) -> int:
        """A number from 0."""
        return int(self.chance.integers(0, max(top, 1)))

    def pick(self, among: Sequence[Spoken]) -> Spoken:
        """One of several."""
        return among[self.below(len(among))]

    def alter(self, message: bytes) -> tuple[str, bytes]:
        """The kind of what was done to a message, and what came of it."""
        kind = KINDS[self.below(len(KINDS))]
        if kind in ("swap fields", "other field", "other head", "other sender"):
            try:
                return kind, self._values(kind, decode(message))
            except NotCanonical:
                kind = "flip"
        return kind, self._bytes(kind, message)

    def _bytes(self, kind: str, data: bytes) -> bytes:
        at, end = sorted((self.below(len(data) + 1), self.below(len(data) + 1)))
        if kind == "flip":
            made = bytearray(data)
            for _ in range(1 + self.below(3) if made else 0):
                # Half of them in the head, where most of what is checked stands.
                made[self.below(len(made) if self.below(2) else min(len(made), 48))] ^= 1 << self.below(8)
            return bytes(made)
        if kind == "truncate":
            return data[:at]
        if kind == "cut":
            return data[:at] + data[end:]
        if kind == "splice":
            other = self.pick(self.corpus).body
            return data[:at] + other[self.below(len(other)) :]
        if kind == "insert":
            return data[:at] + self.chance.bytes(1 + self.below(9)) + data[at:]
        if kind == "noise":
            return bytes(self.chance.bytes(self.below(2 * len(data) + 4)))
        return self.pick(self.corpus).body

    def _values(self, kind: str, values: list[int | bytes]) -> bytes:
        other = decode(self.pick(self.corpus).body)
        if kind == "other head":
            at = self.below(_HEAD)
            values[at] = other[at] if self.below(3) else self.below(1 << 20)
        elif kind == "other sender":
            values = [*other[:_DIGEST], *values[_DIGEST:_HEAD], *other[_HEAD:]]
        elif kind == "other field" and len(values) > _HEAD < len(other):
            at = _HEAD + self.below(len(values) - _HEAD)
            values[at] = other[_HEAD + self.below(len(other) - _HEAD)]
        else:
            at, to = self.below(len(values)), self.below(len(values))
            values[at], values[to] = values[to], values[at]
        return encode(values)
