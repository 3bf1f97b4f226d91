"""The messages between two operators: a job of verification in two requests, and a query with its answer.

A message is one CBOR array of unsigned integers and byte strings, in its one encoding; reports' shares are
``ReportShare`` of draft-ietf-ppm-dap-16. Deviation from the draft: the reports of a job travel as columns, so that they
are verified as arrays, and a job takes two requests whatever the VDAF.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum
from fractions import Fraction
from typing import Any, Final, NamedTuple, Self

import numpy as np

from mapveil_client import canonical_cbor
from mapveil_client.announcement import read_encoding
from mapveil_client.canonical_cbor import NotCanonical
from mapveil_client.encodings import Encoding
from mapveil_client.errors import InputError
from mapveil_client.terms import canonical_json, read_fraction
from mapveil_client.two_operators.finite_fields import Octets
from mapveil_client.two_operators.sealed_report import HelperShare

MOST_REPORTS: Final = 4096
"""Largest job."""

_MOST_PURPOSE: Final = 200
_MOST_QUERY: Final = 1 << 20  # bytes; every node of a raster of 128 x 128 sites is 0.4 MB
_MOST_COPIES: Final = 64  # of a site: with the most sites of a task, 8 MB of coordinates
_MOST_SUMS: Final = 1 << 18  # of an answer: 4 MB in the wider field


class Reason(IntEnum):
    """Why a report is refused, by the number of ``ReportError`` in the draft; 0 for one that is not."""

    NONE = 0
    REPLAYED = 2
    SEALED_FOR_ANOTHER = 5
    NOT_VERIFIED = 6
    MALFORMED = 8

    @property
    def words(self) -> str:
        """For people."""
        return self.name.lower().replace("_", " ")


def read_array(data: bytes, what: str, *kinds: type) -> list[Any]:
    """Read an array of values of these kinds.

    Raises
    ------
    InputError
        It is none.
    """
    try:
        values = canonical_cbor.decode(data)
    except NotCanonical as error:
        raise InputError(f"{what} is not in its encoding ({error})") from None
    if len(values) != len(kinds) or not all(map(isinstance, values, kinds)):
        raise InputError(f"{what} must be an array of {len(kinds)} values of their kinds")
    return values


def byte_rows(data: bytes, count: int, what: str) -> Octets:
    """Bytes as rows of one size.

    Raises
    ------
    InputError
        They do not divide evenly.
    """
    if not data:  # of a scheme without a second round
        return np.zeros((count, 0), dtype=np.uint8)
    if len(data) % count:
        raise InputError(f"{what}: {len(data)} bytes cannot be of {count} reports")
    return np.frombuffer(data, dtype=np.uint8).reshape(count, -1)


class JobRequest(NamedTuple):
    """The leader's first message of a job: the helper's shares of reports, and its own shares of their proofs."""

    shares: tuple[HelperShare, ...]
    openings: Octets  # shape (reports, bytes)

    def encode(self) -> bytes:
        """Its bytes."""
        parts = [share.encode() for share in self.shares]
        packed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return canonical_cbor.encode([len(parts), packed, self.openings.tobytes()])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote; raises InputError where it is none."""
        count, packed, openings = read_array(data, "a job's request", int, bytes, bytes)
        if not 1 <= count <= MOST_REPORTS:
            raise InputError(f"a job must have 1 to {MOST_REPORTS} reports, got {count}")
        shares, at = [], 0
        for _ in range(count):
            size = int.from_bytes(packed[at : at + 4], "big")
            shares.append(HelperShare.decode(packed[at + 4 : at + 4 + size]))
            at += 4 + size
        if at != len(packed):
            raise InputError("a job's request has bytes after its reports")
        if len({share.metadata.report_id for share in shares}) != count:
            raise InputError("a job's request has one report twice")
        return cls(tuple(shares), byte_rows(openings, count, "a job's request"))


class JobReply(NamedTuple):
    """The helper's message of a job; without columns where it refuses every report at sight."""

    reasons: tuple[Reason, ...]  # of each report
    message: bytes  # the columns of a Response, row after row
    shares: bytes

    def encode(self) -> bytes:
        """Its bytes."""
        return canonical_cbor.encode([bytes(self.reasons), self.message, self.shares])

    @classmethod
    def decode(cls, data: bytes, count: int) -> Self:
        """Read what :meth:`encode` wrote of so many reports; raises InputError where it is none."""
        reasons, message, shares = read_array(data, "a job's reply", bytes, bytes, bytes)
        if len(reasons) != count:
            raise InputError(f"a job's reply is of {len(reasons)} reports; expected {count}")
        try:
            return cls(tuple(map(Reason, reasons)), message, shares)
        except ValueError:
            raise InputError("a job's reply has a reason that there is not") from None


class JobClosing(NamedTuple):
    """The leader's last message of a job."""

    accepted: Sequence[bool]
    shares: bytes

    def encode(self) -> bytes:
        """Its bytes."""
        return canonical_cbor.encode([bytes(self.accepted), self.shares])

    @classmethod
    def decode(cls, data: bytes, count: int) -> Self:
        """Read what :meth:`encode` wrote of so many reports; raises InputError where it is none."""
        accepted, shares = read_array(data, "a job's closing", bytes, bytes)
        if len(accepted) != count or not set(accepted) <= {0, 1}:
            raise InputError(f"a job's closing decides on {len(accepted)} reports; expected {count}")
        return cls([bool(each) for each in accepted], shares)


class AskedQuery(NamedTuple):
    """A query of a plan, as the leader puts it to both operators."""

    purpose: str
    encoding: Encoding
    epsilon: Fraction

    def encode(self) -> bytes:
        """Its one encoding."""
        record = {"purpose": self.purpose, "encoding": self.encoding.to_dict(), "epsilon": str(self.epsilon)}
        return canonical_json(record)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote; raises InputError where it is none, or too large to answer."""
        if len(data) > _MOST_QUERY:
            raise InputError(f"a query has {len(data)} bytes; expected at most {_MOST_QUERY}")
        try:
            record = json.loads(data)
            purpose, encoding, epsilon = (record[name] for name in ("purpose", "encoding", "epsilon"))
        except (ValueError, RecursionError, KeyError, TypeError):
            raise InputError("a query must be a record of purpose, encoding and epsilon") from None
        if not (isinstance(purpose, str) and purpose.isprintable() and len(purpose) <= _MOST_PURPOSE):
            raise InputError(
                f"a query's purpose must be a printable text of at most {_MOST_PURPOSE} characters"
            )
        groups = read_encoding(encoding)
        if groups.copies > _MOST_COPIES:
            raise InputError(f"a query must count a site at most {_MOST_COPIES} times, got {groups.copies}")
        try:
            length = groups.length
        except OverflowError:
            raise InputError("a query's levels must be those of a tiling") from None
        if not 1 <= length <= _MOST_SUMS:
            raise InputError(f"a query must have 1 to {_MOST_SUMS} groups of sites, got {length}")
        return cls(purpose, groups, read_fraction(epsilon, "a query's epsilon"))
