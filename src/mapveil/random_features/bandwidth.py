"""Kernel bandwidths: the paper's rule, which reads a tenth of the places in the clear, and two that read none.

:func:`public_bandwidth` needs the region's area and the number of devices, :func:`smoothing_scale` the reports alone.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.randomness.random import Randomness, uniform_below

_SCALES: Final = 64
_WIDEST: Final = 0.25  # of the shorter side


def neighbour_bandwidth(
    places: FloatArray, rng: Randomness, *, neighbours: int = 500, part: float = 0.1
) -> float:
    r"""The mean distance of a random sample of the places to their k-th nearest neighbour among all, section 4.2.4.

    .. math:: h = \frac{1}{|M|} \sum_{i \in M} \lVert x_i^{(k)} - x_i \rVert, \qquad |M| = N / 10

    where: k is ``neighbours``, :math:`x_i^{(k)}` the k-th nearest other place. Run by: whoever is trusted with the
    places.

    Parameters
    ----------
    places : ndarray of float64, shape (dimension, places)
        Metres.
    rng : Randomness
        Draws the sample M.
    neighbours : int
        k: 200 for the paper's synthetic data, 500 for its real data.
    part : float
        Fraction of the places that is read, in (0, 1].

    Raises
    ------
    InputError
        There are at most k places, or so many at one point that the distance is 0.
    """
    from scipy.spatial import KDTree

    count = places.shape[1]
    if neighbours < 1 or not 0 < part <= 1:
        raise ParameterError(
            f"neighbours must be at least 1 and part above 0 to 1, got {neighbours} and {part}"
        )
    if count <= neighbours:
        raise InputError(f"neighbours must be below the number of places, {count}, got {neighbours}")
    wanted, keys = max(1, round(part * count)), uniform_below(count, 1 << 62, rng)
    sample = np.argpartition(keys, wanted - 1)[:wanted]
    # The first neighbour is the place itself.
    distance = KDTree(places.T).query(places.T[sample], k=[neighbours + 1])[0]
    made = float(np.mean(distance))
    if made <= 0:
        raise InputError(
            f"the bandwidth must be above 0, got 0: {neighbours} neighbours lie at one point; use more"
        )
    return made


def public_bandwidth(area: float, users: int, *, neighbours: int = 500) -> float:
    r"""The expected distance to the k-th neighbour of users spread evenly. Run by: the server.

    .. math:: h = \frac{\Gamma(k + 1/2)}{\Gamma(k)} \sqrt{\frac{A}{\pi N}}

    where: k is ``neighbours`` (at most N), A is ``area`` in square metres, N is ``users``: the mean of the k-th
    distance in a Poisson process of density N / A.

    Examples
    --------
    >>> round(public_bandwidth(170e6, users=1_000_000, neighbours=500), 1)
    164.4
    """
    k = max(1, min(neighbours, users))
    ratio = math.exp(math.lgamma(k + 0.5) - math.lgamma(k))
    return ratio * math.sqrt(area / (math.pi * max(users, 1)))


class Smoothing(NamedTuple):
    """Further smoothing of a surface, and the estimated mean square error of the kernel sum without it."""

    scale: float  # standard deviation of the Gaussian, metres
    bandwidth: float  # of the smoothed surface: the root of the squares' sum, metres
    risk_unsmoothed: float


def smoothing_scale(kernel_sum: FloatArray, query: Query, devices: int) -> Smoothing:
    r"""The Gaussian smoothing with the least estimated risk, from the reports' surface alone. Run by: the server.

    With :math:`F_m` the cosine transform of the surface S (orthonormal, so that nothing wraps around the edges),
    smoothing by s multiplies :math:`F_m` by :math:`g_m = e^{-s^2 \kappa_m^2 / 2}`, and

    .. math:: R(s) = \sum_m (1 - g_m)^2 F_m^2 + (2 g_m - 1) \sigma_m^2

    is unbiased for its squared error (Stein 1981), where: :math:`\sigma_m^2` is the variance of :math:`F_m` over the
    random frequencies, whose covariance at lag t is :math:`\frac{N}{2B} k_h(t)` (N is ``devices``; its term near each
    user, of the order of the surface itself, is left out).

    Parameters
    ----------
    kernel_sum : ndarray of float64, shape grid.count
        S; two axes.
    query : Query
        Query that the devices answered: one bandwidth for both axes, Gaussian kernel, a grid.
    devices : int
        Number of devices that answered.

    Raises
    ------
    InputError
        The query has another kernel, or no grid of two axes.
    """
    grid = query.grid
    if grid is None or query.dimension != 2 or not isinstance(query.law, Gaussian):
        raise InputError("smoothing by the reports needs a Gaussian kernel and an even grid of two axes")
    from scipy.fft import dctn

    power = np.square(dctn(kernel_sum, norm="ortho"))
    variance = (
        devices
        / (2 * query.features)
        * np.multiply.outer(*(_cosine_variance(grid, axis, query.bandwidth[axis]) for axis in range(2)))
    )
    squares = np.add.outer(*(np.square(_angular_frequencies(grid, axis)) for axis in range(2)))
    widest = _WIDEST * min(n * abs(step) for n, step in zip(grid.count, grid.step, strict=True))
    narrowest = min(abs(step) for step in grid.step) / 4
    scales = np.concatenate([[0.0], np.geomspace(min(narrowest, widest), widest, _SCALES)])
    risks = []
    for scale in scales:
        kept = np.exp(-0.5 * scale**2 * squares)
        risks.append(float((np.square(1 - kept) * power + (2 * kept - 1) * variance).sum()))
    scale = float(scales[int(np.argmin(risks))])
    return Smoothing(scale, math.hypot(scale, query.bandwidth[0]), risks[0] / grid.size)


def smooth(surface: FloatArray, grid: EvenGrid, scale: float) -> FloatArray:
    """Smooth a surface by a Gaussian of this standard deviation, metres, mirrored at the edges."""
    from scipy.fft import dctn, idctn

    found = dctn(surface, norm="ortho")
    for axis in range(grid.dimension):
        factor = np.exp(-0.5 * np.square(scale * _angular_frequencies(grid, axis)))
        found *= np.expand_dims(factor, [a for a in range(grid.dimension) if a != axis])
    return np.asarray(idctn(found, norm="ortho"))


def _angular_frequencies(grid: EvenGrid, axis: int) -> FloatArray:
    n = grid.count[axis]
    return np.asarray(math.pi * np.arange(n) / (n * abs(grid.step[axis])))


def _cosine_variance(grid: EvenGrid, axis: int, bandwidth: float) -> FloatArray:
    """Variances of the orthonormal cosine transform of a stationary series with covariance k_h, shape (n,)."""
    from scipy.fft import dctn

    n = grid.count[axis]
    lag = np.subtract.outer(np.arange(n), np.arange(n)) * (abs(grid.step[axis]) / bandwidth)
    covariance = np.exp(-0.5 * np.square(lag))
    return np.maximum(np.diagonal(dctn(covariance, norm="ortho")), 0.0)
