r"""The lattice parameters, and the failure probability of an answer.

A query hides a column in samples of learning with errors; an answer is rounded above the errors that its row of the
database adds up.

.. math:: \Pr[\text{a byte is wrong}] \le 2 \exp\!\left(-\frac{(q / 2p)^2}{2\, \sigma^2\, m\, (p/2)^2}\right)

where: q is :math:`2^{32}` (``MODULUS_BITS``), p is 256 (``PLAIN``; a byte b is the digit b - 128, so that no
digit is longer than p/2), :math:`\sigma` is ``DEVIATION`` and m the number of columns. The error's law, proportional
to :math:`\exp(-k^2 / 2 \sigma^2)` on the integers, is sub-Gaussian of variance factor :math:`\sigma^2` (its moment
generating function is at most :math:`\exp(\sigma^2 t^2 / 2)`), hence so is any sum of its multiples: the bound holds
for every database.

Deviation: the paper takes :math:`\sigma` = 6.4, secrets uniform modulo q and the largest p that leaves a failure
below :math:`2^{-40}`. Here p is a byte, which leaves room for four times the noise at up to 65,536 columns: a harder
problem for the server, and a failure below :math:`2^{-50}`.

Source: Henzinger, Hong, Corrigan-Gibbs, Meiklejohn, Vaikuntanathan, "One Server for the Price of Two: Simple and Fast
Single-Server Private Information Retrieval" (USENIX Security 2023), section 4.2.
"""

import math
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.int8]
"""Digits of a database."""
Words = npt.NDArray[np.uint32]
"""Numbers modulo q."""

SECRET: Final = 1024
"""Numbers of a secret, n."""
MODULUS_BITS: Final = 32
"""q is 2 to this power: words wrap around by themselves."""
PLAIN: Final = 256
"""p: a digit of the database is a byte."""
SCALE_BITS: Final = 24
"""A digit is sent times q / p, 2 to this power."""
DEVIATION: Final = Fraction(128, 5)
"""Standard deviation of the errors and of the secrets, sigma."""
LARGEST_COLUMNS: Final = 1 << 16
LARGEST_ROWS: Final = 1 << 20

_LONGEST_DIGIT = PLAIN // 2
_TABLE_DISTANCE_LOG2: Final = -88
"""Largest total variation between the law and its table; the tests compute it."""


def failure_log2(rows: int, columns: int) -> float:
    """Base-2 logarithm of a bound on the probability that any byte of an answer is wrong, for any database.

    The bound is below -50 for every :class:`~mapveil.retrieval.shape.Shape`.

    Examples
    --------
    >>> round(failure_log2(rows=8192, columns=8192))
    -75
    """
    half = 1 << (SCALE_BITS - 1)
    variance = float(DEVIATION) ** 2 * columns * _LONGEST_DIGIT**2
    tail = 1 + math.log2(rows) - half**2 / (2 * variance) / math.log(2)
    # The sampler's own rounding, for every error drawn.
    sampling = math.log2(columns + SECRET) + _TABLE_DISTANCE_LOG2
    return max(tail, sampling) + math.log2(1 + 2 ** -abs(tail - sampling))


def largest_error(rows: int, columns: int) -> int:
    r"""A bound that the error of an honest answer exceeds with probability :math:`2^{-40}` at most.

    .. math:: t = \sigma \frac{p}{2} \sqrt{m}\, \sqrt{2 \ln(2^{41} l)}

    where: l is ``rows``, m is ``columns``. An answer to another hint is uniform, and passes one row with probability
    :math:`2 t / 2^{24}`.
    """
    bound = float(DEVIATION) * _LONGEST_DIGIT * math.sqrt(columns) * math.sqrt(2 * math.log(2.0**41 * rows))
    return min(math.ceil(bound), (1 << (SCALE_BITS - 1)) - 1)
