r"""The exact kernel density on an even grid, by a transform for the Gaussian and by direct sums for the others.

The sum of kernels on a box of period T, longer than the grid by two cut-offs of the kernel, is a Fourier series:

.. math:: K(g) = \sum_j w_j\, k_h(g - x_j) = \frac{1}{\prod T} \sum_m \hat k(\kappa_m)\, e^{i \kappa_m \cdot g}
          \sum_j w_j\, e^{-i \kappa_m \cdot x_j}, \qquad \kappa_m = 2 \pi m / T

where: the inner sum is a nonuniform transform of type 1 of the places, the outer an inverse FFT on the grid's own
points, and both series end where :math:`\hat k(\kappa) = (2\pi)^{d/2} h^d e^{-h^2 \kappa^2 / 2}` or :math:`k_h` fall
below the tolerance. O(N + P Q log(P Q)), without binning the places.
"""

import math
from typing import Final

import numpy as np

from mapveil.random_features.transforms import to_grid, to_points_from_grid
from mapveil_client.arrays import ComplexArray, FloatArray
from mapveil_client.random_features.kernels import Gaussian, Kernel
from mapveil_client.random_features.query import EvenGrid

_TOLERANCE: Final = 1e-9
_MOST_MODES: Final = 1 << 22
_BLOCK: Final = 1 << 22


def kernel_density(
    places: FloatArray,
    weights: FloatArray | None,
    grid: EvenGrid,
    kernel: Kernel,
    bandwidth: tuple[float, ...],
    *,
    threads: int | None = None,
    tolerance: float = _TOLERANCE,
) -> FloatArray:
    """The sum of the places' kernels (1 at each place) at the grid's points, shape ``grid.count``.

    Parameters
    ----------
    places : ndarray of float64, shape (dimension, places)
        Metres; places too far from the grid to matter are left out.
    weights : ndarray of float64, shape (places,), optional
        Weight of each place; 1 by default.
    grid : EvenGrid
        Points at which the sum is wanted.
    kernel : Kernel
        Kernels other than the Gaussian are summed directly, which takes places times points.
    bandwidth : tuple of float
        Bandwidth of each axis, metres.
    threads : int, optional
        Threads of the transform; all cores by default.
    tolerance : float
        Relative accuracy of the transform, 1e-14 to 0.1.
    """
    if places.shape[1] == 0:
        return np.zeros(grid.count)
    if isinstance(kernel, Gaussian):
        series = _Series(grid, bandwidth, tolerance)
        if series.size <= _MOST_MODES:
            return series.on_grid(series.modes(places, weights, threads))
    return direct_density(places, weights, grid.points(), kernel, bandwidth).reshape(grid.count)


def kernel_density_at(
    places: FloatArray,
    weights: FloatArray | None,
    points: FloatArray,
    kernel: Kernel,
    bandwidth: tuple[float, ...],
    *,
    threads: int | None = None,
) -> FloatArray:
    """:func:`kernel_density` at any points, shape (dimension, points): a transform of type 2. Shape (points,)."""
    if places.shape[1] == 0:
        return np.zeros(points.shape[1])
    if isinstance(kernel, Gaussian):
        low, high = points.min(axis=1), points.max(axis=1)
        count = tuple(int(n) for n in np.ceil((high - low) / bandwidth).astype(np.int64) + 1)
        around = EvenGrid(tuple(low.tolist()), tuple(float(h) for h in bandwidth), count)
        series = _Series(around, bandwidth, _TOLERANCE)
        if series.size <= _MOST_MODES:
            return series.at_points(series.modes(places, weights, threads), points, threads)
    return direct_density(places, weights, points, kernel, bandwidth)


