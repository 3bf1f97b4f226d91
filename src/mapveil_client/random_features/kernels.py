r"""Kernels and their spectral laws, by which random Fourier features are drawn.

By Bochner's theorem a shift-invariant kernel is the mean of a cosine over a law of frequencies (equation 2):

.. math:: k(\Delta / h) = \mathrm E \cos(u \cdot \Delta / h), \qquad u \sim p

where: :math:`\Delta` is a difference of places, h the bandwidth (one for each axis), and u a frequency for
bandwidth 1, drawn once and divided by h for each query. All laws here are isotropic, so that maps have no
favoured axes and Lemma 3 holds for each with its own law of :math:`\lVert u \rVert`.

- ``gaussian``: :math:`k(r) = e^{-r^2/2}`; u is standard normal.
- ``laplace``: :math:`e^{-r}`; u is Cauchy in d dimensions. It is the Matern kernel of :math:`\nu = 1/2`.
- ``cauchy``: :math:`(1 + r^2)^{-(d+1)/2}`; u has any direction and a length of law Gamma(d).
- ``matern-3/2``, ``matern-5/2``, ``matern-7/2``: :math:`\frac{2^{1-\nu}}{\Gamma(\nu)} s^\nu K_\nu(s)`,
  :math:`s = \sqrt{2\nu}\, r`; u is Student's t in d dimensions with :math:`2\nu` degrees of freedom.

Deviation: Zong et al. (2023) use the Gaussian only; Rahimi and Recht (2008) tabulate products over the axes for
Laplace and Cauchy, which are not isotropic (in one dimension they are those above).

Frequencies are private, so they never come from a NumPy generator. A word w of 64 bits stands for
:math:`U = (w + 1) / 2^{64}` in (0, 1], so normals reach 9.4 standard deviations; the mass of a law beyond, or moved
by rounding, is below :math:`2^{-50}` in total variation per variate.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check
from mapveil_client.randomness.random import Randomness

_HALVINGS: Final = 100  # bisections of a quantile
_NODES: Final = 32  # of a quadrature that is exact for every law here
_CHUNK: Final = 1 << 14  # normals at a time, whose temporaries stay in the cache


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

    where: U and V are uniform and independent. The first half of the result are cosines, the second sines: elements i
    and i + ceil(count / 2) are one pair.
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


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel of bandwidth 1 and the law of its frequencies, in one to three dimensions."""

    @abstractmethod
    def values(self, distance: FloatArray, dimension: int) -> FloatArray:
        """The kernel at distances in bandwidths, 1 at 0; same shape."""

    @abstractmethod
    def integral(self, dimension: int) -> float:
        """The kernel's integral over the space, bandwidths to the power of ``dimension``."""

    @abstractmethod
    def frequencies(self, count: int, dimension: int, rng: Randomness) -> FloatArray:
        """Independent frequencies for bandwidth 1, radians per bandwidth, shape (dimension, count).

        Run by: the client.
        """

    @abstractmethod
    def length_below(self, length: float, dimension: int) -> float:
        """The probability that a frequency's length is at most this."""

    def length_quantile(self, probability: float, dimension: int) -> float:
        """The quantile of a frequency's length, by bisection."""
        low, high = 0.0, 1.0
        while self.length_below(high, dimension) < probability:
            high *= 2
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self.length_below(middle, dimension) < probability
            low, high = (middle, high) if below else (low, middle)
        return high


@dataclass(frozen=True)
class Gaussian(Kernel):
    """The kernel of Zong et al. (2023), section 2.2 (Delta is the distance; the paper prints its square)."""

    def values(self, distance: FloatArray, dimension: int) -> FloatArray:
        """See :class:`Kernel`."""
        return np.asarray(np.exp(-0.5 * np.square(distance)))

    def integral(self, dimension: int) -> float:
        """See :class:`Kernel`."""
        return float((2 * math.pi) ** (dimension / 2))

    def frequencies(self, count: int, dimension: int, rng: Randomness) -> FloatArray:
        """See :class:`Kernel`."""
        return normals(dimension * count, rng).reshape(dimension, count)

    def length_quantile(self, probability: float, dimension: int) -> float:
        """The root of a chi-squared quantile: the paper's C is its law for two dimensions (Lemma 3)."""
        if dimension == 2:
            return math.sqrt(-2 * math.log1p(-probability))
        return super().length_quantile(probability, dimension)

    def length_below(self, length: float, dimension: int) -> float:
        """See :class:`Kernel`: the chi law of one to three degrees of freedom."""
        if dimension == 2:
            return -math.expm1(-length * length / 2)
        ends = length * math.sqrt(2 / math.pi) * math.exp(-length * length / 2) if dimension == 3 else 0.0
        return math.erf(length / math.sqrt(2)) - ends


