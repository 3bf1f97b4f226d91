r"""The discrete Gaussian law of secrets and errors, drawn exactly from a table of integers.

.. math:: \Pr[X = k] = \frac{e^{-k^2 / 2 \sigma^2}}{\sum_j e^{-j^2 / 2 \sigma^2}}, \qquad k \in \mathbb{Z}

where: :math:`\sigma` is :data:`~mapveil.retrieval.parameters.DEVIATION`.

No floating-point number decides anything. The departures from the law are the rounding of probabilities to
multiples of :math:`2^{-96}` and the end of the tails, whose mass is below that: total variation below
:math:`2^{-88}` per draw, so all draws of a query give a distinguisher at most :math:`2^{-71}`.

Secrets have the errors' law: breaking such secrets is as hard as breaking uniform ones from n samples more
(Applebaum, Cash, Peikert, Sahai, CRYPTO 2009), and they are short, so that products with them are exact in floats.
"""

from __future__ import annotations

import decimal
import functools
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.retrieval.parameters import DEVIATION
from mapveil_client.randomness.logarithmic import DIGITS, SlotTable, draw_slots, slot_table
from mapveil_client.randomness.random import Randomness

LARGEST: Final = 320
"""No draw is longer: beyond, probabilities are below 2^-118."""

_CHUNK: Final = 1 << 16


@functools.cache
def gaussian_table() -> SlotTable:
    """The law's table."""
    with decimal.localcontext(DIGITS):
        rate = Decimal(DEVIATION.denominator**2) / Decimal(2 * DEVIATION.numerator**2)
        weights = [(-rate * k * k).exp() for k in range(LARGEST + 1)]
    outcomes = range(-LARGEST, LARGEST + 1)
    return slot_table([weights[abs(k)] for k in outcomes], outcomes)


def draw_gaussian(count: int, rng: Randomness) -> npt.NDArray[np.int16]:
    """Draw independent numbers of the law. Run by: the client.

    Parameters
    ----------
    count : int
        Number of draws.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of int16, shape (count,)
        From ``-LARGEST`` to ``LARGEST``.
    """
    table = gaussian_table()
    drawn = np.empty(count, dtype=np.int16)
    for start in range(0, count, _CHUNK):
        part = drawn[start : start + _CHUNK]
        part[:] = draw_slots(table, part.size, rng)
    return drawn
