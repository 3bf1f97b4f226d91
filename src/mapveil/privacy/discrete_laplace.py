r"""Exact discrete Laplace noise on the integers, drawn from tables of integers.

.. math:: \Pr[X = k] = \frac{1 - q}{1 + q}\, q^{|k|}, \qquad q = e^{-\epsilon / \Delta}

where: :math:`\epsilon` is ``epsilon`` and :math:`\Delta` is ``sensitivity``, both exact.

A sample is drawn without any decision in floating point:

1. With probability :math:`1 / (1 + q)`, :math:`X = G`, else :math:`X = -1 - G = \lnot G` (all bits
   flipped), for :math:`G` geometric, :math:`\Pr[G = g] = (1 - q) q^g`.
2. The digits of a geometric variable in any mixed power-of-two radix are independent, each a
   truncated geometric: a digit worth :math:`2^s` has ratio :math:`q^{2^s}`. The sign joins the
   leading digit in one table; low digits are of at most ten bits each.
3. A digit is drawn from a table of integer probabilities (:mod:`mapveil_client.randomness.logarithmic`); fewer
   than one in 32 draws needs more than the first 16 bits.

The only departures from the stated law are the rounding of probabilities to multiples of
:math:`2^{-96}` and the end of the leading digit's tail, at a mass below :math:`2^{-64}`: total
variation below :math:`2^{-60}` per sample.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), for the law.
"""

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError, check
from mapveil_client.randomness.logarithmic import DIGITS, TAIL, SlotTable, draw_slots, noise_rate, slot_table
from mapveil_client.randomness.random import Randomness

_DIGIT_BITS = 10
_LEADING_VALUES = 1 << 10
_CHUNK = 1 << 16
_LARGEST_SHIFT = 48


class _Sampler(NamedTuple):
    leading: SlotTable  # of the signed leading digit: h, or -1 - h
    low: tuple[SlotTable, ...]  # of the low digits, least significant first
    widths: tuple[int, ...]  # of the low digits, in bits


@functools.lru_cache(maxsize=64)
def _sampler(epsilon: Fraction, sensitivity: int) -> _Sampler:
    """Choose the digits and make their tables."""
    with decimal.localcontext(DIGITS):
        rate = noise_rate(epsilon, sensitivity)
        shift = 0
        # The leading digit's tail must fall below 2^-66 within its table.
        while _LEADING_VALUES * rate * (1 << shift) < -TAIL.ln():
            shift += 1
        if shift > _LARGEST_SHIFT:
            raise ParameterError(
                f"epsilon {float(epsilon):g} at sensitivity {sensitivity} asks for noise wider than "
                f"2^{_LARGEST_SHIFT + _DIGIT_BITS}; expected a larger epsilon"
            )
        digits = -(-shift // _DIGIT_BITS)
        widths = tuple(shift // digits + (i < shift % digits) for i in range(digits))
        low, place = [], 0
        for width in widths:
            ratio = (-rate * (1 << place)).exp()
            low.append(slot_table([ratio**k for k in range(1 << width)], list(range(1 << width))))
            place += width
        ratio = (-rate * (1 << shift)).exp()
        size = 1
        while size < _LEADING_VALUES and ratio**size >= TAIL:
            size += 1
        powers = [Decimal(1), *(ratio**k for k in range(1, size))]  # 0 ** 0 where it is tiny
        q = (-rate).exp()
        leading = slot_table(
            powers + [q * power for power in powers],
            list(range(size)) + [-1 - k for k in range(size)],
        )
    return _Sampler(leading, tuple(low), widths)


def check_noise(epsilon: Fraction, sensitivity: int) -> None:
    """Refuse what :func:`discrete_laplace` would refuse, before a charge; its tables are kept for the draw."""
    _sampler(Fraction(epsilon), int(sensitivity))


def discrete_laplace(
    count: int, epsilon: Fraction, sensitivity: int, rng: Randomness
) -> npt.NDArray[np.int64]:
    """Draw independent discrete Laplace noise that makes integer sums epsilon-DP.

    Adding it to integer vectors whose L1 distance between neighbours is at most ``sensitivity``
    is ``epsilon``-DP. Run by: the curator. The law is in the module's header.

    Parameters
    ----------
    count, epsilon, sensitivity, rng
        As for :func:`mapveil_client.randomness.logarithmic.signed_logarithmic`.

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
        leading = draw_slots(sampler.leading, size, rng)
        part = noise[start : start + size]
        part[:] = leading
        if shift:
            place = 0
            np.left_shift(part, shift, out=part)
            flip = leading >> np.int16(15)  # all ones where the sign is negative
            for table, width in zip(sampler.low, sampler.widths, strict=True):
                digit = (draw_slots(table, size, rng) ^ flip) & np.int16((1 << width) - 1)
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
    check(0 < alpha < 1, "alpha", "a number between 0 and 1", alpha)
    rate = float(Fraction(epsilon) / sensitivity)
    return max(0, int(np.ceil(np.log(2 / (alpha * (1 + np.exp(-rate)))) / rate - 1)))
