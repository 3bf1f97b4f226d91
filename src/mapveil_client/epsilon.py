r"""Privacy parameters as exact rational numbers, the split of a budget, and e^epsilon as a ratio of integers.

A float cannot represent 0.1, and a ledger that adds floats drifts: every epsilon is a :class:`fractions.Fraction`.

Randomizers draw their output by whole weights, so that their probabilities are exact rational numbers:

.. math:: \frac{A}{B} \le e^\epsilon

where: A and B are whole numbers, with A / B below :math:`e^\epsilon` by less than one part in 2^20 wherever the room
for the weights permits (:func:`odds`).
"""

import decimal
import functools
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from mapveil_client.errors import ParameterError, check

EpsilonLike = int | float | str | Decimal | Fraction
"""Values that an epsilon may be given as; a float means the decimal number it prints as."""

_GRAIN: Final = 1 << 40
_DIGITS: Final = decimal.Context(prec=100)
_FINE_BITS: Final = 200
_LEAST: Final = Fraction(1, 10**12)  # about the grain of a split
_MOST: Final = Fraction(10**12)  # the samplers are tested to here
_FINEST: Final = 10**1000  # Python writes 4,300 digits, and a ledger adds them up
_FAR: Final = re.compile(r"[eE][+-]?0*[1-9][0-9_]{3,}\s*$")  # an exponent of four digits or more
_READABLE: Final = 12  # characters
_LARGEST: Final = 128  # an epsilon above it is as good as this one: no weights are so far apart


def exact_number(value: EpsilonLike) -> Fraction | None:
    """The exact value of a number, a float's being the shortest decimal that prints it; None for anything else."""
    try:
        if isinstance(value, (int, str, Decimal, Fraction)):
            return Fraction(value)
        return Fraction(str(float(value)))  # NumPy's numbers are here too
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        return None


def as_epsilon(value: EpsilonLike, name: str = "epsilon") -> Fraction:
    """Read a privacy parameter, ``name`` in errors, exactly: a number from 1e-12 to 1e12, or text such as ``"1/3"``.

    A float is taken as the shortest decimal that prints it: ``0.1`` is exactly one tenth.

    Raises
    ------
    ParameterError
        It is not a number, not finite, not between 1e-12 and 1e12, or its denominator has more than 1,000 digits.

    Examples
    --------
    >>> as_epsilon(0.1)
    Fraction(1, 10)
    """
    far = isinstance(value, str) and _FAR.search(value)  # not expanded: 1e999999999 has a billion digits
    exact = None if isinstance(value, bool) or far else exact_number(value)
    try:
        text = str(value)
    except ValueError:
        text = "thousands of digits, which Python does not write"
    shown: object = value if len(text) <= 24 else f"{text[:20]}..."
    if far or (exact is not None and exact > 0 and not _LEAST <= exact <= _MOST):
        raise ParameterError(f"{name} must be between 1e-12 and 1e12, got {shown}")
    if exact is not None and exact.denominator > _FINEST:
        raise ParameterError(
            f"{name} must be a fraction with a denominator of at most 1,000 digits, got {shown}"
        )
    if exact is None or exact <= 0:
        raise ParameterError(f"{name} must be a finite number above 0, such as 1, 0.5 or 1/3, got {shown!r}")
    return exact


def plain(epsilon: Fraction) -> str:
    """The exact decimal where it ends, else the fraction: what is shown can be typed back.

    Examples
    --------
    >>> plain(Fraction(5, 2)), plain(Fraction(1, 3)), plain(Fraction(1, 1 << 10))
    ('2.5', '1/3', '0.0009765625')
    """
    places = epsilon.denominator.bit_length()  # enough for every power of 2 or 5 in it
    units = epsilon * 10**places
    if units.denominator > 1:
        fine = epsilon.denominator > _FINEST**4  # a sum of fractions: more digits than Python writes
        return f"{float(epsilon):.6g}" if fine else str(epsilon)
    text = str(units).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}".rstrip("0").rstrip(".")


def readable(epsilon: Fraction) -> str:
    """An amount for people to read: :func:`plain` of at most 12 characters, else "about" and six digits.

    Examples
    --------
    >>> readable(Fraction(1, 3)), readable(Fraction(1, 1 << 40)), readable(Fraction(164926744166, 1 << 40))
    ('1/3', 'about 9.09495e-13', 'about 0.15')
    """
    exact = plain(epsilon)
    short = len(exact) <= _READABLE and Fraction(exact) == epsilon
    return exact if short else f"about {float(epsilon):.6g}"


def split_epsilon(total: Fraction, shares: Sequence[float]) -> tuple[Fraction, ...]:
    r"""Split a budget in proportion to shares; the parts sum to the budget exactly.

    .. math:: \epsilon_i = 2^{-40} \lfloor 2^{40}\, \epsilon\, s_i / \textstyle\sum_j s_j \rfloor \quad (i < n),
              \qquad \epsilon_n = \epsilon - \textstyle\sum_{i < n} \epsilon_i

    where: :math:`\epsilon` is ``total``, above zero, and :math:`s_i` is ``shares[i]``, positive and finite, of n.

    Raises
    ------
    ParameterError
        A share is not positive and finite, or a part would round to nothing.
    """
    good = bool(shares) and all(math.isfinite(share) and share > 0 for share in shares)
    check(good, "budget shares", "positive finite numbers", list(shares))
    exact = [Fraction(share) for share in shares]
    whole = sum(exact)
    parts = [Fraction(math.floor(total * share / whole * _GRAIN), _GRAIN) for share in exact]
    if not all(parts):
        raise ParameterError(f"epsilon {total} is too small to be split into {len(parts)} parts")
    return (*parts[:-1], total - sum(parts[:-1]))


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
        A number above 0.
    more_bits, less_bits : int
        A is below ``2**more_bits`` and B at most ``2**less_bits``; A / B is smaller where these leave no more room.

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
                raise ParameterError(f"epsilon must be 2**-20 or more, got {float(epsilon):g}")
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
