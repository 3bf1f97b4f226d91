"""Nonuniform fast Fourier transforms in one to three dimensions, by FINUFFT (Barnett, Magland, af Klinteberg 2019)."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mapveil_client.arrays import ComplexArray, FloatArray

_THREADED: Final = 100_000  # fewer sources are faster on one thread
_CACHED: Final = 1 << 17  # points of the transform's fine grid that stay in the cache
_SAMPLE: Final = 4096


def to_grid(
    angles: Sequence[FloatArray],
    strengths: ComplexArray,
    count: tuple[int, ...],
    *,
    tolerance: float,
    threads: int | None = None,
) -> ComplexArray:
    r"""Type 1: :math:`f_k = \sum_j c_j e^{-i k \cdot x_j}` for :math:`-n/2 \le k < n/2`, shape ``count``.

    Parameters
    ----------
    angles : sequence of ndarray of float64, shape (sources,)
        x along each axis, best within -pi .. pi.
    strengths : ndarray of complex128, shape (sources,)
        c.
    count : tuple of int
        n of each axis.
    tolerance : float
        Relative accuracy.
    threads : int, optional
        Threads of the transform; all cores by default.
    """
    import finufft

    if strengths.size == 0:
        return np.zeros(count, dtype=np.complex128)
    call = (finufft.nufft1d1, finufft.nufft2d1, finufft.nufft3d1)[len(count) - 1]
    options = _threads(strengths.size, threads)
    if _fits_the_cache(angles, count):
        # FINUFFT sorts sources for the cache's sake, which takes longer than all the rest where the cache holds all.
        options["spread_sort"] = 0
    size = count[0] if len(count) == 1 else count
    made = call(*angles, np.ascontiguousarray(strengths), size, eps=tolerance, isign=-1, **options)
    return np.asarray(made)


def to_points_from_grid(
    angles: Sequence[FloatArray], modes: ComplexArray, *, tolerance: float, threads: int | None = None
) -> ComplexArray:
    r"""Type 2: :math:`f_j = \sum_k c_k e^{i k \cdot x_j}`, from a grid to points, shape (points,)."""
    import finufft

    call = (finufft.nufft1d2, finufft.nufft2d2, finufft.nufft3d2)[modes.ndim - 1]
    options = _threads(angles[0].size, threads)
    return np.asarray(call(*angles, np.ascontiguousarray(modes), eps=tolerance, isign=1, **options))


def to_points(
    frequencies: Sequence[FloatArray],
    strengths: ComplexArray,
    points: Sequence[FloatArray],
    *,
    tolerance: float,
    threads: int | None = None,
) -> ComplexArray:
    r"""Type 3: :math:`f_j = \sum_k c_k e^{-i \omega_k \cdot x_j}`, from anywhere to anywhere, shape (points,)."""
    import finufft

    call = (finufft.nufft1d3, finufft.nufft2d3, finufft.nufft3d3)[len(points) - 1]
    options = _threads(strengths.size, threads)
    return np.asarray(call(*frequencies, strengths, *points, eps=tolerance, isign=-1, **options))


def _threads(size: int, threads: int | None) -> dict[str, Any]:
    if size < _THREADED:
        return {"nthreads": 1}
    return {} if threads is None else {"nthreads": threads}


def _fits_the_cache(angles: Sequence[FloatArray], count: tuple[int, ...]) -> bool:
    """Whether most sources spread to a fraction of the fine grid (2 n points an axis) that the cache holds."""
    touched = 1.0
    for angle, n in zip(angles, count, strict=True):
        some = angle[:: max(1, angle.size // _SAMPLE)]
        reach = min(1.0, 2 * math.sqrt(float(np.mean(np.square(some)))) / math.pi)
        touched *= max(1.0, 2 * n * reach)
    return touched <= _CACHED
