r"""A public set of waves that everybody is projected on, chosen before any place is looked at.

The sum of the users' kernels on a box of period T is a Fourier series, and a Gaussian one ends soon:

.. math:: K(g) = \frac{1}{T_x T_y} \Big( n + 2 \operatorname{Re} \sum_{m} w_m\, \bar F_m\, e^{i \kappa_m \cdot g} \Big),
          \qquad F_m = \sum_j e^{i \kappa_m \cdot x_j}, \qquad w_m = e^{-h^2 \lVert \kappa_m \rVert^2 / 2}

where: :math:`\kappa_m = 2 \pi m / T` for m in one half of the plane, n is the number of users at places :math:`x_j`
and h the bandwidth. This lattice is the trapezoidal rule for Bochner's integral, exact but for kernels that wrap
around the box: as many random frequencies have an error of :math:`n / \sqrt{M}`.

A user adds :math:`a_m \cos`, :math:`a_m \sin` to the M sums, so M waves cost an L1 norm of about
:math:`\tfrac{4}{\pi} \sum_m a_m`, and Laplace noise of that scale over :math:`\epsilon`. Two choices are left:

- amplitudes: :math:`a_m \propto w_m^{2/3}` minimises the surface's noise, :math:`(\sum_m a_m)^2 \sum_m w_m^2 / a_m^2`
  (set its derivative to zero);
- how many: all waves up to a length, the one with the least expected error if
  :math:`|F_m|^2 = n^2 \tfrac12 r^{-1.3} + n`, where r is the number of waves along the longer side. That is the power
  of check-ins in cities and over the United States (six cuts of Gowalla, Foursquare and Brightkite, within a factor of
  three up to r = 64); where it is wrong, the choice is worse than the best, and nothing else.

With M waves up to r = R the noise is like M, the detail left out like :math:`R^{-0.65}`: R grows with
:math:`(n \epsilon)^{2/7}` or so, slower than a grid of cells does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

MOST_WAVES: Final = 2048
"""No more are chosen: what a place costs to project is proportional to them."""

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


class _Fit(NamedTuple):
    """What is expected of a set of waves."""

    waves: int
    error: float  # expected mean square error of the sum of kernels, in squares of users at one place


@dataclass(frozen=True, eq=False)
class SharedWaves:
    """The waves of one collection: public, the same for everybody.

    A place's vector has the cosines of all waves, then their sines, in whole units.

    Parameters
    ----------
    index : ndarray of int64, shape (2, waves)
        m, one of each pair m and -m, the lowest frequencies first.
    origin : tuple of float
        Where phases count from, metres.
    period : tuple of float
        T, metres.
    bandwidth : float
        h, metres.
    amplitude : ndarray of int64, shape (waves,)
        What each wave's cosine is multiplied by, at least 1.
    limit : int
        L1 norm that no place's vector exceeds.
    """

    index: IntArray
    origin: tuple[float, float]
    period: tuple[float, float]
    bandwidth: float
    amplitude: IntArray
    limit: int

    def __post_init__(self) -> None:
        if self.index.ndim != 2 or self.index.shape != (2, self.amplitude.size) or self.amplitude.size < 1:
            raise ParameterError("waves need an index of two whole numbers and an amplitude each")
        if self.amplitude.min() < 1 or self.limit < 1:
            raise ParameterError("amplitudes and the limit of their sum are whole numbers of at least 1")

    @property
    def count(self) -> int:
        """Number of waves."""
        return self.amplitude.size

    @property
    def length(self) -> int:
        """Coordinates of a vector: two for each wave."""
        return 2 * self.amplitude.size

    @property
    def weights(self) -> FloatArray:
        """The kernel's spectrum at each wave, shape (waves,)."""
        return _weights(self.index, self.period, self.bandwidth)

    @property
    def lengths(self) -> FloatArray:
        """r, waves along the longer period, shape (waves,)."""
        return _radius(self.index, self.period)

    @property
    def longest(self) -> int:
        """The largest index along either axis."""
        return int(np.abs(self.index).max())


