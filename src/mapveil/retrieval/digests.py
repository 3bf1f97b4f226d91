"""Domain separation: every hash of a retrieval names what it is for.

Two uses never share an input: each starts with the protocol's name, its version and the number of its purpose,
and every part after that is preceded by its length.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Final

PROTOCOL: Final = b"mapveil retrieval"
VERSION: Final = 1
HASH_BYTES: Final = 32

_LENGTH_BYTES: Final = 8


class Purpose(IntEnum):
    """The purpose of a hash; numbers are never reused."""

    DATABASE = 1  # names a version of a database
    MATRIX = 2  # key of the stream that the public matrix is read from
    HINT = 3  # binds an offer to its hint


def digest(purpose: Purpose, *parts: bytes | memoryview) -> bytes:
    r"""SHA-256 of a purpose and its particulars; distinct particulars differ.

    .. math:: \mathrm{SHA256}(\mathrm{name} \,\|\, \mathrm{version}_2 \,\|\, \mathrm{purpose}_2 \,\|\,
        |p_1|_8\, p_1 \,\|\, |p_2|_8\, p_2 \,\|\, \dots)

    where: :math:`p_i` are ``parts``, and :math:`x_n` is a number in n bytes, most significant first. Run by: both
    sides.

    Examples
    --------
    >>> digest(Purpose.MATRIX, b"").hex()[:16]
    '03af755d248b9fe3'
    """
    written = hashlib.sha256(PROTOCOL + VERSION.to_bytes(2, "big") + int(purpose).to_bytes(2, "big"))
    for part in parts:
        view = memoryview(part)
        written.update(view.nbytes.to_bytes(_LENGTH_BYTES, "big"))
        written.update(view)
    return written.digest()
