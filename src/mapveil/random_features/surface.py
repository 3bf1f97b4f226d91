r"""The server half: sums of any number of reports at any points, without ever meeting one alone.

.. math:: S(g) = \frac{1}{B} \sum_i \sum_b \operatorname{Re}\, e^{-i \omega_{ib} \cdot (g - o)} z_{ib}

where: :math:`\omega`, z are the reports', o is the query's origin; its mean over frequencies is the sum of the users'
kernels at g (equations 6 and 10). On a grid this is a nonuniform Fourier transform of type 1 with the frequencies as
its points: O(N B + P Q log(P Q)), and memory of the grid and one chunk. At points of no grid it is one of type 3.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.random_features.transforms import to_grid, to_points
from mapveil_client.arrays import ComplexArray, FloatArray
from mapveil_client.errors import InputError
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports

TOLERANCE: Final = 1e-9
"""Relative accuracy of the transform: its errors stay below 1e-7 of the surface's root mean square."""

_WIDEST: Final = (
    1500.0  # radians from the middle of the points: the type 3 transform's own grid grows with it
)


def evaluate_on_grid(
    reports: Reports,
    query: Query,
    grid: EvenGrid,
    *,
    threads: int | None = None,
    tolerance: float = TOLERANCE,
) -> FloatArray:
    """B times S on a grid, shape ``grid.count``. Run by: the server.

    Parameters
    ----------
    reports : Reports
        Compact reports.
    query : Query
        Query that the devices answered.
    grid : EvenGrid
        The query's, or any for a query without one.
    threads : int, optional
        Threads of the transform; all cores by default.
    tolerance : float
        Relative accuracy asked of the transform.
    """
    strengths = reports.projections.reshape(-1)
    shift: FloatArray | None = None
    angles = []
    for axis in range(grid.dimension):
        frequency = reports.frequencies[axis].reshape(-1)
        moved = grid.middle[axis] - query.origin[axis]
        if moved:
            shift = frequency * moved if shift is None else shift + frequency * moved
        angle = frequency * (grid.step[axis] / (2 * math.pi))
        # A frequency beyond the grid's band looks like one inside; and long angles cost accuracy.
        angle -= np.rint(angle)
        angle *= 2 * math.pi
        angles.append(angle)
    if shift is not None:
        strengths = strengths * np.exp(-1j * shift)
    made = to_grid(angles, strengths, grid.count, sign=-1, tolerance=tolerance, threads=threads)
    return np.ascontiguousarray(made.real)


def evaluate_on_points(
    reports: Reports,
    query: Query,
    points: FloatArray,
    *,
    threads: int | None = None,
    tolerance: float = TOLERANCE,
) -> FloatArray:
    """B times S at any points, shape (points,). Run by: the server.

    Waves so short that the transform's own grid would not fit are summed one by one: none of a Gaussian kernel's whose
    bandwidth the policy accepts in a city, some of a kernel with heavy tails.

    Parameters
    ----------
    reports, query, threads, tolerance
        As for :func:`evaluate_on_grid`; reports that are not folded by any grid.
    points : ndarray of float64, shape (dimension, points)
        Points at which the sum is wanted.
    """
    strengths = reports.projections.reshape(-1)
    frequencies = reports.frequencies.reshape(query.dimension, -1)
    middle = (points.min(axis=1) + points.max(axis=1)) / 2
    reach = np.maximum(points.max(axis=1) - middle, 1e-9)
    short = (np.abs(frequencies) * reach[:, None] > _WIDEST).any(axis=0)
    total = np.zeros(points.shape[1])
    if short.any():
        total += _summed(frequencies[:, short], strengths[short], points, query)
        frequencies, strengths = frequencies[:, ~short], strengths[~short]
    if strengths.size == 0:
        return total
    shift = (middle - np.asarray(query.origin)) @ frequencies
    strengths = strengths * np.exp(-1j * shift)
    places = [np.ascontiguousarray(row) for row in points - middle[:, None]]
    waves = [np.ascontiguousarray(row) for row in frequencies]
    made = to_points(waves, strengths, places, sign=-1, tolerance=tolerance, threads=threads)
    return np.asarray(total + made.real)


class SurfaceSum:
    """A running sum of reports on a grid. Run by: the server.

    Parameters
    ----------
    query : Query
        Query that the devices answered; it has a grid, or one is given.
    grid : EvenGrid, optional
        Grid of the surface, for a query without a grid; reports are folded by a query's own.
    tolerance : float
        Relative accuracy asked of the transform.

    Raises
    ------
    InputError
        There is no grid, or another one than the query's.
    """

    def __init__(self, query: Query, grid: EvenGrid | None = None, *, tolerance: float = TOLERANCE) -> None:
        chosen = grid or query.grid
        if chosen is None:
            raise InputError("a surface needs a grid: the query has none")
        if query.grid not in (None, chosen) or chosen.dimension != query.dimension:
            raise InputError("the grid is another than the query's; reports are folded by that one")
        self.query, self.grid, self.tolerance = query, chosen, tolerance
        self.devices = 0
        self._sum = np.zeros(chosen.count)

    def add(self, reports: Reports) -> None:
        """Add compact reports."""
        self._sum += evaluate_on_grid(reports, self.query, self.grid, tolerance=self.tolerance)
        self.devices += reports.projections.shape[0]

    def kernel_sum(self) -> FloatArray:
        """S: an estimate of the sum of all users' kernels, each 1 at its own place, shape ``grid.count``."""
        return self._sum / self.query.features

    def mean(self) -> FloatArray:
        """The paper's output (Algorithm 2): S over the number of devices, shape ``grid.count``."""
        return self.kernel_sum() / max(self.devices, 1)

    def density(self) -> FloatArray:
        """Estimated users per square metre (per metre, per cubic metre and second): S over the kernel's integral."""
        return self.kernel_sum() / self.query.kernel_integral


def _summed(
    frequencies: FloatArray, strengths: ComplexArray, points: FloatArray, query: Query
) -> npt.NDArray[np.float64]:
    total = np.zeros(points.shape[1])
    offset = points - np.asarray(query.origin)[:, None]
    for start in range(0, strengths.size, 256):
        part = slice(start, start + 256)
        phase = np.tensordot(frequencies[:, part], offset, axes=(0, 0))
        total += strengths.real[part] @ np.cos(phase) + strengths.imag[part] @ np.sin(phase)
    return total
