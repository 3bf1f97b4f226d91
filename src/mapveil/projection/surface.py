r"""The server half: sums of any number of reports on any grid, without ever meeting one alone.

.. math:: S(g) = \frac{1}{B} \sum_i \sum_b \operatorname{Re}\, e^{-i \omega_{ib} \cdot (g - o)} z_{ib}

where: :math:`\omega`, z are the reports', o is the query's origin; its mean over frequencies is the sum of the users'
kernels at g (equations 6 and 10). On a grid this is a nonuniform Fourier transform of type 1 with the frequencies as
its points: O(N B + P Q log(P Q)), and memory of the grid and one chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.errors import InputError
from mapveil.projection.even_grid import EvenGrid
from mapveil.projection.query import Query
from mapveil.projection.report import ComplexArray, FloatArray, GridReports, Reports

__all__ = ["TOLERANCE", "SurfaceSum", "direct_surface"]

TOLERANCE: Final = 1e-9
"""What is asked of the transform: its errors stay below 1e-7 of the surface's root mean square."""

_THREADED: Final = 100_000  # fewer waves are faster on one thread


def _axes(array: FloatArray) -> Iterator[npt.NDArray[np.float64]]:
    return (np.ascontiguousarray(part.reshape(-1)) for part in array)


class SurfaceSum:
    """A running sum of reports on a grid. Run by: the server.

    Parameters
    ----------
    query : Query
        What was asked; has a grid, or one is given.
    grid : EvenGrid, optional
        Where the surface is wanted, for a query without a grid; reports are folded by a query's own.
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
        import finufft

        devices = reports.projections.shape[0]
        if devices == 0:
            return
        step, middle, origin = self.grid.step, self.grid.middle, self.query.origin
        strengths = reports.projections.reshape(-1)
        shift: FloatArray | None = None
        angles = []
        for axis, frequency in enumerate(_axes(reports.frequencies)):
            if middle[axis] != origin[axis]:
                moved = frequency * (middle[axis] - origin[axis])
                shift = moved if shift is None else shift + moved
            angle = frequency * step[axis]
            # Folded here: a frequency beyond the grid's band looks like one inside, and long angles cost accuracy.
            angle -= (2 * math.pi) * np.rint(angle / (2 * math.pi))
            angles.append(angle)
        if shift is not None:
            strengths = strengths * np.exp(-1j * shift)
        transform = (finufft.nufft1d1, finufft.nufft2d1, finufft.nufft3d1)[self.grid.dimension - 1]
        threads = {"nthreads": 1} if strengths.size < _THREADED else {}
        size = self.grid.count[0] if self.grid.dimension == 1 else self.grid.count
        made = transform(
            *angles, np.ascontiguousarray(strengths), size, eps=self.tolerance, isign=-1, **threads
        )
        self._sum += made.real
        self.devices += devices

    def add_grid(self, reports: GridReports) -> None:
        """Add evaluations, as the paper sends them."""
        if reports.evaluations.shape[1:] != self.grid.count:
            raise InputError(
                f"evaluations of shape {reports.evaluations.shape[1:]} for a grid of {self.grid.count}"
            )
        self._sum += reports.evaluations.sum(axis=0)
        self.devices += reports.evaluations.shape[0]

    def kernel_sum(self) -> FloatArray:
        """S: an estimate of the sum of all users' kernels, 1 for each user at their own place; shape ``grid.count``."""
        return self._sum / self.query.features

    def mean(self) -> FloatArray:
        """The paper's output (Algorithm 2): S over the number of devices, shape ``grid.count``."""
        return self.kernel_sum() / max(self.devices, 1)

    def density(self) -> FloatArray:
        """Estimated users per square metre (per metre, per cubic metre and second): S over the kernel's integral."""
        scale = self.query.law.integral(self.query.dimension) * math.prod(self.query.bandwidth)
        return self.kernel_sum() / scale


def direct_surface(reports: Reports, query: Query, points: FloatArray) -> FloatArray:
    """S at any points, wave by wave: the slow, obvious oracle of every fast sum.

    Parameters
    ----------
    reports : Reports
        Compact reports.
    query : Query
        What was asked.
    points : ndarray of float64, shape (dimension, points)
        Where.
    """
    total = np.zeros(points.shape[1])
    offset = points - np.asarray(query.origin)[:, None]
    frequencies = reports.frequencies.reshape(query.dimension, -1)
    strengths: ComplexArray = reports.projections.reshape(-1)
    for start in range(0, strengths.size, 256):
        part = slice(start, start + 256)
        phase = np.tensordot(frequencies[:, part], offset, axes=(0, 0))
        total += strengths.real[part] @ np.cos(phase) + strengths.imag[part] @ np.sin(phase)
    return total / query.features
