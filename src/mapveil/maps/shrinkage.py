"""Translation-invariant multiscale shrinkage: from noisy sums on a raster to a smooth, non-negative map.

A box of the raster holds P users; it is cut into two halves, rows and columns in turn, until single
sites are left. What a half is expected to hold is its share of the box's members; what was measured
departs from that by signal and noise, and is drawn back to the posterior mean under a prior of splits
that is learned, per size of box, from the noisy halves of all boxes (:mod:`mapveil.maps.split_prior`).

The cuts are made at **every** offset, not at multiples of the box only: each box takes the mean of what
its parents give it, which equals averaging over all shifts of the grid. Outside the raster lies nothing
(no wrapping): a box over the border has fewer members, and so a smaller share.

Pure post-processing of released numbers: costs no privacy, serves every wing. Source: cycle spinning
(Coifman and Donoho 1995), multiscale priors for counts (Kolaczyk 1999, Nowak and Kolaczyk 2000).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mapveil.errors import ParameterError
from mapveil.maps.split_prior import SplitPrior

__all__ = ["multiscale_shrinkage", "pool", "spread"]

FloatArray = npt.NDArray[np.float64]

_WHOLE = 0.99  # of a measured group, in either half


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
    noisy: FloatArray,
    variance: FloatArray | float,
    members: npt.NDArray[Any] | None = None,
    *,
    block: int = 1,
    block_variance: FloatArray | float | None = None,
    leaves: FloatArray | None = None,
    terms: int = 1,
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
    block : int
        Where blocks of ``block`` x ``block`` sites were measured as well and the two made consistent,
        sums of whole blocks are better known than their sites: boxes whose longer side is at least
        ``block`` sites take their variance from ``block_variance``.
    block_variance : float or ndarray of float64, shape (side, side), optional
        Each site's part of its block's variance; ``variance`` by default.
    leaves : ndarray of float64, shape (side, side), optional
        Each site's part of the group it was measured in, where several sites were measured as one and
        ``noisy`` and ``variance`` divided evenly among them; all 1 by default. Boxes that hold less than one
        group tell nothing of the prior, which is not learned from them.
    terms : int
        The noise of a site is a sum of so many Laplace variables; 16 stands for a Gaussian.

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
    small = np.asarray(variance, dtype=np.float64)
    large = small if block_variance is None else np.asarray(block_variance, dtype=np.float64)
    parts = np.asarray(1.0 if leaves is None else leaves, dtype=np.float64)
    shapes = [weight.shape, *(given.shape or noisy.shape for given in (small, large, parts))]
    if any(shape != noisy.shape for shape in shapes):
        raise ParameterError(
            f"members, variance, block_variance and leaves have shapes {shapes}; {noisy.shape} is accepted"
        )
    there = weight > 0
    sums = _Boxes(np.where(there, noisy, 0.0))
    weights = _Boxes(weight)
    of_small = _Boxes(np.where(there, small, 0.0))
    of_large = of_small if large is small else _Boxes(np.where(there, large, 0.0))
    held = None if leaves is None else _Boxes(np.where(there, parts, 0.0))
    estimate = np.full((side + 1, side + 1), max(float(noisy[there].sum()), 0.0))
    prior = SplitPrior(terms)
    size = [2 * side, 2 * side]
    while size[1] > 1:
        for axis in (0, 1):
            size[axis] //= 2
            noise = of_large if max(size) >= block else of_small
            layers = [boxes.sums(*size) for boxes in (sums, noise, weights)]
            if held is not None and min(size) < side:
                layers.append(held.sums(*size))
            estimate = _halve(estimate, layers, axis, size, side, prior)
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
    estimate: FloatArray, layers: list[FloatArray], axis: int, size: list[int], side: int, prior: SplitPrior
) -> FloatArray:
    """From the estimates of all boxes to those of all their halves, which have ``size`` sites.

    ``layers`` are sums over all halves: what was measured, noise variance, members and (optionally) groups.
    """
    length = size[axis]
    offset = _first_offset(2 * length, side) - _first_offset(length, side)
    first = np.arange(estimate.shape[axis]) + offset
    shape = layers[0].shape
    y1, v1, w1, *g1 = (_take(layer, first, axis) for layer in layers)
    y2, v2, w2, *g2 = (_take(layer, first + length, axis) for layer in layers)
    cut = (w1 > 0) & (w2 > 0)
    half = np.where(w1 > 0, estimate, 0.0)
    parent, y1, y2, v1, v2 = (array[cut] for array in (estimate, y1, y2, v1, v2))
    share = w1[cut] / (w1[cut] + w2[cut])
    both = v1 + v2
    # Two measurements of the first half: its own, and what the second leaves of the parent.
    measured = np.divide(v2 * y1 + v1 * (parent - y2), both, out=y1.copy(), where=both > 0)
    variance = np.divide(v1 * v2, both, out=np.zeros_like(both), where=both > 0)
    telling = np.minimum(g1[0], g2[0])[cut] > _WHOLE if g1 else None
    sites = min(size[0], side) * min(size[1], side)
    half[cut] = np.clip(prior.halves(parent, measured, variance, share, telling, sites), 0.0, parent)
    summed = np.zeros(shape)
    givers = np.zeros(shape[axis])
    for values, target in ((half, first), (estimate - half, first + length)):
        inside = np.flatnonzero((target >= 0) & (target < shape[axis]))
        taken = slice(int(inside[0]), int(inside[-1]) + 1)
        given = slice(int(target[inside[0]]), int(target[inside[-1]]) + 1)
        givers[given] += 1
        if axis == 0:
            summed[given] += values[taken]
        else:
            summed[:, given] += values[:, taken]
    summed /= givers[:, None] if axis == 0 else givers
    return summed


def _take(box: FloatArray, index: npt.NDArray[np.int64], axis: int) -> FloatArray:
    """Values at offsets, 0 where a box lies wholly outside the raster."""
    count = box.shape[axis]
    taken = np.take(box, np.clip(index, 0, count - 1), axis=axis)
    outside = (index < 0) | (index >= count)
    taken[(outside, slice(None)) if axis == 0 else (slice(None), outside)] = 0.0
    return np.asarray(taken)
