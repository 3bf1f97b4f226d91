r"""Exact Poisson counts, drawn from a table of integers.

.. math:: \Pr[N = n] = e^{-m}\, m^n / n!

where: :math:`m` is ``mean``. A large mean is divided among equal independent parts of at most 256, whose counts
add up, each part within :math:`2^{-64}` of its law in total variation. So a sample departs by at most
:math:`\lceil m / 256 \rceil\, 2^{-64}`, of which nothing is due to floating point.
"""

from __future__ import annotations

import decimal
import functools
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.randomness.slot_table import DIGITS, TAIL, SlotTable, draw_slots, slot_table

LARGEST_MEAN: Final = 1 << 32
"""Above it a single count is of more events than a memory holds."""
_LARGEST_PART = 256
_CHUNK = 1 << 16


@functools.lru_cache(maxsize=64)
def _table(mean: Decimal) -> SlotTable:
    """The table of one part."""
    with decimal.localcontext(DIGITS):
        weights, total = [Decimal(1)], Decimal(1)
        # Beyond n the tail is below a geometric series of ratio mean / (n + 1).
        while (n := len(weights)) <= mean or weights[-1] * mean > TAIL * total * (n - mean):
            weights.append(weights[-1] * mean / n)
            total += weights[-1]
    return slot_table(weights, range(len(weights)))


def poisson(count: int, mean: Decimal, rng: Randomness) -> npt.NDArray[np.int64]:
    """Draw independent Poisson counts. Run by: whoever draws noise.

    The law is in the module's header.

    Parameters
    ----------
    count : int
        How many samples.
    mean : Decimal
        From 0 to :data:`LARGEST_MEAN`, of some 60 digits or more where it is not exact.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of int64, shape (count,)

    Raises
    ------
    ParameterError
        The mean is outside its range.
    """
    if not 0 <= mean <= LARGEST_MEAN:
        raise ParameterError(
            f"the mean of a Poisson count is {float(mean):g}; 0 to {LARGEST_MEAN} is accepted"
        )
    parts = max(1, -int(-mean // _LARGEST_PART))
    with decimal.localcontext(DIGITS):
        table = _table(mean / parts)
    counts = np.empty(count, dtype=np.int64)
    rows = max(1, _CHUNK // parts)
    for start in range(0, count, rows):
        some = counts[start : start + rows]
        drawn = draw_slots(table, some.size * parts, rng)
        some[:] = drawn if parts == 1 else drawn.reshape(-1, parts).sum(axis=1, dtype=np.int64)
    return counts
