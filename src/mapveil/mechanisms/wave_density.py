r"""The server half of shared waves: noisy sums become a density, by shrinkage and a nonuniform FFT.

The sum of wave m comes as :math:`\tilde F_m = F_m + \nu_m`, with noise of a known variance. Waves of about one length
are shrunk together, by the part of their power that is signal (James and Stein 1961, with its positive part):

.. math::

    s = \max\Big(0,\ 1 - \frac{\sum_m w_m^2 \operatorname{Var} \nu_m}{\sum_m w_m^2 |\tilde F_m|^2}\Big), \qquad
    K(g) = \frac{1}{T_x T_y} \Big( n + 2 \operatorname{Re} \sum_m s w_m \bar{\tilde F}_m e^{i \kappa_m \cdot g} \Big)

where: n is the noisy number of users, and the symbols are those of :mod:`mapveil.mechanisms.shared_waves`.
Post-processing: costs no privacy. Because a cosine's and a sine's noise are equal, the noise left in the surface is the
same everywhere.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from mapveil.mechanisms.shared_waves import SharedWaves
from mapveil_client.arrays import ComplexArray, FloatArray

_RING: Final = 1.15  # ratio of a ring's edges, where that is more than one wave
_TOLERANCE: Final = 1e-9
_THREADED: Final = 100_000


class WaveSums(NamedTuple):
    """The noisy sums of the vectors: all that the server half learns of people, but for their number."""

    values: FloatArray  # (waves.length,), in the waves' units times users, unbiased
    variance: float  # of the noise on each, the same units squared


class WaveDensity(NamedTuple):
    """A density, and the noise in it."""

    density: FloatArray  # users per square metre at each place, negative where noise says so
    noise: float  # its standard deviation at any place, users per square metre
    unshrunk_noise: (
        float  # what it would be without shrinkage: the exact standard error of an unbiased estimate
    )


def server_density(sums: WaveSums, users: float, waves: SharedWaves, places: FloatArray) -> WaveDensity:
    """The density of the users at any places. Run by: the server.

    Parameters
    ----------
    sums : WaveSums
        From the curator, or from secure sums.
    users : float
        Their number, noisy or known.
    waves : SharedWaves
        What was asked.
    places : ndarray of float64, shape (2, places)
        Where the density is wanted, metres, inside the region.
    """
    found: ComplexArray = np.empty(waves.count, dtype=np.complex128)
    np.divide(sums.values[: waves.count], waves.amplitude, out=found.real)
    np.divide(sums.values[waves.count :], waves.amplitude, out=found.imag)
    variance = 2 * sums.variance / np.square(waves.amplitude.astype(np.float64))
    weights, area = waves.weights, math.prod(waves.period)
    kept = weights * shrink_factors(found, variance, waves)
    density = (users + 2 * _evaluate(kept * found.conj(), waves, places)) / area
    noise, unshrunk = (
        2 / area * math.sqrt(float((np.square(part) * variance / 2).sum())) for part in (kept, weights)
    )
    return WaveDensity(density, noise, unshrunk)


def shrink_factors(found: ComplexArray, variance: FloatArray, waves: SharedWaves) -> FloatArray:
    """How much of each wave's noisy sum is kept, 0 to 1, the same over rings of like length, shape (waves,).

    Parameters
    ----------
    found : ndarray of complex128, shape (waves,)
        Noisy sums of the waves.
    variance : ndarray of float64, shape (waves,)
        Of their noise, both parts together.
    waves : SharedWaves
        Which waves.
    """
    edges = [0.0]
    while edges[-1] <= waves.lengths[-1]:
        edges.append(max(edges[-1] + 1.0, edges[-1] * _RING))
    ring = np.searchsorted(np.asarray(edges), waves.lengths * (1 + 1e-9), side="right")
    square = np.square(waves.weights)
    power = np.bincount(ring, square * np.square(np.abs(found)))
    noise = np.bincount(ring, square * variance)
    part = np.divide(noise, power, out=np.ones(power.size), where=power > 0)
    return np.asarray(np.maximum(1 - part, 0.0)[ring])


def _evaluate(coefficients: ComplexArray, waves: SharedWaves, places: FloatArray) -> FloatArray:
    """The real part of the sum of waves at each place, shape (places,)."""
    import finufft

    highest = np.abs(waves.index).max(axis=1)
    modes = np.zeros(tuple((2 * highest + 1).tolist()), dtype=np.complex128)
    modes[waves.index[0] + highest[0], waves.index[1] + highest[1]] = coefficients
    angles = []
    for axis in range(2):
        angle = (places[axis] - waves.origin[axis]) * (2 * math.pi / waves.period[axis])
        angles.append(np.ascontiguousarray(angle - 2 * math.pi * np.rint(angle / (2 * math.pi))))
    threads = {"nthreads": 1} if angles[0].size < _THREADED else {}
    made = finufft.nufft2d2(*angles, modes, eps=_TOLERANCE, isign=1, **threads)
    return np.ascontiguousarray(np.asarray(made).real)
