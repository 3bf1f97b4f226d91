r"""Fourier features that all users share, chosen before any location is read, and their exact sums.

The sum of the users' kernels on a box of period T is a Fourier series, and a Gaussian one ends soon:

.. math:: K(g) = \frac{1}{T_x T_y} \Big( n + 2 \operatorname{Re} \sum_{m} w_m\, \bar F_m\, e^{i \kappa_m \cdot g} \Big),
          \qquad F_m = \sum_j e^{i \kappa_m \cdot x_j}, \qquad w_m = e^{-h^2 \lVert \kappa_m \rVert^2 / 2}

where: :math:`\kappa_m = 2 \pi m / T` for m in one half of the plane, n is the number of users at locations :math:`x_j`
and h the bandwidth. This lattice is the trapezoidal rule for Bochner's integral, exact but for kernels that wrap
around the box: as many random frequencies have an error of :math:`n / \sqrt{M}`.

A user adds :math:`a_m \cos`, :math:`a_m \sin` to the M sums, so M features cost an L1 norm of about
:math:`\tfrac{4}{\pi} \sum_m a_m`, and Laplace noise of that scale over :math:`\epsilon`. Two choices are left:

- amplitudes: :math:`a_m \propto w_m^{2/3}` minimises the surface's noise, :math:`(\sum_m a_m)^2 \sum_m w_m^2 / a_m^2`
  (set its derivative to zero);
- how many: all features up to a length, the one with the least expected error if
  :math:`|F_m|^2 = n^2 \tfrac12 r^{-1.3} + n`, where r is the number of periods along the longer side. That is the power
  of check-ins in cities and over the United States (six cuts of Gowalla, Foursquare and Brightkite, within a factor of
  three up to r = 64); where it is wrong, the choice is worse than the best, and nothing else.

With M features up to r = R the noise is like M, the detail left out like :math:`R^{-0.65}`: R grows with
:math:`(n \epsilon)^{2/7}` or so, slower than a grid of cells does.

The vector of a location is made of whole numbers, so that its L1 norm is bounded exactly:

.. math:: V(x) = \big( \operatorname{rint}(a_m \cos \kappa_m \cdot (x - o)),\;
                 \operatorname{rint}(a_m \sin \kappa_m \cdot (x - o)) \big)_m

where: o is the features' origin. Where the L1 norm exceeds ``limit`` the vector is scaled down in integers, so the
bound holds whatever floating point did. Rounding moves a coordinate by half a unit, :math:`2^{-22}` of the noise or
less.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from mapveil.trust.queries import Progress
from mapveil_client.arrays import ComplexArray, FloatArray, IntArray
from mapveil_client.errors import ParameterError, check

MOST_FEATURES: Final = 2048
"""No more are chosen: the cost of a location's vector is proportional to them."""

_MARGIN: Final = 2.5  # bandwidths between the region and its image one period on
_LEAST_WEIGHT: Final = 1e-6
_POWER: Final = 0.5
_SLOPE: Final = 1.3
_MEAN_NORM: Final = 4 / math.pi  # of |cos| + |sin|
_STEP: Final = 1.1  # between the lengths that are tried
_PROBES: Final = 1024
_SLACK: Final = 1.002
_LARGEST_AMPLITUDE: Final = 1 << 20
_FINENESS: Final = 1 << 22  # lattice units in the noise's scale
_BLOCK: Final = 1 << 18  # coordinates at once, so that temporaries stay in the cache
_BLOCKS: Final = 64  # so many times the largest exact float64 fits an integer
_LIMB: Final = 18
_EXACT: Final = 53


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """The features of one release: public, the same for every user.

    A location's vector has the cosines of all features, then their sines, in whole units.

    Parameters
    ----------
    index : ndarray of int64, shape (2, features)
        m, one of each pair m and -m, the lowest frequencies first.
    origin : tuple of float
        o, metres.
    period : tuple of float
        T, metres.
    bandwidth : float
        h, metres.
    amplitude : ndarray of int64, shape (features,)
        a, at least 1.
    limit : int
        L1 norm that no location's vector exceeds.
    """

    index: IntArray
    origin: tuple[float, float]
    period: tuple[float, float]
    bandwidth: float
    amplitude: IntArray
    limit: int

    def __post_init__(self) -> None:
        if self.index.ndim != 2 or self.index.shape != (2, self.amplitude.size) or self.amplitude.size < 1:
            raise ParameterError("features need an index of two whole numbers and an amplitude each")
        if self.amplitude.min() < 1 or self.limit < 1:
            raise ParameterError("amplitudes and the limit of their sum must be whole numbers of at least 1")

    @property
    def count(self) -> int:
        """Number of features."""
        return self.amplitude.size

    @property
    def length(self) -> int:
        """Coordinates of a vector: two for each feature."""
        return 2 * self.amplitude.size

    @property
    def weights(self) -> FloatArray:
        """w, the kernel's spectrum at each feature, shape (features,)."""
        return _weights(self.index, self.period, self.bandwidth)

    @property
    def lengths(self) -> FloatArray:
        """r, number of periods along the longer period, shape (features,)."""
        return _radius(self.index, self.period)


