"""The announcement of a round: what is asked now, the same for every device, and bound into every secure sum.

The digest of the announcement is the context of its rounds' messages. A server that announces one thing to some
devices and another to others makes two rounds whose messages are refused by each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple

from mapveil_client.encodings import Encoding, encoding_from_dict
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.parameters import RoundParameters, SumSettings
from mapveil_client.terms import canonical_json, read_fraction, read_json

VERSION: Final = 1
_CONTEXT: Final = b"mapveil collector 1 "
_RUN_BYTES: Final = 16


class AnnouncedQuery(NamedTuple):
    """What a round asks, with its encoding read."""

    purpose: str
    encoding: Encoding
    epsilon: Fraction


@dataclass(frozen=True, kw_only=True)
class RoundAnnouncement:
    """One round of a distributed collection.

    Parameters
    ----------
    terms : str
        Digest of the collection's terms, 64 hexadecimal digits.
    number : int
        From 1.
    run : str
        32 hexadecimal digits drawn for this round only.
    purpose : str
        What it is for.
    encoding : mapping
        How places become coordinates (:meth:`mapveil_client.encodings.Encoding.to_dict`).
    length : int
        Its coordinates.
    epsilon : Fraction
        What the answer costs each device.
    alpha : Fraction
        Each device's part of a discrete Laplace variable.
    scale : int
        Units that a device divides over its places.
    rounding : str
        How parts of units become whole ones.
    bits : int
        Sums are modulo 2**bits.
    corrupt, dropout : Fraction
        Parts of a shard that the noise and the graph are provisioned for.
    active : bool
        Whether the survivors are signed.
    sizes : tuple of int
        Clients of each shard.

    Raises
    ------
    InputError
        A value of the wrong kind.
    """

    terms: str
    number: int
    run: str
    purpose: str
    encoding: Mapping[str, Any]
    length: int
    epsilon: Fraction
    alpha: Fraction
    scale: int
    rounding: str
    bits: int
    corrupt: Fraction
    dropout: Fraction
    active: bool
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = (self.number, self.length, self.scale, self.bits, *self.sizes)
        good = (
            all(isinstance(value, int) and not isinstance(value, bool) and value >= 1 for value in whole)
            and isinstance(self.purpose, str)
            and self.rounding in ("largest-remainder", "stochastic")
            and isinstance(self.active, bool)
            and len(self.sizes) >= 1
            and len(bytes.fromhex(self.run)) == _RUN_BYTES
            and len(bytes.fromhex(self.terms)) == hashlib.sha256().digest_size
        )
        if not good:
            raise InputError(
                "the announcement of a round has a value of the wrong kind, or outside its range"
            )

    @cached_property
    def query(self) -> AnnouncedQuery:
        """What is asked.

        Raises
        ------
        InputError
            The encoding is none, or of another length than announced.
        """
        encoding = encoding_from_dict(self.encoding)
        if encoding.length != self.length:
            raise InputError(f"an encoding of {encoding.length} coordinates, announced as {self.length}")
        return AnnouncedQuery(self.purpose, encoding, self.epsilon)

    def parameters(self, shard: int) -> RoundParameters:
        """What the parties of one shard agree on: every device computes it for itself.

        Raises
        ------
        InputError
            There is no such shard, or no graph keeps its promises.
        """
        if not 0 <= shard < len(self.sizes):
            raise InputError(f"shard {shard}; expected 0 to {len(self.sizes) - 1}")
        if shard not in self._agreed:
            self._agreed[shard] = self._parameters(shard)
        return self._agreed[shard]

    @cached_property
    def judged(self) -> dict[str, str | None]:
        """What is wrong with its encoding at some cell of a collection, by the digest of the terms."""
        return {}

    @cached_property
    def _agreed(self) -> dict[int, RoundParameters]:
        """The parameters of shards that were asked for: their digest is in every message."""
        return {}

    def _parameters(self, shard: int) -> RoundParameters:
        settings = SumSettings(
            length=self.length,
            bits=self.bits,
            corrupt=self.corrupt,
            dropout=self.dropout,
            round_id=bytes.fromhex(self.run) + shard.to_bytes(4, "big"),
            context=_CONTEXT + self.digest,
            active=self.active,
        )
        return settings.parameters(self.sizes[shard])

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record, for the wire."""
        return {
            "version": VERSION,
            "terms": self.terms,
            "number": self.number,
            "run": self.run,
            "purpose": self.purpose,
            "encoding": dict(self.encoding),
            "length": self.length,
            "epsilon": str(self.epsilon),
            "alpha": str(self.alpha),
            "scale": self.scale,
            "rounding": self.rounding,
            "bits": self.bits,
            "corrupt": str(self.corrupt),
            "dropout": str(self.dropout),
            "active": self.active,
            "sizes": list(self.sizes),
        }

    def encode(self) -> bytes:
        """The one encoding."""
        return canonical_json(self.to_record())

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of :meth:`encode`, 32 bytes."""
        return hashlib.sha256(self.encode()).digest()

    @classmethod
    def decode(cls, data: bytes) -> RoundAnnouncement:
        """Read what :meth:`encode` wrote. Run by: the device, that trusts nothing in it.

        Raises
        ------
        InputError
            It is no announcement of this version.
        """
        record = read_json(data, "the announcement of a round")
        if record.pop("version", None) != VERSION:
            raise InputError(f"an announcement of another version; expected {VERSION}")
        try:
            for name in ("epsilon", "alpha"):
                record[name] = read_fraction(record[name], name)
            for name in ("corrupt", "dropout"):
                record[name] = _part(record[name])
            record["sizes"] = tuple(record["sizes"])
            made = cls(**record)
            _ = made.digest  # half a character or an infinite number has no encoding
            return made
        except (KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError) as error:
            raise InputError(
                f"the announcement of a round lacks something ({type(error).__name__})"
            ) from None


def _part(value: object) -> Fraction:
    """A part of a shard, from 0 to below 1."""
    part = Fraction(0) if value == "0" else read_fraction(value, "a part")
    if part is None or part >= 1:
        raise ValueError("expected a fraction from 0 to below 1")
    return part