def choose_waves(
    low: tuple[float, float],
    high: tuple[float, float],
    bandwidth: float,
    *,
    epsilon: float,
    users: float,
    most: int = MOST_WAVES,
) -> SharedWaves:
    """Choose the waves from what is public. Run by: the server, which publishes them.

    Parameters
    ----------
    low, high : tuple of float
        Corners of the region, metres.
    bandwidth : float
        h, metres.
    epsilon : float
        What the sums will cost.
    users : float
        n, declared or found under noise.
    most : int
        At most so many waves.

    Raises
    ------
    ParameterError
        A number is not above 0.

    Examples
    --------
    >>> few = choose_waves((0, 0), (10_000, 10_000), 800, epsilon=1, users=500)
    >>> many = choose_waves((0, 0), (10_000, 10_000), 800, epsilon=1, users=50_000)
    >>> few.count < many.count
    True
    """
    sides = tuple(end - start for start, end in zip(low, high, strict=True))
    for name, value in (
        ("bandwidth", bandwidth),
        ("epsilon", epsilon),
        ("users", users),
        ("side", min(sides)),
    ):
        if not (math.isfinite(value) and value > 0):
            raise ParameterError(f"{name} must be a number above 0, got {value!r}")
    period = (sides[0] + _MARGIN * bandwidth, sides[1] + _MARGIN * bandwidth)
    index = _half_plane(period, bandwidth, most)
    weights = _weights(index, period, bandwidth)
    kept = _best(weights, _radius(index, period), epsilon, users).waves
    index, shares = index[:, :kept], weights[:kept] ** (2 / 3)
    shares = shares / shares.max()
    finest = _FINENESS * epsilon / (_MEAN_NORM * float(shares.sum()))
    top = 1 << math.floor(math.log2(min(max(finest, 1.0), _LARGEST_AMPLITUDE)))
    amplitude = np.maximum(np.rint(top * shares), 1).astype(np.int64)
    limit = _limit(index, amplitude, period, sides)
    return SharedWaves(index, low, period, float(bandwidth), amplitude, limit)


def signal_bandwidth(low: tuple[float, float], high: tuple[float, float], signal: float) -> float:
    r"""A bandwidth as narrow as the waves that this much signal carries, metres. Run by: the server.

    .. math:: h = \tfrac12 \sqrt{L_x L_y}\, (n \epsilon)^{-2/7}

    where: L are the region's sides, and :math:`n \epsilon` is ``signal``.
    """
    area = math.prod(end - start for start, end in zip(low, high, strict=True))
    return 0.5 * math.sqrt(area) * math.pow(max(signal, 1.0), -2 / 7)


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
    order = np.argsort(_radius(index, period), kind="stable")
    ordered = index[:, order]
    near = _weights(ordered, period, bandwidth) >= _LEAST_WEIGHT
    near[:2] = True
    return np.ascontiguousarray(ordered[:, near][:, :most])


def _best(weights: FloatArray, radius: FloatArray, epsilon: float, users: float) -> _Fit:
    power = users**2 * _POWER * np.maximum(radius, 1.0) ** -_SLOPE + users
    signal = np.square(weights) * power
    left_out = signal.sum() - np.cumsum(signal)
    shares = weights ** (2 / 3)
    norm = _MEAN_NORM * np.cumsum(shares)
    edges = np.unique(
        radius[0] * _STEP ** np.arange(math.ceil(math.log(radius[-1] / radius[0]) / math.log(_STEP)) + 2)
    )
    counts = np.unique(np.searchsorted(radius, edges * (1 + 1e-9), side="right"))
    fits = []
    for count in counts[counts > 0].tolist():
        noise = 4 * np.square(norm[count - 1] / (epsilon * shares[:count]))
        within = np.square(weights[:count]) * power[:count] * noise / (power[:count] + noise)
        fits.append(_Fit(count, float(within.sum() + left_out[count - 1])))
    return min(fits, key=lambda fit: fit.error)


def _limit(
    index: IntArray, amplitude: IntArray, period: tuple[float, float], sides: tuple[float, ...]
) -> int:
    """The largest L1 norm at places spread evenly over the region, and a little more; never beyond the proved bound.

    A place that has more is scaled down by its own device, so no promise hangs on this.
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
