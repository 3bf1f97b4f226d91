"""The announcement of a round: one query, the same for every client, and bound into every secure sum.

The digest of the announcement is the context of its rounds' messages. A server that announces one thing to some
clients and another to others makes two rounds whose messages are refused by each other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.contribution import ROUNDINGS, Rounding
from mapveil_client.encodings import BlockEncoding, Encoding, LabelEncoding, MarginsEncoding, NodeEncoding
from mapveil_client.errors import InputError, ParameterError, check, is_whole
from mapveil_client.level_encoding import LevelEncoding, SketchEncoding
from mapveil_client.morton import PrefixTree
from mapveil_client.secure_sum.round_parameters import RoundParameters, SumSettings
from mapveil_client.terms import Document, is_hexadecimal, read_fraction

_CONTEXT: Final = b"mapveil collector 1 "
_LARGEST: Final = 1 << 62


class AnnouncedQuery(NamedTuple):
    """The query of a round, with its encoding read."""

    purpose: str
    encoding: Encoding
    epsilon: Fraction


@dataclass(frozen=True, kw_only=True)
class RoundAnnouncement(Document):
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
        The query in words.
    encoding : mapping
        A record of :meth:`mapveil_client.encodings.Encoding.to_dict`.
    length : int
        Coordinates of the encoding.
    epsilon : Fraction
        Cost of the answer, for each client.
    alpha : Fraction
        Each client's fraction of a discrete Laplace variable.
    scale : int
        Units that a client divides over its locations.
    rounding : str
        Rule by which fractions of units become whole ones.
    bits : int
        Sums are modulo 2**bits.
    corrupt, dropout : Fraction
        Fractions of a shard that the noise and the graph are provisioned for.
    active : bool
        Whether the survivors are signed.
    sizes : tuple of int
        Clients of each shard.

    Raises
    ------
    InputError
        A value of the wrong kind.
    """

    what = "the announcement of a round"

    terms: str
    number: int
    run: str
    purpose: str
    encoding: Mapping[str, Any]
    length: int
    epsilon: Fraction
    alpha: Fraction
    scale: int
    rounding: Rounding
    bits: int
    corrupt: Fraction
    dropout: Fraction
    active: bool
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        good = (
            bool(self.sizes)
            and all(
                is_whole(value, 1, _LARGEST)
                for value in (self.number, self.length, self.scale, self.bits, *self.sizes)
            )
            and isinstance(self.purpose, str)
            and self.rounding in ROUNDINGS
            and isinstance(self.active, bool)
            and is_hexadecimal(self.run, 32)
            and is_hexadecimal(self.terms, 64)
        )
        if not good:
            raise InputError(f"{self.what} has a value of the wrong kind, or outside its range")

    @cached_property
    def query(self) -> AnnouncedQuery:
        """The query.

        Raises
        ------
        InputError
            The encoding is none, or of another length than announced.
        """
        encoding = read_encoding(self.encoding)
        check(encoding.length == self.length, "length", f"the encoding's, {encoding.length}", self.length)
        return AnnouncedQuery(self.purpose, encoding, self.epsilon)

    def parameters(self, shard: int) -> RoundParameters:
        """The parameters that the parties of one shard agree on: every client computes them for itself.

        Raises
        ------
        InputError
            There is no such shard, or no graph keeps its promises.
        """
        check(0 <= shard < len(self.sizes), "shard", f"0 to {len(self.sizes) - 1}", shard)
        if shard not in self._agreed:
            settings = SumSettings(
                length=self.length,
                bits=self.bits,
                corrupt=self.corrupt,
                dropout=self.dropout,
                round_id=bytes.fromhex(self.run) + shard.to_bytes(4, "big"),
                context=_CONTEXT + self.digest,
                active=self.active,
            )
            self._agreed[shard] = settings.parameters(self.sizes[shard])
        return self._agreed[shard]

    @cached_property
    def judged(self) -> dict[str, str | None]:
        """The fault of its encoding at some cell of a collection, by the digest of the terms."""
        return {}

    @cached_property
    def _agreed(self) -> dict[int, RoundParameters]:
        """The parameters of shards that were asked for: their digest is in every message."""
        return {}

    @classmethod
    def _read(cls, record: dict[str, Any]) -> dict[str, Any]:
        read: dict[str, Any] = {name: read_fraction(record[name], name) for name in ("epsilon", "alpha")}
        for name in ("corrupt", "dropout"):
            read[name] = Fraction(0) if record[name] == "0" else read_fraction(record[name], name)
            check(read[name] < 1, name, "below 1", record[name])
        return record | read | {"sizes": tuple(record["sizes"])}


def read_encoding(record: Mapping[str, Any]) -> Encoding:
    """Read a record of :meth:`mapveil_client.encodings.Encoding.to_dict`, trusting nothing in it. Run by: each client.

    Raises
    ------
    InputError
        It is no record of an encoding; or one with a value outside its range.

    Examples
    --------
    >>> read_encoding({"kind": "levels", "depth": 3, "levels": [1, 2], "runs": [[0, 64]]}).length
    20
    """
    kind = record.get("kind") if isinstance(record, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"no encoding is of kind {kind!r:.40}; expected one of {', '.join(_KINDS)}")
    try:
        if not _whole_numbers(record):
            raise TypeError("a value is no whole number")
        return _KINDS[kind](record)
    except ParameterError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        raise InputError(
            f"the record of an encoding of kind {kind!r} is not complete or has a value of the wrong "
            f"kind ({type(error).__name__}: {error}); expected what to_dict() writes"
        ) from None


def _whole_numbers(record: Mapping[str, Any]) -> bool:
    """Whether all values are whole numbers, lists of them, text or such records: nothing that would be rounded."""
    left: list[Any] = list(record.values())
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            left += value.values()
        elif isinstance(value, list | tuple):
            if any(isinstance(each, str | Mapping) for each in value):
                return False
            left += value
        elif isinstance(value, bool) or not isinstance(value, int | str):
            return False
    return True


def _labels(record: Mapping[str, Any]) -> LabelEncoding:
    if record["places"]["kind"] == "labels":
        raise ParameterError("labels of labels; expected labels of any other kind")
    return LabelEncoding(read_encoding(record["places"]), record["labels"])


def _array(values: object) -> IntArray:
    return np.asarray(values, dtype=np.int64)


_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], Encoding]]] = {
    "nodes": lambda r: NodeEncoding(PrefixTree.of_nodes(r["depth"], r["level"], r["code"])),
    "labels": _labels,
    "levels": lambda r: LevelEncoding(r["depth"], tuple(r["levels"]), _array(r["runs"])),
    "sketch": lambda r: SketchEncoding(r["depth"], tuple(r["levels"]), r["width"], r["rows"], r["key"]),
    "blocks": lambda r: BlockEncoding(
        r["depth"], _array(r["rows"]), _array(r["columns"]), _array(r["parts"])
    ),
    "margins": lambda r: MarginsEncoding(r["depth"]),
}