def choose_features(
    low: tuple[float, float],
    high: tuple[float, float],
    bandwidth: float,
    *,
    epsilon: float,
    users: float,
    most: int = MOST_FEATURES,
) -> FourierFeatures:
    """Choose the features from public facts. Run by: the server, which publishes them.

    Parameters
    ----------
    low, high : tuple of float
        Corners of the region, metres.
    bandwidth : float
        h, metres.
    epsilon : float
        Budget of the sums.
    users : float
        n, declared or found under noise.
    most : int
        Largest number of features.

    Raises
    ------
    ParameterError
        A number is not above 0.

    Examples
    --------
    >>> few = choose_features((0, 0), (10_000, 10_000), 800, epsilon=1, users=500)
    >>> many = choose_features((0, 0), (10_000, 10_000), 800, epsilon=1, users=50_000)
    >>> few.count < many.count
    True
    """
    sides = (high[0] - low[0], high[1] - low[1])
    given = {"bandwidth": bandwidth, "epsilon": epsilon, "users": users, "side": min(sides)}
    for name, value in given.items():
        check(math.isfinite(value) and value > 0, name, "a number above 0", value)
    period = (sides[0] + _MARGIN * bandwidth, sides[1] + _MARGIN * bandwidth)
    index = _half_plane(period, bandwidth, most)
    weights = _weights(index, period, bandwidth)
    kept = _best_count(weights, _radius(index, period), epsilon, users)
    index, shares = index[:, :kept], weights[:kept] ** (2 / 3)
    shares = shares / shares.max()
    finest = _FINENESS * epsilon / (_MEAN_NORM * float(shares.sum()))
    top = 1 << math.floor(math.log2(min(max(finest, 1.0), _LARGEST_AMPLITUDE)))
    amplitude = np.maximum(np.rint(top * shares), 1).astype(np.int64)
    limit = _limit(index, amplitude, period, sides)
    return FourierFeatures(index, low, period, float(bandwidth), amplitude, limit)


def signal_bandwidth(low: tuple[float, float], high: tuple[float, float], signal: float) -> float:
    r"""The bandwidth, metres, that matches a given amount of signal. Run by: the server.

    .. math:: h = \tfrac12 \sqrt{L_x L_y}\, (n \epsilon)^{-2/7}

    where: L are the region's sides, and :math:`n \epsilon` is ``signal``.
    """
    area = math.prod(end - start for start, end in zip(low, high, strict=True))
    return 0.5 * math.sqrt(area) * math.pow(max(signal, 1.0), -2 / 7)


