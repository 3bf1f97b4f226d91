"""The one message of this wing: a phone's report, and its one encoding.

It is one canonical CBOR array (:mod:`mapveil_client.canonical_cbor`); ``local.cddl`` says the same in CDDL::

    [version, kind, domain, setting, symbol]     a symbol, an unsigned integer
    [version, kind, domain, setting, set]        a set of sites, a byte string of one bit for each

``domain`` is the fingerprint of the tiling, ``setting`` that of the randomizer on it: its kind and its integer
weights. A report on another version of the domain, or of another randomizer, is told apart from one that is garbled.
A report says nothing else: who sent it, and when, is for what carries it to keep or to forget.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mapveil_client import canonical_cbor
from mapveil_client.errors import InputError
from mapveil_client.local.randomizer import Randomizer, Reports, SetRandomizer

VERSION: Final = 1
_FIELDS: Final = 5


class Refused(NamedTuple):
    """A message that is no report of this collection."""

    number: int  # among the messages, from 0
    reason: str


class Sifted(NamedTuple):
    """The reports among some messages, and the messages that are none."""

    reports: Reports
    refused: tuple[Refused, ...]


def setting_fingerprint(randomizer: Randomizer) -> bytes:
    """16 bytes that tell this randomizer from every other, whatever the domain."""
    record = f"mapveil local setting {VERSION} {randomizer.kind} {randomizer.size} {randomizer.identity()}"
    return hashlib.sha256(record.encode()).digest()[:16]


def write_reports(reports: Reports, randomizer: Randomizer) -> list[bytes]:
    """Encode each phone's report. Run by: the client.

    Parameters
    ----------
    reports : Reports
        What :meth:`Randomizer.randomize` returned.
    randomizer : Randomizer
        Which randomized them.
    """
    head: list[int | bytes] = [
        VERSION,
        randomizer.kind,
        randomizer.domain.fingerprint,
        setting_fingerprint(randomizer),
    ]
    values: list[int | bytes] = (
        [row.tobytes() for row in reports.values]
        if isinstance(randomizer, SetRandomizer)
        else [int(symbol) for symbol in reports.values]
    )
    return [canonical_cbor.encode([*head, value]) for value in values]


def read_reports(messages: Sequence[bytes], randomizer: Randomizer) -> Reports:
    """Decode reports, all of them or none. Run by: the server.

    Raises
    ------
    InputError
        A message is truncated or garbled, of another domain or version of it, of another randomizer, or holds what
        this one does not send. It names the first.
    """
    made = sift_reports(messages, randomizer)
    if made.refused:
        first = made.refused[0]
        more = f" (and {len(made.refused) - 1} more)" if len(made.refused) > 1 else ""
        raise InputError(f"report {first.number}: {first.reason}{more}")
    return made.reports


def sift_reports(messages: Sequence[bytes], randomizer: Randomizer) -> Sifted:
    """Decode the reports among messages; what is none is listed and does not touch the others. Run by: the server.

    Parameters
    ----------
    messages : sequence of bytes
        As they came.
    randomizer : Randomizer
        Of this collection.
    """
    known = (randomizer.domain.fingerprint, setting_fingerprint(randomizer))
    found: list[int | bytes] = []
    refused: list[Refused] = []
    for number, data in enumerate(messages):
        try:
            found.append(_value(data, randomizer, known))
        except InputError as error:
            refused.append(Refused(number, str(error)))
    if isinstance(randomizer, SetRandomizer):
        rows = b"".join(value for value in found if isinstance(value, bytes))
        values = np.frombuffer(rows, dtype=np.uint8).reshape(len(found), randomizer.bytes)
        return Sifted(Reports(values), tuple(refused))
    return Sifted(Reports(np.array(found, dtype=np.int64)), tuple(refused))


def _value(data: bytes, randomizer: Randomizer, known: tuple[bytes, bytes]) -> int | bytes:
    """What a report of this randomizer holds."""
    try:
        fields = canonical_cbor.decode(bytes(data))
    except canonical_cbor.NotCanonical as error:
        raise InputError(f"is no report ({error})") from None
    if len(fields) != _FIELDS or fields[0] != VERSION:
        raise InputError(
            f"is no report of version {VERSION}; expected {_FIELDS} fields, the first the version"
        )
    _, kind, domain, setting, value = fields
    if domain != known[0]:
        raise InputError(
            f"is about another domain than {randomizer.domain.tiling.spec}, or another version of it"
        )
    if kind != randomizer.kind or setting != known[1]:
        raise InputError("is of another randomizer, or of another epsilon")
    if isinstance(randomizer, SetRandomizer):
        if not isinstance(value, bytes) or len(value) != randomizer.bytes:
            raise InputError(f"holds no set of sites; expected {randomizer.bytes} bytes")
        randomizer.check_sets(np.frombuffer(value, dtype=np.uint8)[None])
    elif not isinstance(value, int) or value >= randomizer.symbols:
        raise InputError(f"holds no symbol of this randomizer; expected 0 to {randomizer.symbols - 1}")
    return value
