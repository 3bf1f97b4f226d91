r"""The factor :math:`e^\epsilon` as a ratio of integers, rounded down: what makes a promise exact.

Every randomizer here draws its output by integer weights, so that its probabilities are rational numbers with nothing
left to rounding. The larger weight is to the smaller at most

.. math:: \frac{A}{B} \le e^\epsilon

where: A and B are whole numbers, with A / B below :math:`e^\epsilon` by less than one part in 2^20 wherever the room
for the weights permits.
"""

from __future__ import annotations

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from mapveil_client.errors import ParameterError

_DIGITS: Final = decimal.Context(prec=100)
_FINE_BITS: Final = 200
_LARGEST: Final = 128  # an epsilon above it is as good as this one: no weights are so far apart


class Odds(NamedTuple):
    """Whole weights whose ratio is at most e^epsilon."""

    more: int  # A
    less: int  # B


@functools.lru_cache(maxsize=256)
def power(epsilon: Fraction) -> Fraction:
    """e to the epsilon (at most 128), rounded down to a multiple of 2^-200."""
    with decimal.localcontext(_DIGITS):
        given = min(epsilon, Fraction(_LARGEST))
        exact = (Decimal(given.numerator) / Decimal(given.denominator)).exp()
        # 100 digits of which the last few may be off.
        safe = exact * (1 - Decimal(10) ** -90)
        return Fraction(int(safe * 2**_FINE_BITS), 1 << _FINE_BITS)


def odds(epsilon: Fraction, more_bits: int, less_bits: int = 40) -> Odds:
    """Whole A and B with A / B at most e^epsilon.

    Parameters
    ----------
    epsilon : Fraction
        Above 0.
    more_bits, less_bits : int
        A is below ``2**more_bits`` and B at most ``2**less_bits``. Where the two leave no room for the whole factor,
        A / B is as large as they permit, and less is promised away than could be.

    Raises
    ------
    ParameterError
        Epsilon is so small that A would be B.

    Examples
    --------
    >>> odds(Fraction(1), 40, 10)
    Odds(more=2783, less=1024)
    """
    factor = power(epsilon)
    for bits in range(less_bits, -1, -1):
        more = math.floor(factor * (1 << bits))
        if more < 1 << more_bits:
            if more == 1 << bits:
                raise ParameterError(f"epsilon is {float(epsilon):g}; 2**-20 or more is accepted")
            return Odds(more, 1 << bits)
    return Odds((1 << more_bits) - 1, 1)


def keeps(ratio: Fraction, epsilon: Fraction) -> bool:
    """Whether a ratio of probabilities is at most e^epsilon, exactly (or within 10^-90 of it, then no)."""
    return ratio <= power(epsilon)


def ceil_log(ratio: Fraction) -> float:
    """The natural logarithm of a ratio of at least 1, rounded up."""
    with decimal.localcontext(_DIGITS):
        exact = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
    return math.nextafter(float(exact), math.inf) if ratio > 1 else 0.0
