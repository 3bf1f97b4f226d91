r"""The server half: sums of any number of reports at any points.

.. math:: S(g) = \frac{1}{B} \sum_i \sum_b \operatorname{Re}\, e^{-i \omega_{ib} \cdot (g - o)} z_{ib}

where: :math:`\omega` and z are the reports', o is the query's origin; the mean of S over frequencies is the sum of the
users' kernels at g (equations 6 and 10). On a grid S is a nonuniform Fourier transform of type 1 with the frequencies
as its points: O(N B + P Q log(P Q)), and memory of the grid and one chunk. At other points it is one of type 3.
"""

import math
from typing import Final

import numpy as np

from mapveil.random_features.transforms import to_grid, to_points
from mapveil_client.arrays import ComplexArray, FloatArray
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports

_TOLERANCE: Final = 1e-9  # of the transform: errors stay below 1e-7 of the surface's root mean square
_WIDEST: Final = 1500.0  # radians from the middle of the points: the fine grid of type 3 grows with it
_BLOCK: Final = 256  # frequencies


def evaluate_on_grid(
    reports: Reports, query: Query, grid: EvenGrid, *, threads: int | None = None
) -> FloatArray:
    """B times S on a grid, shape ``grid.count``. Run by: the server.

    Parameters
    ----------
    reports : Reports
        Compact reports.
    query : Query
        Query that the devices answered.
    grid : EvenGrid
        The query's grid; any grid for a query without one.
    threads : int, optional
        Threads of the transform; all cores by default.
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
    made = to_grid(angles, strengths, grid.count, tolerance=_TOLERANCE, threads=threads)
    return np.ascontiguousarray(made.real)


def evaluate_on_points(
    reports: Reports, query: Query, points: FloatArray, *, threads: int | None = None
) -> FloatArray:
    """B times S at any points, shape (points,). Run by: the server.

    Frequencies so high that the transform's fine grid would not fit are summed one by one: none of a Gaussian kernel
    with a bandwidth that the policy accepts in a city, some of a kernel with heavy tails.

    Parameters
    ----------
    reports : Reports
        Compact reports that no grid has folded.
    query, threads
        As for :func:`evaluate_on_grid`.
    points : ndarray of float64, shape (dimension, points)
        Points at which the sum is wanted, metres.
    """
    strengths = reports.projections.reshape(-1)
    frequencies = reports.frequencies.reshape(query.dimension, -1)
    middle = (points.min(axis=1) + points.max(axis=1)) / 2
    reach = np.maximum(points.max(axis=1) - middle, 1e-9)
    high = (np.abs(frequencies) * reach[:, None] > _WIDEST).any(axis=0)
    total = np.zeros(points.shape[1])
    if high.any():
        total += _direct_sum(frequencies[:, high], strengths[high], points, query)
        frequencies, strengths = frequencies[:, ~high], strengths[~high]
    if strengths.size == 0:
        return total
    shift = (middle - np.asarray(query.origin)) @ frequencies
    strengths = strengths * np.exp(-1j * shift)
    rows, at = (
        [np.ascontiguousarray(row) for row in each] for each in (frequencies, points - middle[:, None])
    )
    made = to_points(rows, strengths, at, tolerance=_TOLERANCE, threads=threads)
    return np.asarray(total + made.real)


def _direct_sum(
    frequencies: FloatArray, strengths: ComplexArray, points: FloatArray, query: Query
) -> FloatArray:
    total = np.zeros(points.shape[1])
    offset = points - np.asarray(query.origin)[:, None]
    for start in range(0, strengths.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        phase = np.tensordot(frequencies[:, part], offset, axes=(0, 0))
        total += strengths.real[part] @ np.cos(phase) + strengths.imag[part] @ np.sin(phase)
    return total
