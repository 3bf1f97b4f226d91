r"""The server's work: a matrix of bytes times a vector of words, modulo :math:`2^{32}`.

.. math:: y_i = \sum_j D_{ij}\, x_j \bmod 2^{32}

where: D is int8, x and y are uint32. Every byte of D is read once, so memory is the limit. Two kernels give the same
words: a compiled one (extra ``fast``), and one of NumPy alone. The latter splits x into four digits of 8 bits,
:math:`x = d_0 + 2^8 d_1 + 2^{16} d_2 + 2^{24} d_3`, from -128 to 127, and multiplies 32-bit floats: a product is at
most :math:`2^{14}` in magnitude and a sum of 1024 of them at most :math:`2^{24}`, so no step rounds.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.retrieval.lattice_parameters import Bytes, Words
from mapveil_client.errors import MissingExtra, require

ByteProduct = Callable[[Bytes, Words], Words]

_EXACT: Final = 1 << 10  # digits whose products a 32-bit float adds up exactly
_TILE_BYTES: Final = 1 << 19  # of the database, as floats at one time
_HEIGHT: Final = (32, 64)  # rows of a tile; BLAS would use a second thread for more
_DIGITS: Final = 4


def byte_product(compiled: bool | None = None) -> ByteProduct:
    """The kernel: the compiled one where its extra is installed (``None``), always, or never.

    ``True`` without the extra ``fast`` is a ``MissingExtra``.
    """
    if compiled is False:
        return plain_product
    try:
        return compiled_product()
    except MissingExtra:
        if compiled:
            raise
        return plain_product


def plain_product(matrix: Bytes, vector: Words) -> Words:
    """D x with NumPy alone, shape (rows,). Run by: the server."""
    rows, columns = matrix.shape
    blocks = -(-columns // _EXACT)
    digits = _signed_digits(vector, blocks).transpose(0, 2, 1)
    sums = np.empty((blocks, rows, _DIGITS), dtype=np.float32)
    # Whole rows are read, so that memory is read in order. Past the last column a tile stays zero.
    height = int(np.clip(_TILE_BYTES // columns, *_HEIGHT))
    tile = np.zeros((height, blocks * _EXACT), dtype=np.float32)
    parts = tile.reshape(height, blocks, _EXACT).transpose(1, 0, 2)
    for top in range(0, rows, height):
        high = min(height, rows - top)
        tile[:high, :columns] = matrix[top : top + high]
        np.matmul(parts[:, :high], digits, out=sums[:, top : top + high])
    totals = sums.sum(axis=0, dtype=np.float64).astype(np.int64)
    return np.asarray((totals << np.array([0, 8, 16, 24])).sum(axis=1).astype(np.uint32))


def _signed_digits(vector: Words, blocks: int) -> npt.NDArray[np.float32]:
    """The vector's digits from -128 to 127, shape (blocks, 4, 1024), zeros past its end."""
    padded = np.zeros(blocks * _EXACT, dtype="<u4")
    # Adding 128 at each place carries where a digit is 128 or more; XOR takes the 128 off again. A carry past 2^32
    # is dropped.
    padded[: vector.size] = (vector + np.uint32(0x80808080)) ^ np.uint32(0x80808080)
    digits = padded.view(np.int8).reshape(blocks, _EXACT, _DIGITS).transpose(0, 2, 1)
    return np.ascontiguousarray(digits, dtype=np.float32)


@functools.cache
def compiled_product() -> ByteProduct:
    """Compile the kernel for this machine, which takes a second; it holds no interpreter lock. Run by: the server."""
    numba: Any = require("numba", "fast")
    matrix = numba.types.Array(numba.int8, 2, "C", readonly=True)
    vector = numba.types.Array(numba.uint32, 1, "C", readonly=True)
    kernel = numba.njit(numba.void(matrix, vector, numba.uint32[::1]), nogil=True)(_eight_rows)

    def product(matrix: Bytes, vector: Words) -> Words:
        found = np.empty(matrix.shape[0], dtype=np.uint32)
        kernel(matrix, vector, found)
        return found

    return product


def _eight_rows(matrix: Bytes, vector: Words, found: Words) -> None:
    """Multiply eight rows at a time: each word of the vector is loaded once for eight bytes."""
    rows, columns = matrix.shape
    top = 0
    while top + 8 <= rows:
        a = b = c = d = e = f = g = h = np.uint32(0)
        for j in range(columns):
            x = vector[j]
            a += np.uint32(matrix[top, j]) * x
            b += np.uint32(matrix[top + 1, j]) * x
            c += np.uint32(matrix[top + 2, j]) * x
            d += np.uint32(matrix[top + 3, j]) * x
            e += np.uint32(matrix[top + 4, j]) * x
            f += np.uint32(matrix[top + 5, j]) * x
            g += np.uint32(matrix[top + 6, j]) * x
            h += np.uint32(matrix[top + 7, j]) * x
        found[top], found[top + 1], found[top + 2], found[top + 3] = a, b, c, d
        found[top + 4], found[top + 5], found[top + 6], found[top + 7] = e, f, g, h
        top += 8
    while top < rows:
        a = np.uint32(0)
        for j in range(columns):
            a += np.uint32(matrix[top, j]) * vector[j]
        found[top] = a
        top += 1