@dataclass(frozen=True)
class Matern(Kernel):
    """Matern kernels of smoothness p + 1/2, with p = ``order``, 0 to 3; with 0 it is the Laplace kernel."""

    order: int

    def __post_init__(self) -> None:
        check(self.order in range(4), "order", "0 to 3 (a smoothness of 1/2 to 7/2)", self.order)

    @property
    def _freedom(self) -> int:
        return 2 * self.order + 1

    def values(self, distance: FloatArray, dimension: int) -> FloatArray:
        r"""See :class:`Kernel`.

        .. math:: k(r) = e^{-s} \frac{p!}{(2p)!} \sum_{i=0}^{p} \frac{(p+i)!}{i!\,(p-i)!} (2s)^{p-i},
                  \qquad s = \sqrt{2p + 1}\, r
        """
        p, s = self.order, math.sqrt(self._freedom) * np.asarray(distance, dtype=np.float64)
        polynomial = np.zeros(s.shape)
        for i in range(p + 1):
            weight = math.factorial(p + i) / (math.factorial(i) * math.factorial(p - i))
            polynomial += weight * (2 * s) ** (p - i)
        return np.asarray(np.exp(-s) * polynomial * (math.factorial(p) / math.factorial(2 * p)))

    def integral(self, dimension: int) -> float:
        """See :class:`Kernel`: (2 pi)^d times the t law's density at 0."""
        m, d = self._freedom, dimension
        density = math.gamma((m + d) / 2) / (math.gamma(m / 2) * (m * math.pi) ** (d / 2))
        return float((2 * math.pi) ** d * density)

    def frequencies(self, count: int, dimension: int, rng: Randomness) -> FloatArray:
        """See :class:`Kernel`: normals over the root of an independent Gamma variable's ratio to its mean."""
        made = normals(dimension * count, rng).reshape(dimension, count)
        gamma = np.square(normals(count, rng)) / 2
        for _ in range(self.order):
            gamma += exponentials(count, rng)
        # A normal variate may be exactly 0: as rare as one beyond 1e15, and without a frequency.
        gamma = np.maximum(gamma, np.finfo(np.float64).tiny)
        made *= np.sqrt(self._freedom / 2 / gamma)
        return made

    def length_quantile(self, probability: float, dimension: int) -> float:
        """See :class:`Kernel`: the squared length over d follows an F law."""
        if dimension == 2:
            return math.sqrt(self._freedom * math.expm1(-2 / self._freedom * math.log1p(-probability)))
        return super().length_quantile(probability, dimension)

    def length_below(self, length: float, dimension: int) -> float:
        r"""See :class:`Kernel`.

        .. math:: \Pr[\lVert u \rVert \le \sqrt m \tan \theta] \propto
            \int_0^\theta \sin^{d - 1} t \cos^{m - 1} t \, dt
        """
        node, weight = np.polynomial.legendre.leggauss(_NODES)

        def integral(angle: float) -> float:
            t = angle * (node + 1) / 2
            return float(angle * weight @ (np.sin(t) ** (dimension - 1) * np.cos(t) ** (self._freedom - 1)))

        return integral(math.atan(length / math.sqrt(self._freedom))) / integral(math.pi / 2)


@dataclass(frozen=True)
class Cauchy(Kernel):
    """The shape of a Cauchy law in d dimensions."""

    def values(self, distance: FloatArray, dimension: int) -> FloatArray:
        """See :class:`Kernel`."""
        return np.asarray((1 + np.square(distance)) ** (-(dimension + 1) / 2))

    def integral(self, dimension: int) -> float:
        """See :class:`Kernel`: pi^((d+1)/2) / Gamma((d+1)/2)."""
        half = (dimension + 1) / 2
        return float(math.pi**half / math.gamma(half))

    def frequencies(self, count: int, dimension: int, rng: Randomness) -> FloatArray:
        """See :class:`Kernel`: a normal vector brought to a length that is a sum of exponentials."""
        made = normals(dimension * count, rng).reshape(dimension, count)
        length = sum((exponentials(count, rng) for _ in range(dimension)), np.zeros(count))
        made *= length / np.maximum(np.sqrt(np.square(made).sum(axis=0)), np.finfo(np.float64).tiny)
        return made

    def length_below(self, length: float, dimension: int) -> float:
        """See :class:`Kernel`: the length is a sum of ``dimension`` exponential variables."""
        return 1 - math.exp(-length) * math.fsum(length**k / math.factorial(k) for k in range(dimension))


KERNELS: Final[dict[str, Kernel]] = {
    "gaussian": Gaussian(),
    "laplace": Matern(0),
    "cauchy": Cauchy(),
    "matern-3/2": Matern(1),
    "matern-5/2": Matern(2),
    "matern-7/2": Matern(3),
}
"""The kernels by name."""


def kernel_named(name: str) -> Kernel:
    """The kernel of a name.

    Raises
    ------
    ParameterError
        There is none.

    Examples
    --------
    >>> kernel_named("matern-3/2").values(np.array([0.0, 1.0]), 2).round(3).tolist()
    [1.0, 0.483]
    """
    check(name in KERNELS, "kernel", f"one of {', '.join(KERNELS)}", name)
    return KERNELS[name]
