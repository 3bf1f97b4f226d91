r"""Gaussian and truncated Laplacian noise on a lattice, drawn from tables of integers.

A number in floating point that is given floating-point noise keeps its own grid in its last bits, and so shows
which number it was (Mironov 2012). Here both are whole multiples of one step g:

.. math:: y = g \,(k + Z), \qquad k = \mathrm{trunc}(x / g), \quad Z = \mathrm{round}(X / g)

where: x is a clipped value, X is the continuous noise of the mechanism, and g is its scale (deviation :math:`\sigma`
or scale :math:`\lambda`) over the resolution, 256 or less. As :math:`y = g\,\mathrm{round}((g k + X) / g)`, y is
post-processing of the continuous mechanism on :math:`g k`, whose norm is no larger than that of x: the promise of the
continuous mechanism holds, and no floating-point number decides anything. The step costs less than
:math:`\sigma / 256` of bias and :math:`\sigma^2 / (12 \cdot 256^2)` of variance.

Departures from the laws: probabilities are multiples of :math:`2^{-96}`, and Gaussian tails beyond 9.5 deviations are
cut (:math:`2^{-69}`); below :math:`2^{-60}` of total variation per number.

Source: Mironov, "On significance of the least significant bits for differential privacy" (2012), for the leak.
"""

import decimal
import functools
from decimal import Decimal
from typing import Final

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.logarithmic import DIGITS, SlotTable, draw_slots, slot_table
from mapveil_client.randomness.random import Randomness

RESOLUTION: Final = 256
"""Steps of the lattice to one deviation or scale of the noise."""

_REACH: Final = 9.5  # deviations; the mass beyond is below 2^-69
_TERMS: Final = 16
_LARGEST: Final = 8_192
_CHUNK: Final = 1 << 16


@functools.cache
def normal_table() -> SlotTable:
    r"""The law of :math:`\mathrm{round}(256 N)` for a standard normal N.

    .. math:: \Pr[Z = z] = \int_{-a}^{a} \phi(c + t)\,dt
        = 2 \phi(c) \sum_{n \text{ even}} \mathrm{He}_n(c) \frac{a^{n+1}}{(n+1)!}

    where: c = z / 256, a = 1 / 512, and :math:`\mathrm{He}_n` are the probabilists' Hermite polynomials.
    """
    last = int(_REACH * RESOLUTION)
    with decimal.localcontext(DIGITS):
        a = 1 / Decimal(2 * RESOLUTION)
        factors, factor = [], a
        for n in range(_TERMS):
            factors.append(factor)
            factor = factor * a / (n + 2)
        weights = []
        for z in range(last + 1):
            c = Decimal(z) / RESOLUTION
            before, polynomial, total = Decimal(0), Decimal(1), Decimal(0)
            for n in range(_TERMS):
                if n % 2 == 0:
                    total += polynomial * factors[n]
                before, polynomial = polynomial, c * polynomial - n * before
            weights.append(total * (-c * c / 2).exp())
    outcomes = range(-last, last + 1)
    return slot_table([weights[abs(z)] for z in outcomes], outcomes)


def laplacian_resolution(span: Decimal) -> int:
    """Steps to one scale: 256, or fewer where the support would have too many.

    Raises
    ------
    ParameterError
        Even one step to the scale would be too many.
    """
    resolution = RESOLUTION
    while span * resolution > _LARGEST and resolution > 1:
        resolution //= 2
    if span * resolution > _LARGEST:
        raise ParameterError(f"a truncated Laplacian of {float(span):g} scales; expected at most {_LARGEST}")
    return resolution


@functools.lru_cache(maxsize=16)
def laplacian_table(span: Decimal) -> SlotTable:
    r"""The law of :math:`\mathrm{round}(R X)` for X of density :math:`\propto e^{-|x|}` on [-S, S].

    Parameters
    ----------
    span : Decimal
        S, above 0; R is :func:`laplacian_resolution`.
    """
    resolution = laplacian_resolution(span)
    with decimal.localcontext(DIGITS):
        step = 1 / Decimal(resolution)
        half = step / 2
        whole = int(
            (span + half) / step
        )  # cells [(z - 1/2) step, (z + 1/2) step] within the span, from z = 0
        weights = [2 * (1 - (-min(half, span)).exp())]  # two halves
        weight, ratio = (-half).exp() * (1 - (-step).exp()), (-step).exp()
        for _ in range(1, whole):
            weights.append(weight)
            weight *= ratio
        start = whole * step - half
        if 0 < start < span:
            weights.append((-start).exp() - (-span).exp())
    last = len(weights) - 1
    outcomes = range(-last, last + 1)
    return slot_table([weights[abs(z)] for z in outcomes], outcomes)


def add_gaussian(values: FloatArray, deviation: float, rng: Randomness) -> FloatArray:
    """Values and Gaussian noise of a deviation, on its lattice. Run by: the client."""
    return _add(values, deviation / RESOLUTION, normal_table(), rng)


def add_laplacian(values: FloatArray, scale: float, span: Decimal, rng: Randomness) -> FloatArray:
    """Values and Laplacian noise of a scale, cut at ``span`` scales, on its lattice. Run by: the client."""
    return _add(values, scale / laplacian_resolution(span), laplacian_table(span), rng)


def _add(values: FloatArray, step: float, table: SlotTable, rng: Randomness) -> FloatArray:
    flat = values.reshape(-1)
    made = np.empty(flat.size)
    for start in range(0, flat.size, _CHUNK):
        part = made[start : start + _CHUNK]
        np.divide(flat[start : start + _CHUNK], step, out=part)
        np.trunc(part, out=part)
        part += draw_slots(table, part.size, rng)
        part *= step
    return made.reshape(values.shape)
