r"""The discrete Gaussian law of secrets and errors, drawn exactly from a table of integers.

.. math:: \Pr[X = k] = \frac{e^{-k^2 / 2 \sigma^2}}{\sum_j e^{-j^2 / 2 \sigma^2}}, \qquad k \in \mathbb{Z}

where: :math:`\sigma` is :data:`~mapveil.retrieval.lattice_parameters.DEVIATION`.

No floating-point number decides a draw. Probabilities are rounded to multiples of :math:`2^{-96}` and the tails, whose
mass is below that, are cut: total variation below :math:`2^{-88}` per draw, so all draws of a query give a
distinguisher at most :math:`2^{-71}`.

Secrets have the law of the errors, which is as hard as uniform secrets with n samples more (Applebaum, Cash, Peikert,
Sahai, CRYPTO 2009). They are short, so that products with them are exact in floats.
"""

import decimal
import functools
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.retrieval.lattice_parameters import DEVIATION
from mapveil_client.randomness.logarithmic import DIGITS, SlotTable, draw_slots, slot_table
from mapveil_client.randomness.random import Randomness

LARGEST: Final = 320
"""Largest magnitude of a draw: beyond, probabilities are below 2^-118."""

_CHUNK: Final = 1 << 16


@functools.cache
def gaussian_table() -> SlotTable:
    """The law as a table of integers."""
    with decimal.localcontext(DIGITS):
        rate = Decimal(DEVIATION.denominator**2) / Decimal(2 * DEVIATION.numerator**2)
        weights = [(-rate * k * k).exp() for k in range(LARGEST + 1)]
    outcomes = range(-LARGEST, LARGEST + 1)
    return slot_table([weights[abs(k)] for k in outcomes], outcomes)


def draw_gaussian(count: int, rng: Randomness) -> npt.NDArray[np.int16]:
    """Independent draws of the law, from ``-LARGEST`` to ``LARGEST``, shape (count,). Run by: the client."""
    table = gaussian_table()
    drawn = np.empty(count, dtype=np.int16)
    for start in range(0, count, _CHUNK):
        part = drawn[start : start + _CHUNK]
        part[:] = draw_slots(table, part.size, rng)
    return drawn