def feature_vectors(locations: FloatArray, features: FourierFeatures) -> FloatArray:
    """Vectors of locations, without noise. Run by: the curator.

    Parameters
    ----------
    locations : ndarray of float64, shape (2, locations)
        Metres.
    features : FourierFeatures
        The public set.

    Returns
    -------
    ndarray of float64, shape (locations, features.length)
        V, whole numbers (in float64 for BLAS), of L1 norm at most ``features.limit`` each.
    """
    parts: list[ComplexArray] = []
    for axis in range(2):
        angle = (locations[axis] - features.origin[axis]) * (2 * math.pi / features.period[axis])
        highest = int(np.abs(features.index[axis]).max())
        powers = np.exp(1j * np.outer(angle, np.arange(-highest, highest + 1)))
        parts.append(np.take(powers, features.index[axis] + highest, axis=1))
    product = np.multiply(parts[0], parts[1], out=parts[0])
    made = np.empty((locations.shape[1], features.length))
    np.multiply(product.real, features.amplitude, out=made[:, : features.count])
    np.multiply(product.imag, features.amplitude, out=made[:, features.count :])
    np.rint(made, out=made)
    norm = np.abs(made).sum(axis=1)
    over = np.flatnonzero(norm > features.limit)
    if over.size:
        part = made[over].astype(np.int64)
        bound = norm[over, None].astype(np.int64)
        made[over] = np.sign(part) * (np.abs(part) * features.limit // bound)
    return made


def sum_of_vectors(
    locations: FloatArray, users: IntArray, features: FourierFeatures, progress: Progress | None = None
) -> list[int]:
    r"""The exact sum of locations' vectors, each times a number: :math:`\sum_c s_c V(c)`. Run by: the curator.

    Parameters
    ----------
    locations : ndarray of float64, shape (2, locations)
        Metres.
    users : ndarray of int64, shape (locations,)
        s, not negative: units of users at each location.
    features : FourierFeatures
        The public set.
    progress : callable, optional
        Called with the step and the finished fraction.

    Returns
    -------
    list of int
        ``features.length`` exact sums, of any size.
    """
    held = np.flatnonzero(users)
    wide = int(features.amplitude.max()).bit_length()
    # Products of limbs add up exactly in float64, which BLAS sums at full speed.
    block = max(1, min(_BLOCK // features.length, 1 << max(0, _EXACT - _LIMB - wide)))
    starts = range(0, held.size, block)
    limbs = -(-int(users.max(initial=0)).bit_length() // _LIMB)

    def summed(start: int) -> IntArray:
        at = held[start : start + block]
        vectors, mask = feature_vectors(locations[:, at], features), (1 << _LIMB) - 1
        split = [((users[at] >> (_LIMB * place)) & mask).astype(np.float64) for place in range(limbs)]
        return np.stack([(limb @ vectors).astype(np.int64) for limb in split])

    total = [0] * features.length
    running = np.zeros((limbs, features.length), dtype=np.int64)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for number, part in enumerate(pool.map(summed, starts), start=1):
            running += part
            if number % _BLOCKS == 0 or number == len(starts):
                for place, row in enumerate(running.tolist()):
                    total = [
                        value + (more << (place * _LIMB)) for value, more in zip(total, row, strict=True)
                    ]
                running[:] = 0
                if progress is not None:
                    progress("sum the features", number / len(starts))
    return total


def _half_plane(period: tuple[float, float], bandwidth: float, most: int) -> IntArray:
    """One of each pair m and -m with a spectrum that matters, by length; at most so many."""
    reach = math.sqrt(-2 * math.log(_LEAST_WEIGHT)) / bandwidth
    # As many as asked fill half an ellipse in the plane of frequencies.
    wanted = math.sqrt(2 * most * 4 * math.pi / (period[0] * period[1])) * 1.1 + 2 * math.pi / min(period)
    far = min(reach, wanted)
    x, y = (max(1, math.ceil(far * t / (2 * math.pi))) for t in period)
    m, k = (part.ravel() for part in np.meshgrid(np.arange(x + 1), np.arange(-y, y + 1), indexing="ij"))
    half = (m > 0) | (k > 0)
    index = np.stack([m[half], k[half]])
    ordered = index[:, np.argsort(_radius(index, period), kind="stable")]
    near = _weights(ordered, period, bandwidth) >= _LEAST_WEIGHT
    near[:2] = True
    return np.ascontiguousarray(ordered[:, near][:, :most])


def _best_count(weights: FloatArray, radius: FloatArray, epsilon: float, users: float) -> int:
    """Number of features with the least expected mean square error of the sum of kernels."""
    power = users**2 * _POWER * np.maximum(radius, 1.0) ** -_SLOPE + users
    signal = np.square(weights) * power
    left_out = signal.sum() - np.cumsum(signal)
    shares = weights ** (2 / 3)
    norm = _MEAN_NORM * np.cumsum(shares)
    steps = math.ceil(math.log(radius[-1] / radius[0]) / math.log(_STEP)) + 2
    edges = np.unique(radius[0] * _STEP ** np.arange(steps))
    counts = np.unique(np.searchsorted(radius, edges * (1 + 1e-9), side="right"))

    def error(count: int) -> float:
        noise = 4 * np.square(norm[count - 1] / (epsilon * shares[:count]))
        within = np.square(weights[:count]) * power[:count] * noise / (power[:count] + noise)
        return float(within.sum() + left_out[count - 1])

    return min((int(count) for count in counts[counts > 0]), key=error)


def _limit(
    index: IntArray, amplitude: IntArray, period: tuple[float, float], sides: tuple[float, float]
) -> int:
    """The largest L1 norm at locations spread evenly over the region, and a little more; at most the proved bound.

    A location that has more is scaled down, so no promise hangs on this.
    """
    # Roberts's sequence of low discrepancy in two dimensions.
    step = np.array([0.7548776662466927, 0.5698402909980532])
    part = np.modf(0.5 + np.arange(_PROBES)[:, None] * step)[0].T
    largest = 0.0
    for start in range(0, _PROBES, 64):
        at = part[:, start : start + 64]
        angle = sum(
            2 * math.pi * np.outer(at[axis] * sides[axis] / period[axis], index[axis]) for axis in range(2)
        )
        norm = (np.abs(np.cos(angle)) + np.abs(np.sin(angle))) @ amplitude
        largest = max(largest, float(norm.max()))
    proved = math.sqrt(2) * float(amplitude.sum())
    return max(1, math.ceil(min(_SLACK * largest, proved) + 0.5 * amplitude.size))


def _weights(index: IntArray, period: tuple[float, float], bandwidth: float) -> FloatArray:
    square = np.square(2 * math.pi * index[0] / period[0]) + np.square(2 * math.pi * index[1] / period[1])
    return np.asarray(np.exp(-0.5 * bandwidth**2 * square))


def _radius(index: IntArray, period: tuple[float, float]) -> FloatArray:
    longer = max(period)
    return np.asarray(np.hypot(index[0] * (longer / period[0]), index[1] * (longer / period[1])))
