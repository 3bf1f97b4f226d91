"""Domain separation: every hash of a retrieval names its purpose, so that two purposes never share an input."""

import hashlib
from enum import IntEnum
from typing import Final

PROTOCOL: Final = b"mapveil retrieval"
VERSION: Final = 1
HASH_BYTES: Final = 32


class Purpose(IntEnum):
    """The purpose of a hash; numbers are never reused."""

    DATABASE = 1  # names a version of a database
    MATRIX = 2  # key of the stream that the public matrix is read from
    HINT = 3  # binds an offer to its hint


def digest(purpose: Purpose, *parts: bytes | memoryview) -> bytes:
    r"""SHA-256 of a purpose and its parts, injectively encoded. Run by: both sides.

    .. math:: \mathrm{SHA256}(\mathrm{name} \,\|\, \mathrm{version}_2 \,\|\, \mathrm{purpose}_2 \,\|\,
        |p_1|_8\, p_1 \,\|\, |p_2|_8\, p_2 \,\|\, \dots)

    where: :math:`p_i` are ``parts``, and :math:`x_n` is a number in n bytes, most significant first.

    Examples
    --------
    >>> digest(Purpose.MATRIX, b"").hex()[:16]
    '03af755d248b9fe3'
    """
    written = hashlib.sha256(PROTOCOL + VERSION.to_bytes(2, "big") + int(purpose).to_bytes(2, "big"))
    for part in parts:
        view = memoryview(part)
        written.update(view.nbytes.to_bytes(8, "big"))
        written.update(view)
    return written.digest()
