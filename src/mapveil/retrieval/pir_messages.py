"""The messages between client and server.

Every message is one canonical CBOR array (:mod:`mapveil_client.canonical_cbor`), in CDDL in ``retrieval.cddl``::

    [version, 1, database, records, record bytes, records in a column, digest of the hint, about]    offer
    [version, 2, database, first row, rows of the hint]                                              hint
    [version, 3, database, words]                                                                    query
    [version, 4, database, words]                                                                    answer
    [version, 5, database]                                                                           outdated

where: ``database`` is the SHA-256 that names the version of the database, and words are 32 bits, little-endian.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.retrieval.digests import HASH_BYTES, VERSION
from mapveil.retrieval.lattice_parameters import SECRET, Words
from mapveil.retrieval.shape import Shape
from mapveil_client import canonical_cbor
from mapveil_client.errors import InputError, ParameterError

_ROW_BYTES: Final = 4 * SECRET


class OutdatedHint(InputError):
    """The hint belongs to another version of the database: fetch the new offer and hint, then query again.

    At the server, ``reply`` is the message for the client; at the client it is empty.
    """

    def __init__(self, text: str, reply: bytes = b"") -> None:
        super().__init__(text)
        self.reply = reply

    def __reduce__(self) -> tuple[type[OutdatedHint], tuple[str, bytes]]:
        return type(self), (str(self), self.reply)


class Message(IntEnum):
    """The kinds of messages; numbers are never reused."""

    OFFER = 1  # from the server: the description of the database
    HINT = 2  # from the server: some rows of the hint
    QUERY = 3  # from the client
    ANSWER = 4  # from the server
    OUTDATED = 5  # from the server, instead of an answer: the current version of the database


class Offer(NamedTuple):
    """The description of a database that a client needs for a query."""

    database: bytes
    shape: Shape
    hint_digest: bytes
    about: bytes


class Hint(NamedTuple):
    """Some rows of the hint."""

    database: bytes
    first_row: int
    rows: Words  # (rows, 1024)


class Vector(NamedTuple):
    """A query or an answer."""

    database: bytes
    words: Words


_FIELDS: Final[dict[Message, tuple[type, ...]]] = {
    Message.OFFER: (bytes, int, int, int, bytes, bytes),
    Message.HINT: (bytes, int, bytes),
    Message.QUERY: (bytes, bytes),
    Message.ANSWER: (bytes, bytes),
    Message.OUTDATED: (bytes,),
}


def write_offer(offer: Offer) -> bytes:
    """Encode an offer. Run by: the server."""
    shape = offer.shape
    numbers = (shape.records, shape.record_bytes, shape.per_column)
    return _write(Message.OFFER, offer.database, *numbers, offer.hint_digest, offer.about)


def read_offer(data: bytes) -> Offer:
    """Decode an offer; an ``InputError`` for another message or a layout out of range. Run by: the client."""
    database, records, record_bytes, per_column, hint_digest, about = _read(data, Message.OFFER)
    if len(hint_digest) != HASH_BYTES:
        raise InputError(
            f"the digest of an offer's hint must have {HASH_BYTES} bytes, got {len(hint_digest)}"
        )
    try:
        shape = Shape(records, record_bytes, per_column)
    except ParameterError as error:
        raise InputError(f"an offer whose {error}") from None
    return Offer(database, shape, hint_digest, about)


def write_hint(hint: Hint) -> bytes:
    """Encode some rows of the hint. Run by: the server."""
    return _write(Message.HINT, hint.database, hint.first_row, _packed(hint.rows))


def read_hint(data: bytes) -> Hint:
    """Decode some rows of the hint; an ``InputError`` for another message. Run by: the client."""
    database, first_row, rows = _read(data, Message.HINT)
    if not rows or len(rows) % _ROW_BYTES:
        raise InputError(f"a hint must have whole rows of {_ROW_BYTES} bytes, got {len(rows)} bytes")
    return Hint(database, first_row, _unpacked(rows).reshape(-1, SECRET))


def write_vector(kind: Message, vector: Vector) -> bytes:
    """Encode a query or an answer. Run by: the client, the server."""
    return _write(kind, vector.database, _packed(vector.words))


def read_vector(kind: Message, data: bytes) -> Vector:
    """Decode a query or an answer of any number of words. Run by: the server, the client.

    Raises
    ------
    InputError
        The message is not of this version and kind, or has no whole words.
    """
    database, words = _read(data, kind)
    if len(words) % 4:
        raise InputError(f"{_named(kind)} must have whole words of 4 bytes, got {len(words)} bytes")
    return Vector(database, _unpacked(words))


def write_outdated(database: bytes) -> bytes:
    """Encode the current version of the database. Run by: the server."""
    return _write(Message.OUTDATED, database)


def read_outdated(data: bytes) -> bytes:
    """Decode the current version of the database; an ``InputError`` for another message. Run by: the client."""
    (database,) = _read(data, Message.OUTDATED)
    return bytes(database)


def read_kind(data: bytes) -> Message:
    """The kind of a message by its head; an ``InputError`` where there is no head of this version."""
    head = bytes(data[:3])
    for kind, fields in _FIELDS.items():
        if head == bytes([0x80 | (2 + len(fields)), VERSION, kind]):
            return kind
    raise InputError(f"is no message of retrieval, version {VERSION}")


def _write(kind: Message, *fields: int | bytes) -> bytes:
    return canonical_cbor.encode([VERSION, int(kind), *fields])


def _read(data: bytes, kind: Message) -> list[Any]:
    """The fields of a message of this kind, each of its type."""
    if read_kind(data) is not kind:
        raise InputError(f"the message must be {_named(kind)}, got {_named(read_kind(data))}")
    try:
        values: list[Any] = canonical_cbor.decode(bytes(data))[2:]
    except canonical_cbor.NotCanonical as error:
        raise InputError(f"{_named(kind)} that is no canonical CBOR: {error}") from None
    for value, expected in zip(values, _FIELDS[kind], strict=True):
        if not isinstance(value, expected):
            raise InputError(f"{_named(kind)} whose fields are of other types")
    if len(values[0]) != HASH_BYTES:
        raise InputError(f"the version of a database must have {HASH_BYTES} bytes, got {len(values[0])}")
    return values


def _named(kind: Message) -> str:
    """The kind with its article."""
    return f"{'an' if kind.name[0] in 'AO' else 'a'} {kind.name.lower()}"


def _packed(words: Words) -> bytes:
    return words.astype("<u4", copy=False).tobytes()


def _unpacked(data: bytes) -> Words:
    return np.frombuffer(data, dtype="<u4").astype(np.uint32)
