r"""Exact discrete Laplace noise on the integers, drawn from tables of integers.

.. math:: \Pr[X = k] = \frac{1 - q}{1 + q}\, q^{|k|}, \qquad q = e^{-\epsilon / \Delta}

where: :math:`\epsilon` is ``epsilon`` and :math:`\Delta` is ``sensitivity``, both exact.

How a sample is made, without a floating-point number deciding anything:

1. With probability :math:`1 / (1 + q)`, :math:`X = G`, else :math:`X = -1 - G = \lnot G` (all bits
   flipped), for :math:`G` geometric, :math:`\Pr[G = g] = (1 - q) q^g`.
2. The digits of a geometric variable in any mixed power-of-two radix are independent, each a
   truncated geometric: a digit worth :math:`2^s` has ratio :math:`q^{2^s}`. The sign joins the
   leading digit in one table; low digits are of at most ten bits each.
3. A digit's probabilities are integers in units of :math:`2^{-96}`. A 16-bit word picks one of
   65,536 slots; value v fills the slots of its leading 16 bits, and the slots left over (fewer than
   one in 32) are escapes: slot number and 80 further bits, compared as integers with the cumulated
   remainders, settle them.

The only departures from the stated law are the rounding of probabilities to multiples of
:math:`2^{-96}` and the end of the leading digit's tail, at a mass below :math:`2^{-64}`: total
variation below :math:`2^{-60}` per sample.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), for the
law; Marsaglia, Tsang, Wang, "Fast generation of discrete random variables" (2004), for tables.
"""

from __future__ import annotations

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.errors import ParameterError
from mapveil.privacy.random import Randomness

__all__ = ["discrete_laplace", "laplace_quantile", "laplace_variance"]

_SLOT_BITS = 16
_SLOTS = 1 << _SLOT_BITS
_UNIT_BITS = 96
_TIE_BITS = 32
_DIGIT_BITS = 10
_LEADING_VALUES = 1 << 10
_TAIL = Decimal(2) ** -66
_CHUNK = 1 << 16
_LARGEST_SHIFT = 48
_DIGITS = decimal.Context(prec=80)


class _Table(NamedTuple):
    values: npt.NDArray[np.int16]  # of each slot; escapes hold 0
    first_escape: int
    outcomes: npt.NDArray[np.int16]  # of each remainder
    cumulated: tuple[int, ...]  # remainders, cumulated, units of 2^-96
    cumulated_high: npt.NDArray[np.uint64]  # the same without their low 32 bits


class _Sampler(NamedTuple):
    leading: _Table  # of the signed leading digit: h, or -1 - h
    low: tuple[_Table, ...]  # of the low digits, least significant first
    widths: tuple[int, ...]  # of the low digits, in bits


def _table(weights: list[Decimal], outcomes: list[int]) -> _Table:
    """Lay out one digit's table from unnormalised weights."""
    with decimal.localcontext(_DIGITS):
        total = sum(weights)
        unit = Decimal(2) ** _UNIT_BITS
        exact = [int((weight / total * unit).to_integral_value()) for weight in weights]
    exact[int(np.argmax([float(weight) for weight in weights]))] += (1 << _UNIT_BITS) - sum(exact)
    rest_bits = _UNIT_BITS - _SLOT_BITS
    filled = [value >> rest_bits for value in exact]
    first_escape = sum(filled)
    values = np.zeros(_SLOTS, dtype=np.int16)
    values[:first_escape] = np.repeat(np.array(outcomes, dtype=np.int16), filled)
    cumulated: list[int] = []
    running = 0
    for value in exact:
        running += value & ((1 << rest_bits) - 1)
        cumulated.append(running)
    high = np.array([min(value >> _TIE_BITS, (1 << 64) - 1) for value in cumulated], dtype=np.uint64)
    return _Table(values, first_escape, np.array(outcomes, dtype=np.int16), tuple(cumulated), high)


