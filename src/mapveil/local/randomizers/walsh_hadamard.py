"""The Hadamard matrix of a power of two, and products with it."""

from __future__ import annotations

import numpy as np

from mapveil_client.arrays import FloatArray


def walsh_hadamard(values: FloatArray) -> FloatArray:
    r"""The product of every row with the Hadamard matrix :math:`H_{i y} = (-1)^{|i \wedge y|}`, in O(b log b).

    where: :math:`|i \wedge y|` is the number of bits that i and y share, and b the length of a row, a power of two.

    Examples
    --------
    >>> walsh_hadamard(np.array([[1.0, 0, 0, 2]])).tolist()
    [[3.0, -1.0, -1.0, 3.0]]
    """
    rows, length = values.shape
    made = np.array(values, dtype=np.float64)
    half = 1
    while half < length:
        pairs = made.reshape(rows, length // (2 * half), 2, half)
        made = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        half *= 2
    return made.reshape(rows, length)
