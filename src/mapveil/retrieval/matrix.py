r"""The public matrix A, and the products with it that precede a query.

.. math:: H = D A \bmod 2^{32} \text{ (the hint)}, \qquad A s \bmod 2^{32} \text{ (hides a column)}, \qquad
    H s \bmod 2^{32} \text{ (uncovers the column)}

where: D is the database, l rows by m columns of int8, A has m rows of n = 1024 words, and s is a secret of n
numbers. Row j of A is 4096 bytes of the keystream of AES-256 in counter mode, from block 256 j on, read as
little-endian words. The key is a hash of the database's version: nobody chooses A, and a precomputation against A is
lost with the next version.

Words times short numbers are multiplied in 64-bit floats: below :math:`2^{53}` no sum rounds.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.retrieval.digests import Purpose, digest
from mapveil.retrieval.lattice_parameters import SECRET, Bytes, Words

Secret = npt.NDArray[np.int16]

_BLOCK: Final = 16
_ROW_BYTES: Final = 4 * SECRET
_CLIENT_ROWS: Final = 256  # at one time: 1 MiB of words, 2 MiB of floats
_SERVER_COLUMNS: Final = 2048  # |byte| <= 2^7, |word| <= 2^31: sums stay below 2^49
_SERVER_ROWS: Final = 2048


def matrix_key(version: bytes) -> bytes:
    """The AES key of A, 32 bytes. Run by: both sides."""
    return digest(Purpose.MATRIX, version)


def matrix_rows(key: bytes, start: int, count: int) -> Words:
    """Rows ``start`` up to ``start + count`` of A, shape (count, 1024). Run by: both sides."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    counter = (start * (_ROW_BYTES // _BLOCK)).to_bytes(_BLOCK, "big")
    stream = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    buffer = np.empty(count * _ROW_BYTES + _BLOCK, dtype=np.uint8)
    stream.update_into(bytes(count * _ROW_BYTES), buffer.data)
    words = buffer[: count * _ROW_BYTES].view("<u4")
    return words.astype(np.uint32, copy=False).reshape(count, SECRET)


def hint_of(matrix: Bytes, key: bytes) -> Words:
    """H for the database D, shape (rows, 1024). Run by: the server, once for each version."""
    rows, columns = matrix.shape
    hint = np.zeros((rows, SECRET), dtype=np.uint32)
    for left in range(0, columns, _SERVER_COLUMNS):
        part = matrix[:, left : left + _SERVER_COLUMNS]
        words = matrix_rows(key, left, part.shape[1]).view(np.int32).astype(np.float64)
        for top in range(0, rows, _SERVER_ROWS):
            below = slice(top, top + _SERVER_ROWS)
            hint[below] += _wrapped(part[below].astype(np.float64) @ words)
    return hint


def matrix_times_secret(key: bytes, columns: int, secret: Secret) -> Words:
    """A s, shape (columns,). Run by: the client, for each query."""
    product = np.empty(columns, dtype=np.uint32)
    for start in range(0, columns, _CLIENT_ROWS):
        count = min(_CLIENT_ROWS, columns - start)
        product[start : start + count] = hint_times_secret(matrix_rows(key, start, count), secret)
    return product


def hint_times_secret(hint: Words, secret: Secret) -> Words:
    """H s (or other words times s), shape (rows,). Run by: the client, for each query."""
    exact = secret.astype(np.float64)
    product = np.empty(hint.shape[0], dtype=np.uint32)
    for start in range(0, hint.shape[0], _CLIENT_ROWS):
        part = hint[start : start + _CLIENT_ROWS].view(np.int32)
        product[start : start + _CLIENT_ROWS] = _wrapped(part.astype(np.float64) @ exact)
    return product


def _wrapped(values: npt.NDArray[np.float64]) -> Words:
    """Whole numbers modulo 2^32."""
    return values.astype(np.int64).astype(np.uint32)
