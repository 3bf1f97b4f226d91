r"""Continuous variates from uniform words: for frequencies, which are private, so never from a NumPy generator.

A word w of 64 bits stands for :math:`U = (w + 1) / 2^{64}` in (0, 1]. Logarithms of U reach 64 ln 2, so normals
reach 9.4 standard deviations; the part of a law that lies beyond, or that rounding moves, is below
:math:`2^{-50}` in total variation per variate.
"""

from __future__ import annotations

import math

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.randomness.random import Randomness

_CHUNK = 1 << 14  # temporaries that stay in the cache


def uniforms(count: int, rng: Randomness) -> FloatArray:
    """Uniform on (0, 1], shape (count,)."""
    made = rng.words(count, np.uint64).astype(np.float64)
    made += 1.0
    made *= 2.0**-64
    return made


def exponentials(count: int, rng: Randomness) -> FloatArray:
    """Exponential with mean 1, shape (count,)."""
    made = uniforms(count, rng)
    np.log(made, out=made)
    return np.negative(made, out=made)


def normals(count: int, rng: Randomness) -> FloatArray:
    r"""Standard normal, shape (count,), by the transform of Box and Muller (1958).

    .. math:: (\sqrt{-2 \ln U} \cos 2 \pi V, \; \sqrt{-2 \ln U} \sin 2 \pi V)

    where: U and V are uniform and independent. The first half of what is returned are cosines, the second sines:
    element i and element i + ceil(count / 2) are one pair.
    """
    half = (count + 1) // 2
    made = np.empty(2 * half)
    for start in range(0, half, _CHUNK):
        stop = min(start + _CHUNK, half)
        radius = uniforms(stop - start, rng)
        np.log(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        angle = uniforms(stop - start, rng)
        angle *= 2 * math.pi
        np.cos(angle, out=made[start:stop])
        made[start:stop] *= radius
        np.sin(angle, out=angle)
        np.multiply(angle, radius, out=made[half + start : half + stop])
    return made[:count]
