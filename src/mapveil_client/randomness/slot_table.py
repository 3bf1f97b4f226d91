r"""A finite law as a table of integers, drawn exactly from uniform words.

Probabilities are integers in units of :math:`2^{-96}`. A 16-bit word picks one of 65,536 slots; outcome v
fills the slots of its leading 16 bits, and the slots left over are escapes: slot number and 80 further bits,
compared as integers with the cumulated remainders, settle them. Half a slot per outcome escapes on average.

The only departure from the stated law is the rounding of probabilities to multiples of :math:`2^{-96}`.

Source: Marsaglia, Tsang, Wang, "Fast generation of discrete random variables" (2004).
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.randomness.random import Randomness

_SLOT_BITS = 16
_UNIT_BITS = 96
_TIE_BITS = 32
SLOTS: Final = 1 << _SLOT_BITS
DIGITS: Final = decimal.Context(prec=80)
"""The precision in which weights are computed."""
TAIL: Final = Decimal(2) ** -66
"""What a table may leave out of a tail."""


class SlotTable(NamedTuple):
    """One law's table."""

    values: npt.NDArray[np.int16]  # of each slot; escapes hold 0
    first_escape: int
    outcomes: npt.NDArray[np.int16]  # of each remainder
    cumulated: tuple[int, ...]  # remainders, cumulated, units of 2^-96
    cumulated_high: npt.NDArray[np.uint64]  # the same without their low 32 bits


def slot_table(weights: Sequence[Decimal], outcomes: Sequence[int]) -> SlotTable:
    """Lay out a law.

    Parameters
    ----------
    weights : sequence of Decimal
        Unnormalised, not negative, of :data:`DIGITS` precision.
    outcomes : sequence of int
        Of each weight, in 16 bits.
    """
    with decimal.localcontext(DIGITS):
        total = sum(weights)
        unit = Decimal(2) ** _UNIT_BITS
        exact = [int((weight / total * unit).to_integral_value()) for weight in weights]
    exact[int(np.argmax([float(weight) for weight in weights]))] += (1 << _UNIT_BITS) - sum(exact)
    rest_bits = _UNIT_BITS - _SLOT_BITS
    filled = [value >> rest_bits for value in exact]
    first_escape = sum(filled)
    values = np.zeros(SLOTS, dtype=np.int16)
    values[:first_escape] = np.repeat(np.array(outcomes, dtype=np.int16), filled)
    cumulated: list[int] = []
    running = 0
    for value in exact:
        running += value & ((1 << rest_bits) - 1)
        cumulated.append(running)
    high = np.array([min(value >> _TIE_BITS, (1 << 64) - 1) for value in cumulated], dtype=np.uint64)
    return SlotTable(values, first_escape, np.array(outcomes, dtype=np.int16), tuple(cumulated), high)


def draw_slots(table: SlotTable, count: int, rng: Randomness) -> npt.NDArray[np.int16]:
    """Draw from a law ``count`` times. Run by: whoever adds noise.

    Parameters
    ----------
    table : SlotTable
        The law.
    count : int
        How many samples.
    rng : Randomness
        The source of bits.
    """
    slots = rng.words(count, np.uint16)
    drawn = np.take(table.values, slots)
    if table.first_escape == SLOTS:
        return drawn
    escaped = np.flatnonzero(slots >= table.first_escape)
    if escaped.size:
        which = slots[escaped].astype(np.uint64) - np.uint64(table.first_escape)
        more = rng.words(escaped.size, np.uint64) >> np.uint64(_SLOT_BITS)
        key = (which << np.uint64(64 - _SLOT_BITS)) | more
        chosen = np.searchsorted(table.cumulated_high, key, side="right")
        tied = np.flatnonzero(table.cumulated_high[np.maximum(chosen - 1, 0)] == key)
        for at in tied:  # once in about 2^48 samples: the last 32 bits decide
            whole = (int(key[at]) << _TIE_BITS) | int(rng.words(1, np.uint32)[0])
            chosen[at] = next(i for i, bound in enumerate(table.cumulated) if whole < bound)
        drawn[escaped] = table.outcomes[chosen]
    return drawn
