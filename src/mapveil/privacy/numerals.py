"""Numbers of privacy claims as text: bounds are rounded up."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from typing import Final

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
    """e^epsilon / (1 + e^epsilon) in per cent, rounded up."""
    chance = 100 / (1 + math.exp(-float(epsilon)))
    return "100 %" if chance >= 99.995 else f"{math.ceil(chance * 100) / 100:.4g} %"


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


def six_digits(epsilon: Fraction) -> str:
    """A part of epsilon to six digits, to nearest: the whole is what bounds, and parts are to add up to it."""
    return f"{float(epsilon):.6g}"


def exact_or_up(epsilon: Fraction) -> str:
    """Epsilon as a decimal of up to six digits or a short fraction, exactly, or else rounded up to six digits."""
    rounded = up(epsilon, 6)
    return rounded if Fraction(rounded) == epsilon or epsilon.denominator > 1000 else str(epsilon)