@functools.lru_cache(maxsize=64)
def _sampler(epsilon: Fraction, sensitivity: int) -> _Sampler:
    """Choose the digits and make their tables."""
    if epsilon <= 0 or sensitivity <= 0:
        raise ParameterError(
            f"epsilon {epsilon} at sensitivity {sensitivity}; numbers above 0 are accepted for both"
        )
    with decimal.localcontext(_DIGITS):
        rate = Decimal(epsilon.numerator) / Decimal(epsilon.denominator * sensitivity)
        shift = 0
        # The leading digit's tail must fall below 2^-66 within its table.
        while _LEADING_VALUES * rate * (1 << shift) < -_TAIL.ln():
            shift += 1
        if shift > _LARGEST_SHIFT:
            raise ParameterError(
                f"epsilon {float(epsilon):g} at sensitivity {sensitivity} asks for noise wider than "
                f"2^{_LARGEST_SHIFT + _DIGIT_BITS}; a larger epsilon is accepted"
            )
        digits = -(-shift // _DIGIT_BITS)
        widths = tuple(shift // digits + (i < shift % digits) for i in range(digits))
        low, place = [], 0
        for width in widths:
            ratio = (-rate * (1 << place)).exp()
            low.append(_table([ratio**k for k in range(1 << width)], list(range(1 << width))))
            place += width
        ratio = (-rate * (1 << shift)).exp()
        size = 1
        while size < _LEADING_VALUES and ratio**size >= _TAIL:
            size += 1
        powers = [Decimal(1), *(ratio**k for k in range(1, size))]  # 0 ** 0 where it is tiny
        q = (-rate).exp()
        leading = _table(
            powers + [q * power for power in powers],
            list(range(size)) + [-1 - k for k in range(size)],
        )
    return _Sampler(leading, tuple(low), widths)


def _draw(table: _Table, count: int, rng: Randomness) -> npt.NDArray[np.int16]:
    """Draw one digit ``count`` times."""
    slots = rng.words(count, np.uint16)
    drawn = np.take(table.values, slots)
    if table.first_escape == _SLOTS:
        return drawn
    escaped = np.flatnonzero(slots >= table.first_escape)
    if escaped.size:
        which = slots[escaped].astype(np.uint64) - np.uint64(table.first_escape)
        more = rng.words(escaped.size, np.uint64) >> np.uint64(_SLOT_BITS)
        key = (which << np.uint64(64 - _SLOT_BITS)) | more
        chosen = np.searchsorted(table.cumulated_high, key, side="right")
        tied = np.flatnonzero(np.searchsorted(table.cumulated_high, key, side="left") != chosen)
        for at in tied:  # once in about 2^48 samples: the last 32 bits decide
            whole = (int(key[at]) << _TIE_BITS) | int(rng.words(1, np.uint32)[0])
            chosen[at] = next(i for i, bound in enumerate(table.cumulated) if whole < bound)
        drawn[escaped] = table.outcomes[chosen]
    return drawn


def discrete_laplace(
    count: int, epsilon: Fraction, sensitivity: int, rng: Randomness
) -> npt.NDArray[np.int64]:
    """Draw independent discrete Laplace noise that makes integer sums epsilon-DP.

    Adding it to integer vectors whose L1 distance between neighbours is at most ``sensitivity``
    is ``epsilon``-DP. Run by: the curator. The law is in the module's header.

    Parameters
    ----------
    count : int
        How many samples.
    epsilon : Fraction
        The exact privacy parameter, above zero.
    sensitivity : int
        The L1 sensitivity, in units of the lattice, above zero.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of int64, shape (count,)
        In units of the lattice.

    Raises
    ------
    ParameterError
        Not above zero, or the scale would leave 58 bits.
    """
    sampler = _sampler(Fraction(epsilon), int(sensitivity))
    noise = np.empty(count, dtype=np.int64)
    shift = sum(sampler.widths)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        leading = _draw(sampler.leading, size, rng)
        part = noise[start : start + size]
        part[:] = leading
        if shift:
            place = 0
            np.left_shift(part, shift, out=part)
            flip = leading >> np.int16(15)  # all ones where the sign is negative
            for table, width in zip(sampler.low, sampler.widths, strict=True):
                digit = (_draw(table, size, rng) ^ flip) & np.int16((1 << width) - 1)
                part |= digit.astype(np.int64) << place
                place += width
    return noise


def laplace_variance(epsilon: Fraction, sensitivity: int) -> float:
    r"""Variance of the discrete Laplace law, :math:`2 q / (1 - q)^2`, in squared lattice units."""
    rate = float(Fraction(epsilon) / sensitivity)
    return 2 * math.exp(-rate) / math.expm1(-rate) ** 2


def laplace_quantile(alpha: float, epsilon: Fraction, sensitivity: int) -> int:
    r"""The smallest integer t with :math:`\Pr[|X| > t] = 2 q^{t+1} / (1 + q) \le \alpha`.

    Parameters
    ----------
    alpha : float
        Probability in (0, 1).
    epsilon, sensitivity
        As for :func:`discrete_laplace`.
    """
    if not 0 < alpha < 1:
        raise ParameterError(f"alpha is {alpha!r}; a number between 0 and 1 is accepted")
    rate = float(Fraction(epsilon) / sensitivity)
    return max(0, int(np.ceil(np.log(2 / (alpha * (1 + np.exp(-rate)))) / rate - 1)))