def direct_density(
    places: FloatArray,
    weights: FloatArray | None,
    points: FloatArray,
    kernel: Kernel,
    bandwidth: tuple[float, ...],
) -> FloatArray:
    """:func:`kernel_density_at` place by place: for kernels with sharp corners, and as a test's reference."""
    scale = np.asarray(bandwidth)[:, None]
    places, points = places / scale, points / scale
    counted = np.ones(places.shape[1]) if weights is None else weights
    total = np.zeros(points.shape[1])
    block = max(1, _BLOCK // max(points.shape[1], 1))
    for start in range(0, places.shape[1], block):
        part = slice(start, start + block)
        square = np.zeros((places[0, part].size, points.shape[1]))
        for at, to in zip(places, points, strict=True):
            square += np.square(at[part, None] - to)
        total += counted[part] @ kernel.values(np.sqrt(square), len(bandwidth))
    return total


class _Series:
    """The Fourier series of a Gaussian sum around a grid."""

    def __init__(self, grid: EvenGrid, bandwidth: tuple[float, ...], tolerance: float) -> None:
        from scipy.fft import next_fast_len

        self.grid, self.bandwidth, self.tolerance = grid, bandwidth, tolerance
        reach = math.sqrt(2 * math.log(1 / min(tolerance, 1e-2))) + 1.0
        self.reach = [reach * h for h in bandwidth]
        axes = list(zip(grid.count, grid.step, self.reach, strict=True))
        # In steps of the grid, so that its points are points of the inverse FFT.
        self.period = [next_fast_len(n + 2 * math.ceil(far / abs(step))) for n, step, far in axes]
        self.lengths = [n * abs(step) for n, step in zip(self.period, grid.step, strict=True)]
        self.highest = [
            math.ceil(reach / h * t / (2 * math.pi)) for h, t in zip(bandwidth, self.lengths, strict=True)
        ]
        self.size = math.prod(2 * high + 1 for high in self.highest)

    def modes(self, places: FloatArray, weights: FloatArray | None, threads: int | None) -> ComplexArray:
        """The series' coefficients, shape (2 highest + 1, ...)."""
        near = np.ones(places.shape[1], dtype=np.bool_)
        for axis, (n, step, reach) in enumerate(
            zip(self.grid.count, self.grid.step, self.reach, strict=True)
        ):
            low, high = sorted((self.grid.start[axis], self.grid.start[axis] + (n - 1) * step))
            near &= (places[axis] >= low - reach) & (places[axis] <= high + reach)
        strengths = np.ones(places.shape[1], dtype=np.complex128)
        if weights is not None:
            strengths.real = weights
        if not near.all():
            places, strengths = places[:, near], strengths[near]
        sizes = tuple(2 * high + 1 for high in self.highest)
        made = to_grid(self._angles(places), strengths, sizes, tolerance=self.tolerance, threads=threads)
        for axis, (high, length, h) in enumerate(
            zip(self.highest, self.lengths, self.bandwidth, strict=True)
        ):
            kappa = 2 * math.pi / length * np.arange(-high, high + 1)
            spectrum = math.sqrt(2 * math.pi) * h / length * np.exp(-0.5 * np.square(h * kappa))
            made *= np.expand_dims(spectrum, _others(made.ndim, axis))
        return made

    def on_grid(self, modes: ComplexArray) -> FloatArray:
        """The series at the grid's points."""
        from scipy.fft import ifftn

        # Angles count from the grid's middle, the inverse FFT from its first point.
        for axis, (high, period) in enumerate(zip(self.highest, self.period, strict=True)):
            turn = np.exp(-2j * math.pi / period * (self.grid.count[axis] // 2) * np.arange(-high, high + 1))
            modes = modes * np.expand_dims(turn, _others(modes.ndim, axis))
            modes = _wrapped(modes, axis, high, period)
        whole = ifftn(modes, norm="forward", overwrite_x=True).real
        return np.ascontiguousarray(whole[tuple(slice(n) for n in self.grid.count)])

    def at_points(self, modes: ComplexArray, points: FloatArray, threads: int | None) -> FloatArray:
        """The series anywhere among the grid's points."""
        angles = self._angles(points)
        made = to_points_from_grid(angles, modes, tolerance=self.tolerance, threads=threads)
        return np.ascontiguousarray(made.real)

    def _angles(self, places: FloatArray) -> list[FloatArray]:
        """Coordinates of the period around the grid's middle, in the direction of the index."""
        axes = zip(places, self.grid.middle, self.grid.step, self.period, strict=True)
        return [(at - middle) * (2 * math.pi / (step * period)) for at, middle, step, period in axes]


def _others(axes: int, axis: int) -> list[int]:
    return [other for other in range(axes) if other != axis]


def _wrapped(modes: ComplexArray, axis: int, high: int, period: int) -> ComplexArray:
    """Modes -high .. high in an FFT's order; beyond its band they add up, as its points cannot tell them apart."""
    modes = np.moveaxis(modes, axis, 0)
    made = np.zeros((period, *modes.shape[1:]), dtype=np.complex128)
    for start in range(-high, high + 1, period):
        part = np.arange(start, min(start + period, high + 1))
        made[part % period] += modes[part + high]
    return np.moveaxis(made, 0, axis)
