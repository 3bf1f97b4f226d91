"""The messages of a secure sum: the fields of each, their sizes, and its one encoding.

Every message is one canonical CBOR array::

    [version, message, digest of the round's parameters, client, fields ...]

where: ``message`` is a number of :class:`~mapveil_client.secure_sum.states.Message`, ``client`` the client
that sends or receives it, and the fields are the byte strings of ``LAYOUTS``. ``secure_sum.cddl``
says the same in CDDL.

A set of clients (or of slots) is a bit map: member i is bit ``i % 8`` (least significant is 0) of
byte ``i // 8``; bits past the last member are zero.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client import canonical_cbor
from mapveil_client.arrays import BoolArray
from mapveil_client.secure_sum.masks import TAG_BYTES, VERSION
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.shamir import DIGITS
from mapveil_client.secure_sum.states import Message, PeerFault
from mapveil_client.secure_sum.vectors import packed_size

KEY_BYTES = 32
"""A public key, X25519 or Ed25519; a seed is as long."""
HASH_BYTES = 32
SIGNATURE_BYTES = 64
SHARE_BYTES = 2 * DIGITS
"""A share of one secret: 17 numbers below 65521, little-endian, two bytes each."""
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""Sealed: the share of the self-mask seed, then the share of the mask key."""
DIGEST_BYTES = 16
"""Start of a SHA-256: nobody finds a second input of one that an honest client made, with less than 2^128 work."""
PAIR_DIGEST = slice(0, DIGEST_BYTES)
BOX_TAG = slice(PAIR_DIGEST.stop, PAIR_DIGEST.stop + TAG_BYTES)
SHARE_DIGESTS = slice(BOX_TAG.stop, BOX_TAG.stop + 2 * DIGEST_BYTES)
BOX_BYTES = SHARE_DIGESTS.stop + SEALED_BYTES
"""A box: the digest of the pair's keys, the tag of what follows, the digests of both shares, and the sealed shares."""
DELIVERED_BYTES = BOX_BYTES - PAIR_DIGEST.stop
"""A box as its receiver is given it: without the first digest, which the server has compared."""
COMPLAINT_BYTES = KEY_BYTES + HASH_BYTES
"""A complaint: the key that shows what is wrong with a box, and the hash of a key of the box sent back."""

MASK_KEY = slice(0, KEY_BYTES)
SEAL_KEY = slice(KEY_BYTES, 2 * KEY_BYTES)
IDENTITY = slice(2 * KEY_BYTES, 3 * KEY_BYTES)
SIGNATURE = slice(3 * KEY_BYTES, 3 * KEY_BYTES + SIGNATURE_BYTES)
CERTIFICATE_BYTES = 3 * 8 + SIGNATURE_BYTES
"""Of a certificate beside an identity: serial, not before, expires, and the authority's signature."""
CERTIFICATE = slice(SIGNATURE.stop, SIGNATURE.stop + CERTIFICATE_BYTES)
"""Where each part of a client's keys stands; the last three in a signed round only."""
SERIAL_BYTES = 8
SERIAL = slice(CERTIFICATE.start, CERTIFICATE.start + SERIAL_BYTES)

_PRINT_BYTES = 8
PRINT = slice(IDENTITY.start, IDENTITY.start + _PRINT_BYTES)
"""Start of an identity, which tells one device from another: two honest ones share it once in 2^37 rounds of 10,000."""
LISTED_BYTES = _PRINT_BYTES + 16
"""The entry of one client in the roster's list: that start, and the start of a hash of everything it advertised."""

_DISTINCT = (("identity", PRINT), ("certificate", SERIAL), ("mask key", MASK_KEY), ("seal key", SEAL_KEY))


def distinct_parts(entry: bytes) -> list[tuple[str, bytes]]:
    """The parts of one client's keys that no other client of a signed round may have, each with its name."""
    return [(name, entry[part]) for name, part in _DISTINCT]


def find_repeated(entry: bytes, seen: set[tuple[str, bytes]]) -> str:
    """Name a part of one client's keys that is among those ``seen``; empty where none is. Run by: both sides."""
    return next((part[0] for part in distinct_parts(entry) if part in seen), "")


class Field(NamedTuple):
    """A byte string: ``each`` bytes, ``most`` times at most, and exactly so often where ``exact``."""

    name: str
    each: Callable[[RoundParameters], int]
    most: Callable[[RoundParameters], int] = lambda _: 1
    exact: bool = True
    usual: bool = True  # False: empty where nobody is at fault


