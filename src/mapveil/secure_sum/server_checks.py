"""The server's checks: each reads one field of a client's message and returns its value."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray
from mapveil_client.secure_sum.keys import Enrolled, key_statement, signed_by
from mapveil_client.secure_sum.masks import agree, word_type
from mapveil_client.secure_sum.messages import (
    BOX_BYTES,
    IDENTITY,
    MASK_KEY,
    SEAL_KEY,
    SHARE_BYTES,
    SIGNATURE,
    read_set,
    rows_by_slot,
)
from mapveil_client.secure_sum.parameters import RoundParameters
from mapveil_client.secure_sum.shamir import PRIME
from mapveil_client.secure_sum.states import PeerFault
from mapveil_client.secure_sum.vectors import unpack

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

ByteArray = npt.NDArray[np.uint8]


@functools.cache
def _probe() -> X25519PrivateKey:
    """Any private key: with a public key of small order all of them agree on zero."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(bytes(range(32)))


def check_keys(parameters: RoundParameters, client: int, keys: bytes, enrolled: Enrolled | None) -> ByteArray:
    """Refuse keys with which no neighbour could work, or that are not signed by the device.

    Raises
    ------
    PeerFault
        A key of small order, a wrong signature, or an identity that is not enrolled.
    """
    for part in (MASK_KEY, SEAL_KEY):
        agree(_probe(), keys[part], b"")
    if parameters.signed:
        statement = key_statement(parameters, client, keys[: SEAL_KEY.stop])
        if not signed_by(keys[IDENTITY], keys[SIGNATURE], statement):
            raise PeerFault("keys that are not signed by the identity beside them")
        if enrolled is not None and not enrolled(client, keys[IDENTITY]):
            raise PeerFault("keys signed by an identity that is not enrolled")
    return np.frombuffer(keys, dtype=np.uint8)


def check_boxes(boxes: bytes, present: BoolArray) -> ByteArray:
    """Refuse boxes for more or fewer neighbours than there are; shape (k, BOX_BYTES)."""
    return rows_by_slot(boxes, present, BOX_BYTES, "boxes")


def check_input(parameters: RoundParameters, vector: bytes) -> npt.NDArray[np.unsignedinteger]:
    """Refuse a vector whose last bits are not zero; words, shape (length,)."""
    return unpack(vector, parameters.length, parameters.bits).astype(word_type(parameters.bits))


def check_consent(keys: ByteArray, signature: bytes, statement: bytes) -> ByteArray:
    """Refuse a signature over anything but the survivors' ``statement``."""
    if not signed_by(keys[IDENTITY].tobytes(), signature, statement):
        raise PeerFault("a consent that does not sign the survivors")
    return np.frombuffer(signature, dtype=np.uint8)


def check_answer(given: bytes, shares: bytes, sharing: BoolArray) -> tuple[BoolArray, ByteArray]:
    """Refuse shares of clients that shared nothing, and numbers that no share can hold.

    Returns
    -------
    given, shares
        Shapes (k,) and (k, SHARE_BYTES).
    """
    slots = read_set(given, sharing.size)
    if np.any(slots & ~sharing):
        raise PeerFault("a share of a client that sent none")
    rows = rows_by_slot(shares, slots, SHARE_BYTES, "shares")
    if np.any(rows.view("<u2") >= PRIME):
        raise PeerFault(f"a share with a number of {PRIME} or above")
    return slots, rows
