"""Numbers of privacy claims as text: bounds are rounded up."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from typing import Final

from mapveil_client.epsilon import readable

MANY: Final = 10**6  # a factor above it is printed as a power of ten, and called more than a million


def factor(epsilon: Fraction) -> str:
    """e to the epsilon, rounded up to three digits, and to four decimals near 1.

    Examples
    --------
    >>> factor(Fraction(1)), factor(Fraction(1, 100)), factor(Fraction(10)), factor(Fraction(1000))
    ('2.72', '1.0101', '22100', '1.98·10^434')
    """
    with decimal.localcontext(prec=50, Emax=decimal.MAX_EMAX):
        value = (Decimal(epsilon.numerator) / epsilon.denominator).exp()
    if value < MANY:
        return up(value) if value >= Decimal("1.1") else up(value, 5)
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_CEILING, Emax=decimal.MAX_EMAX):
        power = (+value).adjusted()
        return f"{(+value).scaleb(-power):f}·10^{power}"


def belief(epsilon: Fraction) -> str:
    """At most e^epsilon / (1 + e^epsilon) in per cent, rounded up; no belief of less than 1 is called one of 100 %.

    Examples
    --------
    >>> belief(Fraction(1)), belief(Fraction(12))
    ('at most 73.11 %', 'over 99.99 %')
    """
    chance = 100 / (1 + math.exp(-float(epsilon)))
    return "over 99.99 %" if chance > 99.99 else f"at most {math.ceil(chance * 100) / 100:.4g} %"


def three_digits(value: float) -> str:
    """Three digits, and no exponent below a million."""
    return f"{float(f'{value:.3g}'):g}"


def up(bound: Fraction | Decimal, digits: int = 3) -> str:
    """A bound rounded up to so many digits, at most six, without an exponent below a million.

    To 15 digits it is rounded to nearest: 1.1 in floating point stays 1.1.
    """
    with decimal.localcontext(prec=15, Emax=decimal.MAX_EMAX):
        near = +bound if isinstance(bound, Decimal) else Decimal(bound.numerator) / bound.denominator
    with decimal.localcontext(prec=digits, rounding=decimal.ROUND_CEILING, Emax=decimal.MAX_EMAX):
        return f"{float(+near):g}"


def exact_or_up(epsilon: Fraction) -> str:
    """A bound as an amount is written where that is short and exact, or else rounded up to six digits."""
    exact = readable(epsilon)
    return up(epsilon, 6) if exact.startswith("about") else exact
