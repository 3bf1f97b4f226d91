r"""Translation-invariant multiscale shrinkage: from noisy sums on a raster to a smooth, non-negative map.

A box of the raster holds P users; it is cut into two halves, rows and columns in turn, until single
sites are left. What a half is expected to hold is its share r of the box's sites; what was measured
departs from that by signal and noise, and is drawn back by the estimated variance of the one over
the known variance of the other:

.. math::
    \hat{x} = r P + (z - r P)\, \frac{s^2}{s^2 + \tau^2},
    \qquad s^2 = \rho\, r (1 - r) P^2,
    \qquad \hat\rho = \frac{\sum [(z - r P)^2 - \tau^2]}{\sum r (1 - r) P^2}

where: z is the measured half (both halves weighed by their noise), :math:`\tau^2` its noise variance,
and the sums run over the boxes of one size whose P lies in one bin. The cuts are made at **every**
offset, not at multiples of the box only: each box takes the mean of what its parents give it, which
equals averaging over all shifts of the grid. Outside the raster lies nothing (no wrapping): a box
over the border has fewer sites, and so a smaller share.

Pure post-processing of released numbers: costs no privacy, serves every wing. Source: cycle spinning of Haar
wavelets (Coifman and Donoho 1995), multiscale priors for counts (Kolaczyk 1999, Nowak 1999).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mapveil.errors import ParameterError

__all__ = ["multiscale_shrinkage", "pool", "spread"]

FloatArray = npt.NDArray[np.float64]

_FIRST_BIN = -3
_BINS = 17


def pool(square: npt.NDArray[Any], levels: int) -> npt.NDArray[Any]:
    """Sum blocks of ``2**levels`` x ``2**levels`` sites, same dtype.

    Examples
    --------
    >>> pool(np.ones((4, 4), dtype=np.int64), 1).tolist()
    [[4, 4], [4, 4]]
    """
    side = square.shape[0] >> levels
    summed: npt.NDArray[Any] = square.reshape(side, 1 << levels, side, 1 << levels).sum(axis=(1, 3))
    return summed


def spread(square: FloatArray, members: npt.NDArray[Any]) -> FloatArray:
    """Divide each block of a coarse raster over its sites in proportion to their members.

    Parameters
    ----------
    square : ndarray of float64, shape (coarse, coarse)
        Sums of blocks.
    members : ndarray, shape (side, side)
        Weight of every site, 0 for a structural zero; ``side`` is ``coarse`` times a power of two.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Each block keeps its sum, unless it has no members.
    """
    factor = members.shape[0] // square.shape[0]
    block = pool(members.astype(np.float64), factor.bit_length() - 1)
    rate = np.divide(square, block, out=np.zeros_like(block), where=block > 0)
    return np.asarray(rate.repeat(factor, axis=0).repeat(factor, axis=1) * members)


def multiscale_shrinkage(
    noisy: FloatArray, variance: FloatArray | float, members: npt.NDArray[Any] | None = None
) -> FloatArray:
    """Shrink noisy sums on a square raster. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    noisy : ndarray of float64, shape (side, side)
        Unbiased sums per site; ``side`` is a power of two.
    variance : float or ndarray of float64, shape (side, side)
        Variance of the noise on each, independent from site to site.
    members : ndarray, shape (side, side), optional
        How many cells each site stands for; 0 is a structural zero, estimated as exactly 0 whatever
        was measured there. An even division is in proportion to members. All 1 by default.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Non-negative, with the total of ``noisy`` (0 if that is negative) over sites with members.

    Raises
    ------
    ParameterError
        The raster is not a square with a power of two sites a side, or the shapes differ.
    """
    side = noisy.shape[0] if noisy.ndim == 2 else 0
    if noisy.shape != (side, side) or side < 1 or side & (side - 1):
        raise ParameterError(f"noisy has shape {noisy.shape}; a square of a power of two is accepted")
    weight = np.ones(noisy.shape) if members is None else np.asarray(members, dtype=np.float64)
    spreads = np.asarray(variance, dtype=np.float64)
    if weight.shape != noisy.shape or spreads.shape not in ((), noisy.shape):
        raise ParameterError(
            f"variance {spreads.shape} and members {weight.shape} must have the shape of noisy, {noisy.shape}"
        )
    there = weight > 0
    boxes = [
        _Boxes(np.where(there, noisy, 0.0)),
        _Boxes(np.where(there, spreads, 0.0)),
        _Boxes(weight),
    ]
    total = max(float(noisy[there].sum()), 0.0)
    estimate = np.full((side + 1, side + 1), total)
    size = [2 * side, 2 * side]
    while size[1] > 1:
        for axis in (0, 1):
            size[axis] //= 2
            measured, noise, weights = (box.sums(size[0], size[1]) for box in boxes)
            estimate = _halve(estimate, measured, noise, weights, axis, size[axis], side)
    return np.where(there, estimate, 0.0)


class _Boxes:
    """Sums of an array over all boxes of a size that meet it, by an integral image."""

    def __init__(self, values: FloatArray) -> None:
        self._side = values.shape[0]
        self._integral = np.zeros((self._side + 1, self._side + 1))
        np.cumsum(values.cumsum(axis=0), axis=1, out=self._integral[1:, 1:])

    def sums(self, rows: int, columns: int) -> FloatArray:
        """Sums over boxes of ``rows`` x ``columns``, one for each offset."""
        first_row, end_row = self._ends(rows)
        first_column, end_column = self._ends(columns)
        strips = self._integral[end_row] - self._integral[first_row]
        return np.asarray(strips[:, end_column] - strips[:, first_column])

    def _ends(self, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        first = np.arange(_first_offset(length, self._side), _last_offset(length, self._side) + 1)
        return np.clip(first, 0, self._side), np.clip(first + length, 0, self._side)


def _first_offset(length: int, side: int) -> int:
    return -side if length > side else 1 - length


def _last_offset(length: int, side: int) -> int:
    # A box of twice the side is the root: it holds the whole raster at every offset it has.
    return 0 if length > side else side - 1


def _halve(
    parent: FloatArray,
    measured: FloatArray,
    noise: FloatArray,
    weights: FloatArray,
    axis: int,
    length: int,
    side: int,
) -> FloatArray:
    """From the estimates of all boxes to those of all their halves, which are ``length`` long."""
    offset = _first_offset(2 * length, side) - _first_offset(length, side)
    first = np.arange(parent.shape[axis]) + offset
    count = measured.shape[axis]
    y1, v1, w1 = (_take(box, first, axis) for box in (measured, noise, weights))
    y2, v2, w2 = (_take(box, first + length, axis) for box in (measured, noise, weights))
    whole = w1 + w2
    share = np.divide(w1, whole, out=np.full(whole.shape, 0.5), where=whole > 0)
    both = v1 + v2
    noisy_half = np.divide(v2 * y1 + v1 * (parent - y2), both, out=y1.copy(), where=both > 0)
    spread_half = np.divide(v1 * v2, both, out=np.zeros_like(both), where=both > 0)
    cut = (w1 > 0) & (w2 > 0)
    half = share * parent
    half[cut] = _shrink(parent[cut], noisy_half[cut], spread_half[cut], share[cut])
    np.clip(half, 0.0, parent, out=half)
    summed = np.zeros(measured.shape)
    givers = np.zeros(count)
    for values, target in ((half, first), (parent - half, first + length)):
        inside = np.flatnonzero((target >= 0) & (target < count))
        givers[target[inside]] += 1
        if axis == 0:
            summed[target[inside]] += values[inside]
        else:
            summed[:, target[inside]] += values[:, inside]
    return np.asarray(summed / (givers[:, None] if axis == 0 else givers))


def _take(box: FloatArray, index: npt.NDArray[np.int64], axis: int) -> FloatArray:
    """Values at offsets, 0 where a box lies wholly outside the raster."""
    count = box.shape[axis]
    taken = np.take(box, np.clip(index, 0, count - 1), axis=axis)
    outside = (index < 0) | (index >= count)
    taken[(outside, slice(None)) if axis == 0 else (slice(None), outside)] = 0.0
    return np.asarray(taken)


def _shrink(parent: FloatArray, noisy: FloatArray, variance: FloatArray, share: FloatArray) -> FloatArray:
    """Empirical Bayes for boxes of one size, per bin of their parents' intensity over noise."""
    departure = noisy - share * parent
    signal = share * (1 - share) * parent * parent
    ratio = parent / np.sqrt(np.maximum(variance, 1e-300))
    level = np.floor(np.log2(np.maximum(ratio, 2.0**_FIRST_BIN)))
    bins = np.minimum(level - _FIRST_BIN, _BINS - 1).astype(np.int64)
    excess = np.bincount(bins, departure * departure - variance, _BINS)
    possible = np.bincount(bins, signal, _BINS)
    rho = np.clip(np.divide(excess, possible, out=np.zeros(_BINS), where=possible > 0), 0.0, 1.0)
    signal *= rho[bins]
    both = signal + variance
    kept = np.divide(signal, both, out=np.ones_like(both), where=variance > 0)
    return np.asarray(share * parent + departure * kept)