def roster_entry_bytes(parameters: RoundParameters) -> int:
    """Bytes of one client's keys: mask key, seal key and, in a signed round, identity, signature and certificate."""
    return CERTIFICATE.stop if parameters.signed else SEAL_KEY.stop


def _neighbours(parameters: RoundParameters) -> int:
    return parameters.neighbours


def _committee(parameters: RoundParameters) -> int:
    return parameters.committee


def _committee_set(name: str) -> Field:
    return Field(name, lambda _: 1, lambda parameters: -(-parameters.committee // 8))


def _set(name: str, members: Callable[[RoundParameters], int]) -> Field:
    return Field(name, lambda parameters: -(-members(parameters) // 8))


def receipt_bytes(parameters: RoundParameters) -> int:
    """Bytes of one client's receipt as others are given it: slots that sent it shares, signature. 0 if not active."""
    return -(-parameters.neighbours // 8) + SIGNATURE_BYTES if parameters.active else 0


LAYOUTS: dict[Message, tuple[Field, ...]] = {
    Message.ADVERTISE: (Field("keys", roster_entry_bytes),),
    Message.ROSTER: (
        Field(
            "graph", lambda _: 8, lambda p: (KEY_BYTES + (LISTED_BYTES * p.clients if p.active else 0)) // 8
        ),
        _set("present", _neighbours),
        Field("keys", roster_entry_bytes, _neighbours, exact=False),
        _committee_set("committee"),
        Field("committee_keys", roster_entry_bytes, _committee, exact=False),
    ),
    Message.SHARES: (
        Field("commitment", lambda _: HASH_BYTES),
        Field("boxes", lambda _: BOX_BYTES, _neighbours, exact=False),
    ),
    Message.INBOX: (
        _set("senders", _neighbours),
        Field("boxes", lambda _: DELIVERED_BYTES, _neighbours, exact=False),
    ),
    Message.MASKED_INPUT: (
        Field("vector", lambda parameters: packed_size(parameters.length, parameters.bits)),
        _set("unopened", _neighbours),
        Field("complaints", lambda _: COMPLAINT_BYTES, _neighbours, exact=False, usual=False),
        Field("receipt", lambda _: 1, lambda p: SIGNATURE_BYTES if p.active else 0),
    ),
    Message.SURVIVORS: (
        _set("included", lambda parameters: parameters.clients),
        Field("receipts", lambda _: 1, lambda p: receipt_bytes(p) * p.neighbours),
    ),
    Message.CONSENT: (Field("signature", lambda _: SIGNATURE_BYTES),),
    Message.CONFIRMATIONS: (
        _committee_set("signers"),
        Field("signatures", lambda _: SIGNATURE_BYTES, lambda p: p.quorum, exact=False),
    ),
    Message.ANSWER: (
        _set("given", _neighbours),
        Field("revealed", lambda _: SHARE_BYTES, _neighbours, exact=False),
    ),
}
"""The fields of each message, in order."""

_HEAD_FIELDS = 4


@functools.lru_cache(maxsize=64)
def largest(parameters: RoundParameters, message: Message) -> int:
    """Bytes of the largest message of a kind: longer ones are refused unread."""
    return _size(parameters, message, LAYOUTS[message])


@functools.lru_cache(maxsize=64)
def usual_size(parameters: RoundParameters, message: Message) -> int:
    """Bytes of a message of a kind where all neighbours are there and nobody is at fault."""
    return _size(parameters, message, tuple(field for field in LAYOUTS[message] if field.usual))


def _size(parameters: RoundParameters, message: Message, filled: tuple[Field, ...]) -> int:
    head = canonical_cbor.encode([VERSION, int(message), parameters.digest, parameters.clients - 1])
    sizes = [
        field.each(parameters) * field.most(parameters) if field in filled else 0
        for field in LAYOUTS[message]
    ]
    return len(head) + canonical_cbor.encoded_size(sizes)


def encode(parameters: RoundParameters, message: Message, client: int, *fields: bytes) -> bytes:
    """Write a message from or to ``client``. Run by: both sides."""
    return canonical_cbor.encode([VERSION, int(message), parameters.digest, client, *fields])


def decode(
    parameters: RoundParameters, data: bytes, client: int, expected: Sequence[Message]
) -> tuple[Message, list[bytes]]:
    """Read a message from or to ``client``, one of those ``expected``. Run by: both sides.

    Returns
    -------
    message, fields
        Every field has a size that its layout allows; its meaning is for the party to check.

    Raises
    ------
    PeerFault
        Anything else: too large, not canonical, another version, round, client or time.
    """
    if not expected:
        raise PeerFault(f"a message of {len(data)} bytes; expected none now")
    most = max(largest(parameters, message) for message in expected)
    if len(data) > most:
        raise PeerFault(f"a message of {len(data)} bytes; expected at most {most} now")
    try:
        values = canonical_cbor.decode(bytes(data))
    except canonical_cbor.NotCanonical as error:
        raise PeerFault(f"a message that is no canonical CBOR: {error}") from None
    wanted = (VERSION, None, parameters.digest, client)
    if len(values) < _HEAD_FIELDS:
        raise PeerFault(f"a message of {len(values)} parts; expected {_HEAD_FIELDS} and its fields")
    for what, value, right in zip(("version", "", "round", "client"), values, wanted, strict=False):
        if right is not None and value != right:
            raise PeerFault(f"a message of another {what}; expected this party's own")
    kind, fields = values[1], values[_HEAD_FIELDS:]
    message = next((message for message in expected if message == kind), None)
    if message is None:
        names = " or ".join(message.name for message in expected)
        known = Message(kind).name if kind in tuple(Message) else "unknown"
        raise PeerFault(f"a message of kind {known}; expected {names} now")
    layout = LAYOUTS[message]
    if len(fields) != len(layout):
        raise PeerFault(f"{message.name} of {len(fields)} fields; expected {len(layout)}")
    checked: list[bytes] = []
    for value, field in zip(fields, layout, strict=True):
        if not isinstance(value, bytes):
            raise PeerFault(f"{message.name}'s {field.name} is a number; expected a byte string")
        unit, times = field.each(parameters), field.most(parameters)
        size, most = len(value), unit * times
        if size > most or size % unit or (field.exact and size != most):
            wanted_size = f"exactly {most}" if field.exact else f"a multiple of {unit} up to {most}"
            raise PeerFault(f"{message.name}'s {field.name} of {size} bytes; expected {wanted_size}")
        checked.append(value)
    return message, checked


def read_roster(graph: bytes) -> tuple[npt.NDArray[np.uint8], BoolArray]:
    """Read the list of an active round's ``graph``: shape (n, 24), and the clients that advertised, shape (n,).

    Raises
    ------
    PeerFault
        One identity stands in it twice.
    """
    listed = np.frombuffer(graph[KEY_BYTES:], dtype=np.uint8).reshape(-1, LISTED_BYTES)
    identities = np.ascontiguousarray(listed[:, :_PRINT_BYTES])
    present: BoolArray = np.count_nonzero(identities, axis=1) > 0
    if np.unique(identities[present], axis=0).shape[0] < int(np.count_nonzero(present)):
        raise PeerFault("the server's roster lists one identity twice")
    return listed, present


def write_set(members: BoolArray) -> bytes:
    """Write a set as a bit map, ``ceil(len / 8)`` bytes."""
    return np.packbits(members, bitorder="little").tobytes()


def read_set(data: bytes, count: int) -> BoolArray:
    """Read the bit map of a set among ``count``.

    Raises
    ------
    PeerFault
        A bit past the last member is set.
    """
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if np.any(bits[count:]):
        raise PeerFault(f"a set with members past {count - 1}; expected zeros there")
    return bits[:count].astype(np.bool_)


def rows_by_slot(data: bytes, slots: BoolArray, unit: int, name: str) -> npt.NDArray[np.uint8]:
    """Give each slot of a set its ``unit`` bytes of ``data``: shape (k, unit), zero where a slot is not in the set.

    Raises
    ------
    PeerFault
        ``data``, called ``name``, has more or fewer bytes than the set's members need.
    """
    count = int(np.count_nonzero(slots))
    if len(data) != count * unit:
        raise PeerFault(f"{name} of {len(data)} bytes for {count} slots; expected {unit} bytes each")
    rows = np.zeros((slots.size, unit), dtype=np.uint8)
    rows[slots] = np.frombuffer(data, dtype=np.uint8).reshape(count, unit)
    return rows
