r"""How a device signs a request, and how the collector checks it.

What is signed is

.. math:: \text{"mapveil request 1"} \,\|\, 0 \,\|\, \text{method} \,\|\, 0 \,\|\, \text{path} \,\|\, 0
          \,\|\, \operatorname{SHA256}(\text{body})

where: path is the request's path with its query. There is no clock in it: a path names one collection, one round and
one phase, and each is accepted once, so a replay repeats what was said and changes nothing. The header is
``Authorization: Mapveil-Device <id> <signature>``, the id a decimal number and the signature 128 hexadecimal digits.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from mapveil_client.errors import InputError
from mapveil_client.secure_sum.identity import Identity

SCHEME: Final = "Mapveil-Device"
_PURPOSE: Final = b"mapveil request 1\0"
_ENROLMENT: Final = b"mapveil enrolment 1\0"
_SIGNATURE_DIGITS: Final = 128


class SignedBy(NamedTuple):
    """Who signed a request, as its header says."""

    device: int
    signature: bytes  # 64


def request_statement(method: str, path: str, body: bytes) -> bytes:
    """What is signed of a request.

    Parameters
    ----------
    method : str
        Such as ``PUT``.
    path : str
        With its query, as it is sent.
    body : bytes
        As it is sent; empty where there is none.
    """
    return _PURPOSE + method.encode() + b"\0" + path.encode() + b"\0" + hashlib.sha256(body).digest()


def enrolment_statement(token: str, public_key: bytes) -> bytes:
    """What a new device signs: that it holds the key it enrols with this token."""
    return _ENROLMENT + hashlib.sha256(token.encode()).digest() + public_key


def authorization(identity: Identity, device: int, method: str, path: str, body: bytes = b"") -> str:
    """The header of a signed request. Run by: the device."""
    return f"{SCHEME} {device} {identity.sign(request_statement(method, path, body)).hex()}"


def read_authorization(header: str) -> SignedBy:
    """Read the header of a request. Run by: the collector.

    Raises
    ------
    InputError
        It is no such header.
    """
    parts = header.split(" ")
    if len(parts) == 3 and parts[0] == SCHEME and len(parts[2]) == _SIGNATURE_DIGITS:
        try:
            if parts[1].isascii() and parts[1].isdecimal() and len(parts[1]) <= 18:
                return SignedBy(int(parts[1]), bytes.fromhex(parts[2]))
        except ValueError:
            pass
    raise InputError(f"the Authorization header is not '{SCHEME} <id> <128 hexadecimal digits>'")
