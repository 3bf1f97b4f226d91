"""Privacy parameters as exact rational numbers, and how a budget is split.

A float cannot say 0.1; a ledger that adds floats drifts. Every epsilon here is a
:class:`fractions.Fraction`, and every rounding goes down, so that parts never exceed the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from mapveil_client.errors import ParameterError

EpsilonLike = int | float | str | Decimal | Fraction
"""What is accepted as an epsilon; a float means the decimal number it prints as."""

_GRAIN = 1 << 40


def as_epsilon(value: EpsilonLike, name: str = "epsilon") -> Fraction:
    """Read a privacy parameter exactly.

    A float is taken as the shortest decimal that prints it: ``0.1`` is exactly one tenth.

    Parameters
    ----------
    value : int, float, str, Decimal or Fraction
        A finite number above zero; a string may be ``"0.5"`` or ``"1/3"``.
    name : str
        What to call it in an error.

    Raises
    ------
    ParameterError
        It is not a number, not finite, or not above zero.

    Examples
    --------
    >>> as_epsilon(0.1)
    Fraction(1, 10)
    """
    accepted = "a finite number above 0 is accepted, such as 1, 0.5 or 1/3"
    if isinstance(value, bool):
        raise ParameterError(f"{name} is {value!r}; {accepted}")
    try:
        if isinstance(value, (int, str, Decimal, Fraction)):
            exact = Fraction(value)
        else:  # NumPy's numbers are here too
            exact = Fraction(str(float(value)))
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        raise ParameterError(f"{name} is {value!r}; {accepted}") from None
    if exact <= 0:
        raise ParameterError(f"{name} is {value!r}; {accepted}")
    return exact


def split_epsilon(total: Fraction, shares: Sequence[float]) -> tuple[Fraction, ...]:
    r"""Split a budget in proportion to shares, every part rounded down.

    .. math:: \epsilon_i = 2^{-40} \lfloor 2^{40}\, \epsilon\, s_i / \textstyle\sum_j s_j \rfloor

    where: :math:`\epsilon` is ``total`` and :math:`s_i` is ``shares[i]``. The parts sum to at most
    ``total`` exactly.

    Parameters
    ----------
    total : Fraction
        The budget, above zero.
    shares : sequence of float
        Positive finite weights; only their ratios matter.

    Raises
    ------
    ParameterError
        A share is not positive and finite, or a part would round to nothing.
    """
    if not shares or any(not math.isfinite(share) or share <= 0 for share in shares):
        raise ParameterError(f"budget shares are {list(shares)!r}; positive finite numbers are accepted")
    exact = [Fraction(share) for share in shares]
    whole = sum(exact)
    parts = tuple(Fraction(math.floor(total * share / whole * _GRAIN), _GRAIN) for share in exact)
    if not all(parts):
        raise ParameterError(f"epsilon {total} is too small to be split into {len(parts)} parts")
    return parts
