"""The terms of a collection: all that a device is told before it decides whether to take part.

They are fixed when the collection opens and never change; their digest stands in every round's context, so devices
that were told different terms can never be summed together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from mapveil.errors import InputError, ParameterError
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.tiling import Tiling
from mapveil.maps.mechanism import AnyMechanism
from mapveil.methods import Method, find_method
from mapveil.projection.message import read_query
from mapveil.projection.query import Query

__all__ = ["TRUSTS", "VERSION", "CollectionTerms", "canonical_json", "read_fraction", "read_json"]

VERSION: Final = 1
TRUSTS: Final = ("distributed", "local", "projection")
MOST_BYTES: Final = 1 << 24
_TILINGS: Final = ("grid", "quadtree", "tiles", "places")
_MOST_DEVICES: Final = 1 << 24


def canonical_json(record: Mapping[str, Any]) -> bytes:
    """The one encoding of a record: sorted keys, no spaces, UTF-8; what digests are taken of."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def read_json(data: bytes, what: str) -> dict[str, Any]:
    """Read an object that came over the wire.

    Raises
    ------
    InputError
        It is no JSON object, or longer than 16 MiB.
    """
    if len(data) > MOST_BYTES:
        raise InputError(f"{what} of {len(data)} bytes; at most {MOST_BYTES} are accepted")
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise InputError(f"{what} is no JSON object")
    return record


@dataclass(frozen=True, kw_only=True)
class CollectionTerms:
    """What a collection asks of every device, and what it promises.

    Parameters
    ----------
    identifier : str
        32 hexadecimal digits, drawn at random.
    title : str
        For people; at most 200 characters.
    trust : str
        ``distributed``, ``local`` or ``projection``.
    method : str
        A method of that trust, see :mod:`mapveil.methods`.
    epsilon : Fraction, optional
        What taking part may cost a device in all; none for a projection.
    options : mapping
        The mechanism's other parameters.
    tiling : mapping
        The cells, as :meth:`mapveil.geo.tiling.Tiling.to_dict` writes them.
    devices : int
        How many are wanted: the collection begins (or ends) as soon as they are there.
    minimum : int
        With fewer nothing is made; at least 3.
    active : bool
        Whether secure sums are also safe against a server that lies about who is in them.
    query : bytes
        What a projection asks (:func:`mapveil.projection.message.write_query`); empty otherwise.

    Raises
    ------
    InputError
        A term is of the wrong kind, or outside its range.
    """

    identifier: str
    title: str
    trust: str
    method: str
    epsilon: Fraction | None
    options: Mapping[str, Any]
    tiling: Mapping[str, Any]
    devices: int
    minimum: int
    active: bool = True
    query: bytes = b""

    def __post_init__(self) -> None:
        _check(_hexadecimal(self.identifier, 16), "identifier", "32 hexadecimal digits are")
        _check(isinstance(self.title, str) and len(self.title) <= 200, "title", "at most 200 characters are")
        _check(self.trust in TRUSTS, "trust", f"{', '.join(TRUSTS)} is")
        _check(isinstance(self.method, str), "method", "the name of a method is")
        _check(isinstance(self.options, Mapping), "options", "an object of parameters is")
        _check(_count(self.devices, 3, _MOST_DEVICES), "devices", f"3 to {_MOST_DEVICES} is")
        _check(_count(self.minimum, 3, self.devices), "minimum", f"3 to {self.devices} is")
        _check(isinstance(self.active, bool), "active", "true or false is")
        kind = self.tiling.get("kind") if isinstance(self.tiling, Mapping) else None
        _check(kind in _TILINGS, "tiling", f"a record of one of {', '.join(_TILINGS)} is")
        _check(
            bool(self.query) == (self.trust == "projection"),
            "query",
            "one for a projection, and only there, is",
        )

    @cached_property
    def method_row(self) -> Method:
        """The method's row of the table.

        Raises
        ------
        ParameterError
            There is no such method.
        """
        return find_method(self.method, self.trust)

    @cached_property
    def mechanism(self) -> AnyMechanism:
        """The mechanism with these parameters; both halves of the collection use it.

        Raises
        ------
        ParameterError
            The method does not exist, or an option is none of it.
        """
        return self.method_row.make(self.epsilon, self.options)

    @cached_property
    def cells(self) -> Tiling:
        """The tiling.

        Raises
        ------
        InputError
            The record is none.
        """
        return tiling_from_dict(self.tiling)

    @cached_property
    def waves(self) -> Query:
        """What a projection asks.

        Raises
        ------
        InputError
            It is no query of this version.
        """
        return read_query(self.query)

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record, for the wire."""
        return {
            "version": VERSION,
            "identifier": self.identifier,
            "title": self.title,
            "trust": self.trust,
            "method": self.method,
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "options": dict(self.options),
            "tiling": dict(self.tiling),
            "devices": self.devices,
            "minimum": self.minimum,
            "active": self.active,
            "query": self.query.hex(),
        }

    def encode(self) -> bytes:
        """The one encoding."""
        return canonical_json(self.to_record())

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of :meth:`encode`, 32 bytes."""
        return hashlib.sha256(self.encode()).digest()

    @classmethod
    def decode(cls, data: bytes) -> CollectionTerms:
        """Read what :meth:`encode` wrote. Run by: the device, that trusts nothing in it.

        Raises
        ------
        InputError
            It is no record of terms of this version.
        """
        record = read_json(data, "the terms of a collection")
        if record.pop("version", None) != VERSION:
            raise InputError(f"terms of another version; {VERSION} is accepted")
        try:
            query = bytes.fromhex(record.pop("query"))
            epsilon = read_fraction(record.pop("epsilon"), "epsilon", missing=True)
            return cls(query=query, epsilon=epsilon, **record)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ParameterError):
                raise
            raise InputError(f"the terms of a collection lack something ({error})") from None


def read_fraction(value: object, name: str, *, missing: bool = False) -> Fraction | None:
    """An exact number above 0 as its text, ``"1/3"`` or ``"0.5"``; None where it may be missing and is.

    Raises
    ------
    InputError
        It is no such text.
    """
    if value is None and missing:
        return None
    try:
        if not isinstance(value, str) or len(value) > 200:
            raise ValueError
        exact = Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"{name} is {str(value)[:40]!r}; a number above 0 as text, such as '1/3', is accepted"
        ) from None
    if exact <= 0:
        raise InputError(f"{name} is {value}; a number above 0 is accepted")
    return exact


def _hexadecimal(text: object, length: int) -> bool:
    digits = "0123456789abcdef"
    return isinstance(text, str) and len(text) == 2 * length and all(digit in digits for digit in text)


def _count(value: object, low: int, high: object) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool) and isinstance(high, int)
    return whole and low <= value <= high  # type: ignore[operator]


def _check(good: bool, name: str, accepted: str) -> None:
    if not good:
        raise InputError(f"{name} of a collection's terms: {accepted} accepted")
